#include "server/ingest/session.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "server/ingest/batch_decoder.h"
#include "server/ingest/hello_check.h"
#include "server/ingest/limits.h"
#include "server/ingest/outbox.h"

namespace traincheck::server {
namespace {

// A ring's number makes an entry in the books of the process, so it is bounded
// as in batches.
absl::Status CheckReports(const RingReportList& reports) {
  if (reports.size() > kMaxRingReports) {
    return absl::ResourceExhaustedError(
        absl::StrCat("rings has ", reports.size(), " reports, the limit is ",
                     kMaxRingReports));
  }
  for (const v1::RingReport& report : reports) {
    if (report.ring() > kMaxRing) {
      return absl::ResourceExhaustedError(absl::StrCat(
          "RingReport.ring is ", report.ring(), ", the limit is ", kMaxRing));
    }
  }
  return absl::OkStatus();
}

}  // namespace

Session::Session(const Dependencies& dependencies, std::string owner,
                 std::function<void()> wake)
    : use_(dependencies),
      owner_(std::move(owner)),
      outbox_(
          std::make_shared<ReplyOutbox>(dependencies.pace, std::move(wake))) {}

Session::~Session() = default;

// The order of messages is part of the protocol (session.h). A relay that
// breaks it loses its stream.
absl::Status Session::Receive(const v1::IngestRequest& request) {
  if (left_) {
    return absl::InvalidArgumentError("a message after Goodbye");
  }
  if (!greeted_ && !request.has_hello()) {
    return absl::InvalidArgumentError("the first message must be Hello");
  }
  switch (request.kind_case()) {
    case v1::IngestRequest::kHello:
      return OnHello(request.hello());
    case v1::IngestRequest::kBatch:
      return OnBatch(request.batch());
    case v1::IngestRequest::kRingReports:
      return OnReports(request.ring_reports());
    case v1::IngestRequest::kGoodbye:
      return OnGoodbye(request.goodbye());
    case v1::IngestRequest::KIND_NOT_SET:
      break;
  }
  return absl::InvalidArgumentError(
      "IngestRequest.kind is not set or of a kind that this server does not "
      "know");
}

absl::Status Session::OnHello(v1::Hello hello) {
  if (greeted_) return absl::InvalidArgumentError("a second Hello");
  if (absl::Status s = CheckHelloUntrusted(hello); !s.ok()) return s;
  // Behind the check: an escaped text may be longer than the limit.
  MakePrintable(&hello);
  const absl::StatusOr<uint32_t> format = ChooseFormat(hello);
  if (!format.ok()) return format.status();
  v1::Welcome welcome;
  welcome.set_store_id(use_.store_id);
  welcome.set_format_version(*format);
  welcome.set_credit_bytes(kCreditBytes);
  welcome.set_takes_quiet(true);
  // The Welcome goes out once the run and the process are durable: a relay must
  // not send batches by a cursor that a crash takes back.
  absl::StatusOr<Registry::Opened> opened = use_.registry->Open(
      hello,
      [outbox = outbox_, welcome](const Registry::Opened& stored) mutable {
        welcome.set_next_batch(stored.next_batch);
        welcome.mutable_rings()->Assign(stored.rings.begin(),
                                        stored.rings.end());
        outbox->Welcome(welcome);
      },
      owner_);
  if (!opened.ok()) return opened.status();
  stream_ = opened->stream;
  next_batch_ = opened->next_batch;
  // Behind stream_, which other threads read once this is set.
  greeted_ = true;
  // Behind Open, which makes the run that is subscribed to.
  plan_ = use_.plans->Subscribe(
      stream_.run, [outbox = outbox_](const v1::PlanChange& change) {
        outbox->Plan(change);
      });
  return absl::OkStatus();
}

// A batch over a limit ends the stream; one that does not decode is
// quarantined, and the stream goes on.
absl::Status Session::OnBatch(const v1::Batch& batch) {
  if (absl::Status s = CheckBatchLimits(batch); !s.ok()) return s;
  // A relay sends a batch again if it has not seen the acknowledgement.
  if (batch.number() < next_batch_) {
    outbox_->Repeat();
    return absl::OkStatus();
  }
  const uint64_t bytes = batch.payload().size();
  // Before AddBatch: the store may call back before that returns.
  outbox_->Queued(bytes);
  use_.budget->Take(bytes);
  // The batch is decoded before the call, not under the registry's lock, which
  // all streams share.
  const absl::StatusOr<Registry::Fate> fate = use_.registry->AddBatch(
      stream_, batch, DecodeBatchUntrusted(batch),
      [outbox = outbox_, budget = use_.budget, bytes](uint64_t next_batch) {
        budget->Return(bytes);
        outbox->Stored(next_batch, bytes);
      });
  // In these cases the store does not call the function above.
  if (!fate.ok() || *fate == Registry::Fate::kDuplicate) {
    use_.budget->Return(bytes);
  }
  if (!fate.ok()) return fate.status();
  next_batch_ = batch.number() + 1;
  return absl::OkStatus();
}

absl::Status Session::OnReports(const v1::RingReports& reports) {
  if (absl::Status s = CheckReports(reports.rings()); !s.ok()) return s;
  return use_.registry->Report(stream_, reports);
}

// The relay has delivered all that it will deliver, and says how the process
// ended.
absl::Status Session::OnGoodbye(const v1::Goodbye& goodbye) {
  if (absl::Status s = CheckReports(goodbye.rings()); !s.ok()) return s;
  if (goodbye.end() == v1::END_KIND_UNSPECIFIED) {
    return absl::InvalidArgumentError("Goodbye.end is not set");
  }
  // Before End: its answer may be sent before that returns, and the relay then
  // closes the stream.
  left_ = true;
  return use_.registry->End(
      stream_, goodbye, [outbox = outbox_](uint64_t) { outbox->Goodbye(); });
}

absl::Status Session::CheckCurrent() const {
  return greeted_ ? use_.registry->CheckStream(stream_) : absl::OkStatus();
}

// A stream that said Goodbye, or that another one has replaced, comes here too:
// the registry then has nothing to do.
void Session::Disconnect() {
  // First, so that no plan is published to a stream that is gone.
  plan_.reset();
  if (greeted_) use_.registry->Disconnect(stream_);
}

std::optional<v1::IngestReply> Session::NextReply() { return outbox_->Next(); }

bool Session::may_read() const {
  return outbox_->unsynced_bytes() < kCreditBytes && !use_.budget->used_up();
}

bool Session::finished() const { return outbox_->finished(); }

}  // namespace traincheck::server
