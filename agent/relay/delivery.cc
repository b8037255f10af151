#include "agent/relay/delivery.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "agent/relay/limits.h"
#include "base/logging.h"

namespace traincheck {
namespace {

// Would the server say the same again?
bool IsFinal(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kPermissionDenied:
      return true;
    default:
      return false;
  }
}

}  // namespace

Delivery::Delivery(Dependencies dependencies, v1::Hello hello, Outbox* outbox)
    : dependencies_(std::move(dependencies)),
      hello_(std::move(hello)),
      outbox_(outbox),
      backoff_(kFirstBackoff) {}

void Delivery::SetReports(const std::vector<v1::RingReport>& reports) {
  reports_.mutable_rings()->Assign(reports.begin(), reports.end());
  std::string text = reports_.SerializeAsString();
  if (text != reports_text_) reports_sent_ = false;
  reports_text_ = std::move(text);
}

void Delivery::Turn(TimePoint now) {
  if (state_ == State::kWaiting && now >= next_try_) Open(now);
  if (stream_ != nullptr) Hear(now);
  if (state_ == State::kOpening && now - opened_at_ > kWelcomeTimeout) {
    Break(absl::DeadlineExceededError("the server does not answer"), now);
  }
  while (state_ == State::kOpen && stream_->writable() && SendOne(now)) {
  }
}

void Delivery::Open(TimePoint now) {
  stream_ = std::make_unique<IngestStream>(dependencies_.channel, hello_,
                                           dependencies_.wake);
  state_ = State::kOpening;
  opened_at_ = now;
}

void Delivery::Hear(TimePoint now) {
  const IngestStream::News news = stream_->TakeNews();
  if (news.welcome.has_value()) HearWelcome(*news.welcome, now);
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

void Delivery::HearWelcome(const v1::Welcome& welcome, TimePoint now) {
  if (state_ != State::kOpening) {
    return Break(absl::InternalError("a second Welcome"), now);
  }
  if (!store_id_.empty() && store_id_ != welcome.store_id()) {
    spdlog::warn("the server has a new store old={} new={} first_batch={}",
                 store_id_, welcome.store_id(), welcome.next_batch());
  }
  store_id_ = welcome.store_id();
  const absl::Status status =
      outbox_->Resume(welcome.next_batch(), welcome.credit_bytes());
  if (!status.ok()) return Break(status, now);
  state_ = State::kOpen;
  last_error_ = absl::OkStatus();
  backoff_ = kFirstBackoff;
  goodbye_sent_ = false;
  reports_sent_ = reports_.rings().empty();
  hello_.set_resumes(true);
  spdlog::debug("stream open pid={} next_batch={} held={}",
                hello_.process().pid(), welcome.next_batch(), outbox_->held());
}

void Delivery::HearAcknowledged(const v1::Acknowledged& acknowledged,
                                TimePoint now) {
  if (state_ != State::kOpen) {
    return Break(absl::InternalError("acknowledged before Welcome"), now);
  }
  const absl::Status status = outbox_->Acknowledge(acknowledged.next_batch());
  if (!status.ok()) return Break(status, now);
  if (acknowledged.goodbye() && goodbye_sent_ && outbox_->empty()) {
    state_ = State::kDone;
    stream_.reset();
  } else if (outbox_->must_reopen()) {
    Break(absl::DataLossError("a spooled batch is lost"), now);
  }
}

void Delivery::Break(const absl::Status& why, TimePoint now) {
  stream_.reset();
  outbox_->Disconnect();
  last_error_ = why;
  state_ = IsFinal(why) ? State::kRefused : State::kWaiting;
  next_try_ = now + backoff_;
  backoff_ = std::min(2 * backoff_, kMaxBackoff);
  spdlog::debug("stream broken pid={} code={} error=\"{}\"",
                hello_.process().pid(), static_cast<int>(why.code()),
                std::string(why.message()));
}

bool Delivery::SendOne(TimePoint now) {
  if (SendBatch(now)) return true;
  if (state_ != State::kOpen) return false;
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

bool Delivery::SendBatch(TimePoint now) {
  absl::StatusOr<std::optional<v1::Batch>> batch = outbox_->NextToSend();
  if (!batch.ok()) {
    spdlog::error("spooled records are lost pid={} error=\"{}\"",
                  hello_.process().pid(),
                  std::string(batch.status().message()));
    if (outbox_->must_reopen()) Break(batch.status(), now);
    return false;
  }
  if (!batch->has_value()) return false;
  v1::IngestRequest request;
  *request.mutable_batch() = std::move(**batch);
  stream_->Send(std::move(request));
  return true;
}

bool Delivery::SendReports() {
  if (reports_sent_) return false;
  v1::IngestRequest request;
  *request.mutable_ring_reports() = reports_;
  stream_->Send(std::move(request));
  reports_sent_ = true;
  return true;
}

}  // namespace traincheck
