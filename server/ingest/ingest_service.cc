#include "server/ingest/ingest_service.h"

#include <malloc.h>

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/logging.h"
#include "base/printable_text.h"
#include "server/ingest/session.h"
#include "server/status/status_for_service.h"

namespace traincheck::server {
namespace {

// Between two looks at whether the streams may go on.
constexpr absl::Duration kLookPeriod = absl::Milliseconds(500);
// Between two looks at memory that may be given back.
constexpr absl::Duration kHeapPeriod = absl::Seconds(1);

// gRPC's own limit for the port is higher, since clients import sets
// (kMaxReceiveBytes).
absl::Status CheckSize(size_t bytes) {
  if (bytes <= kMaxMessageBytes) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(
      "IngestRequest has ", bytes, " bytes, the limit is ", kMaxMessageBytes));
}

const absl::Status& NoGoodbye() {
  static const absl::Status& status = *new absl::Status(
      absl::StatusCode::kInvalidArgument, "the stream ended before Goodbye");
  return status;
}

// Takes the bytes. Those of a message over the limit are let go before anything
// is made of them.
absl::StatusOr<v1::IngestRequest> ParseUntrusted(grpc::ByteBuffer* bytes) {
  v1::IngestRequest request;
  absl::Status status = CheckSize(bytes->Length());
  if (status.ok() && !grpc::SerializationTraits<v1::IngestRequest>::Deserialize(
                          bytes, &request)
                          .ok()) {
    status = absl::InvalidArgumentError("a message is not an IngestRequest");
  }
  bytes->Clear();
  if (!status.ok()) return status;
  return request;
}

grpc::ByteBuffer ToBytes(const v1::IngestReply& reply) {
  grpc::ByteBuffer bytes;
  bool owned = false;
  // Fails only for what is over 2 GiB.
  (void)grpc::SerializationTraits<v1::IngestReply>::Serialize(reply, &bytes,
                                                              &owned);
  return bytes;
}

}  // namespace

// One stream. The service's set and gRPC's callbacks share it: it lives until
// OnDone has run and nobody uses it any more.
//
// Threads: gRPC's callbacks, Pump and End may come at once.
class IngestReactor final
    : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>,
      public std::enable_shared_from_this<IngestReactor> {
  // Only Begin makes streams.
  struct Key {};

 public:
  IngestReactor(Key, IngestService* service,
                const grpc::CallbackServerContext& context)
      : service_(*service),
        peer_(context.peer()),
        // Kept for later looks at its token: the context is gRPC's.
        caller_(service->gate_.CallerOf(context)),
        opened_(absl::Now()) {}

  // A stream that has its session and waits for the first message: others may
  // know it from here on.
  static std::shared_ptr<IngestReactor> Begin(
      IngestService* service, const grpc::CallbackServerContext& context) {
    auto stream = std::make_shared<IngestReactor>(Key(), service, context);
    // Not in the constructor, because callbacks need weak_from_this.
    stream->session_ =
        std::make_unique<Session>(service->sessions_, stream->caller_.owner,
                                  [weak = stream->weak_from_this()] {
                                    if (const auto alive = weak.lock())
                                      alive->Pump();
                                  });
    stream->StartRead(&stream->request_);
    return stream;
  }

  // Ends the stream once the write that is under way is done.
  void End(const absl::Status& status) {
    absl::MutexLock lock(&mutex_);
    EndLocked(status);
  }

  // Ends a stream that another has taken over from, even if it says nothing.
  void EndIfReplaced() {
    if (absl::Status s = session_->CheckCurrent(); !s.ok()) End(s);
  }

  // Ends a stream whose token was revoked or has expired.
  void EndIfUnknown() {
    if (absl::Status s = service_.gate_.CheckStillValid(caller_); !s.ok()) {
      End(s);
    }
  }

  const std::string& owner() const { return caller_.owner; }
  // Has said no Hello, and none waits to be taken.
  bool silent() {
    absl::MutexLock lock(&taking_);
    return !session_->greeted() && !has_come_;
  }
  absl::Time opened() const { return opened_; }

  void OnReadDone(bool ok) override {
    if (!ok) {
      // A relay may close its side behind Goodbye and wait for the answer.
      if (!session_->left()) End(NoGoodbye());
      return;
    }
    {
      absl::MutexLock lock(&taking_);
      has_come_ = true;
    }
    TakeMessage();
  }

  // Takes the message that has come, if one has. Where too much waits for the
  // disk it stays as it came, and the next tick tries again.
  void TakeMessage() {
    {
      absl::MutexLock lock(&taking_);
      if (!has_come_ || is_done_ || is_ending()) return;
      if (!session_->has_room() && request_.Length() > kMaxSmallMessageBytes) {
        return;
      }
      has_come_ = false;
      if (absl::Status s = Receive(); !s.ok()) {
        End(s);
        return;
      }
    }
    {
      absl::MutexLock lock(&mutex_);
      // Only now: gRPC must not write into request_ while it is taken.
      reading_ = false;
    }
    Pump();
  }

  void OnWriteDone(bool ok) override {
    {
      absl::MutexLock lock(&mutex_);
      writing_ = false;
      if (!ok) EndLocked(absl::UnavailableError("the stream broke"));
    }
    Pump();
  }

  void OnCancel() override { End(absl::CancelledError("the relay left")); }

  void OnDone() override {
    {
      absl::MutexLock lock(&taking_);
      is_done_ = true;
      // Under the lock: a tick that is about to hand over a message finds
      // either the session or is_done_.
      session_->Disconnect();
    }
    service_.Remove(shared_from_this());
  }

  // Does what is due: the next reply, the next read, the end.
  void Pump() {
    absl::MutexLock lock(&mutex_);
    // gRPC allows one write at a time; OnWriteDone comes back here for what has
    // become due meanwhile.
    if (finished_ || writing_) return;
    if (session_->finished()) EndLocked(absl::OkStatus());
    if (end_.has_value()) {
      FinishIfIdle();
      return;
    }
    if (std::optional<v1::IngestReply> next = session_->NextReply()) {
      reply_ = ToBytes(*next);
      writing_ = true;
      StartWrite(&reply_);
    }
    // Flow control: without a read under way gRPC closes the window, and the
    // relay keeps what it has.
    if (!reading_ && session_->may_read()) {
      reading_ = true;
      StartRead(&request_);
    }
  }

 private:
  absl::Status Receive() ABSL_EXCLUSIVE_LOCKS_REQUIRED(taking_) {
    const absl::StatusOr<v1::IngestRequest> request = ParseUntrusted(&request_);
    if (absl::IsResourceExhausted(request.status())) {
      service_.heap_has_grown_ = true;
    }
    if (!request.ok()) return request.status();
    // Its token was revoked between the look at the call and the making of this
    // stream: the run would belong to nobody.
    if (caller_.role == v1::ROLE_UNSPECIFIED) {
      return absl::UnauthenticatedError("the token was revoked");
    }
    return session_->Receive(*request);
  }

  bool is_ending() {
    absl::MutexLock lock(&mutex_);
    return end_.has_value();
  }

  void EndLocked(const absl::Status& status)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    // The first reason counts: what breaks behind it is its consequence.
    if (end_.has_value()) return;
    end_ = status;
    if (!status.ok() && service_.ends_.Allows(absl::Now())) {
      spdlog::info("stream ends peer={} code={} message={}", peer_,
                   absl::StatusCodeToString(status.code()),
                   QuotePrintable(std::string(status.message())));
    }
    FinishIfIdle();
  }

  // gRPC wants no Finish while a write is under way; OnWriteDone comes back.
  void FinishIfIdle() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (writing_ || finished_) return;
    finished_ = true;
    Finish(ToGrpc(*end_));
  }

  IngestService& service_;
  const std::string peer_;
  const Caller caller_;
  const absl::Time opened_;
  std::unique_ptr<Session> session_;
  // gRPC's while it reads, then of whoever holds taking_.
  grpc::ByteBuffer request_;
  grpc::ByteBuffer reply_;  // gRPC's while writing_
  // Held while the session is given a message or told of the end: a callback
  // and a tick may meet. Taken before mutex_.
  absl::Mutex taking_ ABSL_ACQUIRED_BEFORE(mutex_);
  bool has_come_ ABSL_GUARDED_BY(taking_) = false;  // a message, in request_
  bool is_done_ ABSL_GUARDED_BY(taking_) = false;
  absl::Mutex mutex_;
  // From StartRead until the message is taken.
  bool reading_ ABSL_GUARDED_BY(mutex_) = true;
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  // Why the stream is to end, if it is.
  std::optional<absl::Status> end_ ABSL_GUARDED_BY(mutex_);
  // Finish was called: nothing more may be started.
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
};

IngestService::IngestService(Registry* registry, RunPlans* plans,
                             const Gate* gate, std::string store_id,
                             const Options& options)
    : gate_(*gate),
      options_(options),
      sessions_{registry, plans, std::move(store_id),
                std::make_shared<ByteBudget>(options.max_unsynced_bytes),
                std::make_shared<BatchPace>()} {}

IngestService::~IngestService() = default;

grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>*
IngestService::Stream(grpc::CallbackServerContext* context) {
  auto stream = IngestReactor::Begin(this, *context);
  absl::Status may;
  {
    absl::MutexLock lock(&mutex_);
    // Under the lock of Stop: a stream is either refused here or in the set
    // that Stop ends.
    may = stopping_ ? absl::UnavailableError("traincheckd is stopping")
                    : CheckRoom(stream->owner());
    // Also one that is refused: OnDone takes it out again.
    streams_.insert(stream);
    ++streams_of_[stream->owner()];
    sessions_.pace->SetStreams(streams_.size());
  }
  if (!may.ok()) stream->End(may);
  // gRPC uses it until OnDone; streams_ keeps it alive so long.
  return stream.get();
}

absl::Status IngestService::CheckRoom(const std::string& owner) const {
  if (streams_.size() >= options_.max_streams) {
    return absl::ResourceExhaustedError(
        absl::StrCat(options_.max_streams,
                     " streams are open, which is the limit of this daemon"));
  }
  const auto at = streams_of_.find(owner);
  if (owner.empty() || at == streams_of_.end() ||
      at->second < options_.max_streams_of_owner) {
    return absl::OkStatus();
  }
  return absl::ResourceExhaustedError(
      absl::StrCat(options_.max_streams_of_owner, " streams of owner ", owner,
                   " are open, which is the limit of an owner"));
}

void IngestService::EndIfOver(IngestReactor* stream, absl::Time now) const {
  if (now - stream->opened() > options_.hello_timeout && stream->silent()) {
    stream->End(absl::DeadlineExceededError(absl::StrCat(
        "no Hello within ", absl::FormatDuration(options_.hello_timeout))));
  }
  stream->EndIfReplaced();
  stream->EndIfUnknown();
}

void IngestService::Tick(absl::Time now) {
  // A clock that is set back must not put the look off.
  const bool look = now - looked_ >= kLookPeriod || now < looked_;
  if (look) looked_ = now;
  // Nobody wakes a stream when others have given back their part of the budget,
  // so each tick tries.
  const bool try_again = sessions_.budget->TakeWasUsedUp();
  if (look || try_again) {
    for (const std::shared_ptr<IngestReactor>& stream : Streams()) {
      if (look) EndIfOver(stream.get(), now);
      if (try_again) stream->TakeMessage();
      if (try_again) stream->Pump();
    }
  }
  if (now - heap_trimmed_ >= kHeapPeriod && heap_has_grown_.exchange(false)) {
    heap_trimmed_ = now;
    malloc_trim(0);
  }
  if (const uint64_t left_out = ends_.TakeLeftOut(now)) {
    spdlog::info("further streams have ended streams={}", left_out);
  }
}

void IngestService::Stop() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  for (const std::shared_ptr<IngestReactor>& stream : Streams()) {
    stream->End(absl::UnavailableError("traincheckd is stopping"));
  }
}

void IngestService::Remove(const std::shared_ptr<IngestReactor>& stream) {
  absl::MutexLock lock(&mutex_);
  streams_.erase(stream);
  sessions_.pace->SetStreams(streams_.size());
  const auto at = streams_of_.find(stream->owner());
  if (at != streams_of_.end() && --at->second == 0) streams_of_.erase(at);
}

std::vector<std::shared_ptr<IngestReactor>> IngestService::Streams() const {
  absl::MutexLock lock(&mutex_);
  // A copy: ends and ticks call back into this object, which takes the lock.
  return {streams_.begin(), streams_.end()};
}

}  // namespace traincheck::server
