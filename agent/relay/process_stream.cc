#include "agent/relay/process_stream.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "agent/relay/identity.h"
#include "agent/relay/limits.h"
#include "base/logging.h"

namespace traincheck {
namespace {

std::string Message(const absl::Status& status) {
  return std::string(status.message());
}

}  // namespace

ProcessStream::ProcessStream(Peer peer, RelayContext* context)
    : peer_(std::move(peer)),
      context_(context),
      batcher_(&rings_, context->compressor) {}

void ProcessStream::OnSocket() {
  while (peer_.socket.valid()) {
    absl::StatusOr<std::optional<Handover>> handover =
        ReceiveHandover(peer_.socket.get());
    if (!handover.ok()) {
      if (handover.status().code() == absl::StatusCode::kInvalidArgument) {
        spdlog::warn("connection closed pid={} error=\"{}\"", peer_.pid,
                     Message(handover.status()));
      }
      peer_.socket.Close();
    } else if (handover->has_value()) {
      TakeHandover(**handover);
    } else {
      return;
    }
  }
}

void ProcessStream::TakeHandover(const Handover& handover) {
  absl::Status status =
      handover.message.pid == peer_.pid
          ? rings_.Add(handover.memory.get(), handover.message)
          : absl::PermissionDeniedError("the ring belongs to another process");
  if (status.ok()) {
    AnswerHasRing(peer_.socket.get());
  } else {
    spdlog::warn("ring refused pid={} ring={} error=\"{}\"", peer_.pid,
                 handover.message.ring, Message(status));
  }
}

void ProcessStream::OnDeath(TimePoint now) {
  // What it handed over with its last breath is still in the socket.
  OnSocket();
  peer_.socket.Close();
  peer_.pidfd.Close();
  if (!ended_at_.has_value()) ended_at_ = now;
}

bool ProcessStream::active(TimePoint now) const {
  return now - last_records_ < kActiveFor;
}

void ProcessStream::Turn(TimePoint now) {
  // Without a pidfd, or without a ring to wait for, the closed socket is the
  // end.
  if (!peer_.socket.valid() && !ended_at_.has_value() &&
      (!peer_.pidfd.valid() || rings_.definitions() == nullptr)) {
    OnDeath(now);
  }
  rings_.Refresh();
  for (const std::string& fault : rings_.NewFaults()) {
    spdlog::error("ring quarantined pid={} error=\"{}\"", peer_.pid, fault);
  }
  if (rings_.unread_bytes() > 0) last_records_ = now;
  if (!refused_ && delivery_ == nullptr) TryStart(now);
  if (refused_) return TurnRefused();
  if (delivery_ == nullptr) {
    finished_ = ended_at_.has_value();
    if (finished_ && rings_.unread_bytes() > 0) {
      spdlog::warn(
          "records lost pid={} bytes={}: the process ended before it "
          "said who it is",
          peer_.pid, rings_.unread_bytes());
    }
    return;
  }
  MakeBatches(now);
  SpoolOld(now);
  Report(now);
  delivery_->Turn(now);
  if (delivery_->refused()) return Refuse(delivery_->last_error());
  if (ended_at_.has_value()) TurnEnd(now);
}

void ProcessStream::TryStart(TimePoint now) {
  RingReader* definitions = rings_.definitions();
  if (definitions == nullptr || definitions->unread_bytes() == 0) return;
  const std::string bytes = definitions->Peek(kIdentitySearchBytes);
  const auto introduction = FindIntroduction(bytes, peer_.pid);
  if (!introduction.ok()) return Refuse(introduction.status());
  const bool searched_all = bytes.size() >= kIdentitySearchBytes;
  if (!introduction->has_value()) {
    if (searched_all) {
      Refuse(absl::InvalidArgumentError("it does not say who it is"));
    }
    return;
  }
  if (!introduced_at_.has_value()) introduced_at_ = now;
  // Ranks that still have to meet will agree on the name of their run.
  const bool wait = (*introduction)->run_is_provisional && !searched_all &&
                    !ended_at_.has_value() && !rings_.under_pressure() &&
                    now - *introduced_at_ < kRunAgreement;
  if (!wait) Start((*introduction)->hello, now);
}

void ProcessStream::Start(const v1::Hello& hello, TimePoint now) {
  started_at_ = now;
  const std::string name = SpoolName(hello.process());
  const std::string serialized = hello.SerializeAsString();
  SpoolDirectory* directory = context_->spool_directory;
  outbox_ = std::make_unique<Outbox>(Outbox::Dependencies{
      .open_spool =
          [directory, name, serialized] {
            return SpoolFile::Create(directory, name, serialized);
          },
      .release = [this](const v1::Batch& batch) { rings_.Release(batch); }});
  delivery_ = std::make_unique<Delivery>(
      Delivery::Dependencies{context_->channel, context_->wake}, hello,
      outbox_.get());
  spdlog::info("process started pid={} run={}", peer_.pid, hello.run());
}

void ProcessStream::MakeBatches(TimePoint now) {
  for (int i = 0; i < kBatchesPerTurn; ++i) {
    if (!outbox_->has_room()) return;
    std::optional<v1::Batch> batch =
        batcher_.Next(now, /*flush=*/ended_at_.has_value());
    if (!batch.has_value()) return;
    outbox_->Add(*std::move(batch), now);
  }
}

void ProcessStream::SpoolOld(TimePoint now) {
  const bool urgent = rings_.under_pressure() || !outbox_->has_room();
  const absl::Status status =
      outbox_->Spool(now, urgent ? milliseconds(0) : kMaxUnacknowledged);
  if (!status.ok() && !context_->told_spool_fails) {
    context_->told_spool_fails = true;
    spdlog::error("cannot spool: {}; records will be dropped", Message(status));
  }
  if (!outbox_->spool_path().empty() && !delivery_->open()) {
    TellUnreachable(now);
  }
}

void ProcessStream::TellUnreachable(TimePoint now) {
  // A slow start is no absence.
  const bool failed = !delivery_->last_error().ok();
  if (!failed && now - started_at_ < kNoAnswer) return;
  if (std::exchange(context_->told_unreachable, true)) return;
  const std::string why = Message(delivery_->last_error());
  spdlog::warn(
      "traincheckd at {} not reachable ({}): records are spooled in {}",
      context_->server, why.empty() ? "no answer" : why, outbox_->spool_path());
}

void ProcessStream::TellUndelivered() const {
  if (outbox_ == nullptr || outbox_->empty()) return;
  spdlog::warn("{} batches of process {} are not delivered yet: they are in {}",
               outbox_->held(), peer_.pid, outbox_->spool_path());
}

void ProcessStream::Report(TimePoint now) {
  if (now - reported_at_ < kReportPeriod) return;
  reported_at_ = now;
  delivery_->SetReports(rings_.Reports(/*final=*/false));
}

void ProcessStream::Refuse(const absl::Status& why) {
  spdlog::error("records of process {} are refused: {}", peer_.pid,
                Message(why));
  refused_ = true;
  if (outbox_ != nullptr) outbox_->Discard();
}

void ProcessStream::TurnRefused() {
  rings_.Discard();
  finished_ = ended_at_.has_value();
}

v1::Goodbye ProcessStream::MakeGoodbye() const {
  v1::Goodbye goodbye;
  goodbye.set_end(batcher_.saw_clean_exit() ? v1::END_KIND_CLEAN
                                            : v1::END_KIND_DIED);
  const std::vector<v1::RingReport> reports = rings_.Reports(/*final=*/true);
  goodbye.mutable_rings()->Assign(reports.begin(), reports.end());
  return goodbye;
}

void ProcessStream::TurnEnd(TimePoint now) {
  const bool drained = rings_.unread_bytes() == 0;
  if (drained && !said_goodbye_) {
    said_goodbye_ = true;
    delivery_->Finish(MakeGoodbye());
    delivery_->Turn(now);
  }
  if (delivery_->done()) {
    outbox_->RemoveSpool();
    finished_ = true;
  } else if (now - *ended_at_ >= context_->grace) {
    LeaveBehind(MakeGoodbye());
    finished_ = true;
  }
}

void ProcessStream::LeaveBehind(const v1::Goodbye& goodbye) {
  const uint64_t batches = outbox_->held();
  const uint64_t unread = rings_.unread_bytes();
  const absl::Status status = outbox_->LeaveBehind(goodbye);
  if (status.ok() && unread == 0) {
    spdlog::warn(
        "traincheckd at {} not reached in time: {} batches of process "
        "{} stay in {}",
        context_->server, batches, peer_.pid, outbox_->spool_path());
  } else {
    spdlog::error(
        "records of process {} are lost: {}; {} batches were held, "
        "{} bytes unread",
        peer_.pid, Message(status), batches, unread);
  }
}

}  // namespace traincheck
