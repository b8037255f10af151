#include "agent/relay/delivery.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "agent/relay/limits.h"
#include "base/logging.h"

namespace traincheck::agent {
namespace {

// An answer to a Hello that the same server would give for ever: the process is
// refused, and its records are dropped.
bool IsFinal(const absl::Status& status) {
  return status.code() == absl::StatusCode::kFailedPrecondition ||
         status.code() == absl::StatusCode::kInvalidArgument;
}

// Answers that a person has to act on, at the server or here (version, token,
// rights). They are asked for again, but seldom.
bool IsUnwelcome(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kUnimplemented:
    case absl::StatusCode::kUnauthenticated:
    case absl::StatusCode::kPermissionDenied:
      return true;
    default:
      return false;
  }
}

// An answer after the Welcome that is about one message and not about the
// server.
bool BlamesAMessage(const absl::Status& status) {
  return status.code() == absl::StatusCode::kInvalidArgument ||
         status.code() == absl::StatusCode::kResourceExhausted;
}

}  // namespace

Delivery::Delivery(Dependencies dependencies, v1::Hello hello, Outbox* outbox)
    : dependencies_(std::move(dependencies)),
      hello_(std::move(hello)),
      outbox_(outbox),
      backoff_(kFirstBackoff),
      jitter_(hello_.process()) {}

void Delivery::SetReports(const std::vector<v1::RingReport>& reports) {
  reports_.mutable_rings()->Assign(reports.begin(), reports.end());
  std::string text = reports_.SerializeAsString();
  // A process that records nothing has no new counters to send.
  if (text != reports_text_) reports_sent_ = false;
  reports_text_ = std::move(text);
}

// The order matters: what has come is heard before anything is sent, and what
// is lost is reported last.
void Delivery::Turn(TimePoint now) {
  if (state_ == State::kWaiting && now >= next_try_) Open(now);
  // Before anything is sent: what is acknowledged makes room in the credit.
  if (stream_ != nullptr) Hear(now);
  if (state_ == State::kOpening && now - opened_at_ > kWelcomeTimeout) {
    Break(absl::DeadlineExceededError("the server does not answer"), now);
  }
  // gRPC takes one message at a time: the loop is woken for the next one as
  // soon as this one is written.
  while (state_ == State::kOpen && stream_->writable() && SendOne()) {
  }
  TellLost();
}

// The records wait in the spool meanwhile, and the process is not refused.
bool Delivery::unwelcome() const { return IsUnwelcome(last_error_); }

bool Delivery::awaits_token() const {
  return last_error_.code() == absl::StatusCode::kUnauthenticated &&
         tokens_refused_ <= kRetriesWithToken;
}

// The channel connects by itself; the stream reports its end as news if it
// cannot.
void Delivery::Open(TimePoint now) {
  stream_ = std::make_unique<IngestStream>(dependencies_.channel, hello_,
                                           dependencies_.wake);
  state_ = State::kOpening;
  opened_at_ = now;
}

void Delivery::Hear(TimePoint now) {
  // A Welcome is the first message, the end the last one. Where one of them
  // breaks the stream, what is left of the news is about a stream that is gone.
  const IngestStream::News news = stream_->TakeNews();
  if (news.welcome.has_value()) HearWelcome(*news.welcome, now);
  if (news.plan.has_value()) dependencies_.plan_changed(*news.plan);
  if (news.acknowledged.has_value() && stream_ != nullptr) {
    HearAcknowledged(*news.acknowledged, now);
  }
  if (news.ended.has_value() && stream_ != nullptr) {
    Break(news.ended->ok() ? absl::UnavailableError("the server ended the "
                                                    "stream")
                           : *news.ended,
          now);
  }
}

// The Welcome says what the store has. Everything that is held is compared with
// that before the first batch goes out.
void Delivery::HearWelcome(const v1::Welcome& welcome, TimePoint now) {
  if (state_ != State::kOpening) {
    return Break(absl::InternalError("a second Welcome"), now);
  }
  if (!store_id_.empty() && store_id_ != welcome.store_id()) {
    spdlog::warn("the server has a new store old={} new={} first_batch={}",
                 store_id_, welcome.store_id(), welcome.next_batch());
  }
  store_id_ = welcome.store_id();
  takes_quiet_ = welcome.takes_quiet();
  // Everything held is laid beside the store before the first message goes out.
  // Readers of the rings then leave out what the store has, so that the next
  // batch does not begin below it.
  const std::optional<RingCoverages> coverages = outbox_->Resume(welcome);
  if (coverages.has_value()) dependencies_.covered(*coverages);
  state_ = State::kOpen;
  last_error_ = absl::OkStatus();
  backoff_ = kFirstBackoff;
  tokens_refused_ = 0;
  // What was sent on the stream before may never have arrived.
  goodbye_sent_ = false;
  reports_sent_ = reports_.rings().empty();
  spdlog::debug("stream open pid={} next_batch={} held={}",
                hello_.process().pid(), welcome.next_batch(), outbox_->held());
}

// A cursor of batches: all below it are in the store, on disk. Their ring space
// and their part of the credit are free.
void Delivery::HearAcknowledged(const v1::Acknowledged& acknowledged,
                                TimePoint now) {
  if (state_ != State::kOpen) {
    return Break(absl::InternalError("acknowledged before Welcome"), now);
  }
  const size_t before = outbox_->sent();
  const absl::Status status = outbox_->Acknowledge(acknowledged.next_batch());
  if (!status.ok()) return Break(status, now);
  gather_ = std::clamp(milliseconds(acknowledged.gather_ms()), kMaxLie,
                       kMostGathered);
  // The batch that was in question is stored.
  if (outbox_->sent() < before) strikes_ = 0;
  // Not before: the batch that ended the stream may be any that was in flight
  // then.
  // careful_ stays until everything that was in flight is stored.
  if (outbox_->empty()) careful_ = false;
  if (acknowledged.goodbye() && goodbye_sent_ && outbox_->empty()) {
    state_ = State::kDone;
    stream_.reset();
  }
}

// Every end of a stream comes here, whoever caused it. What was sent and not
// acknowledged is sent again on the next stream, or found stored there.
void Delivery::Break(const absl::Status& why, TimePoint now) {
  const bool was_open = state_ == State::kOpen;
  stream_.reset();
  // Also without a Welcome: the server may have begun and believe in that
  // stream for some time yet.
  hello_.set_resumes(true);
  outbox_->Disconnect();
  last_error_ = why;
  // The same codes after the Welcome are about one message, not about the
  // process.
  state_ = !was_open && IsFinal(why) ? State::kRefused : State::kWaiting;
  if (was_open && BlamesAMessage(why)) Blame();
  next_try_ = now + jitter_.Of(WaitAfter(why));
  backoff_ = std::min(2 * backoff_, kMaxBackoff);
  spdlog::debug("stream broken pid={} code={} error=\"{}\"",
                hello_.process().pid(), static_cast<int>(why.code()),
                std::string(why.message()));
}

std::chrono::milliseconds Delivery::WaitAfter(const absl::Status& why) {
  // A daemon that starts again writes its new token only once it listens. Who
  // comes in between still has the old one, and comes back soon.
  if (why.code() == absl::StatusCode::kUnauthenticated) ++tokens_refused_;
  if (awaits_token()) return backoff_;
  return IsUnwelcome(why) ? kRetryUnwelcome : backoff_;
}

// Finds the batch that the server refuses, since a server does not say which
// message it means. If several batches were in flight, they go one by one from
// here on, and only a batch that ends the stream alone, kMaxStrikes times, is
// given up. If none was in flight, the server means the reports or the goodbye,
// which cannot be left out.
void Delivery::Blame() {
  ++strikes_;
  if (outbox_->sent() > 1) {
    careful_ = true;
    strikes_ = 0;
  } else if (strikes_ < kMaxStrikes) {
    return;
  } else if (outbox_->sent() == 1) {
    spdlog::error("the server does not take a batch of process {}: {}",
                  hello_.process().pid(), std::string(last_error_.message()));
    outbox_->DropFirst();
    strikes_ = 0;
  } else {
    state_ = State::kRefused;  // reports or goodbye
  }
}

void Delivery::TellLost() {
  const uint64_t lost = outbox_->TakeLostBatches();
  if (lost == 0) return;
  spdlog::error("{} batches of process {} are lost, damaged or refused", lost,
                hello_.process().pid());
}

// Batches first, then the goodbye or the counters. The goodbye waits until all
// batches are sent, so that the server knows the end of the records.
bool Delivery::SendOne() {
  if (careful_ && outbox_->sent() > 0) return false;
  if (SendBatch()) return true;
  // The last message: the server takes none behind it.
  if (goodbye_.has_value()) {
    if (goodbye_sent_ || !outbox_->all_sent()) return false;
    v1::IngestRequest request;
    *request.mutable_goodbye() = *goodbye_;
    stream_->Send(std::move(request));
    goodbye_sent_ = true;
    return true;
  }
  return SendReports();
}

bool Delivery::SendBatch() {
  std::optional<v1::Batch> batch = outbox_->NextToSend();
  if (!batch.has_value()) return false;
  v1::IngestRequest request;
  *request.mutable_batch() = *std::move(batch);
  stream_->Send(std::move(request));
  return true;
}

bool Delivery::SendReports() {
  // While batches go one by one nothing else must be in flight that could be
  // meant.
  if (reports_sent_ || careful_) return false;
  v1::IngestRequest request;
  *request.mutable_ring_reports() = reports_;
  stream_->Send(std::move(request));
  reports_sent_ = true;
  return true;
}

}  // namespace traincheck::agent
