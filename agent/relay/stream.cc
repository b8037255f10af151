#include "agent/relay/stream.h"

#include <mutex>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "agent/relay/limits.h"
#include "grpcpp/channel.h"
#include "grpcpp/client_context.h"
#include "grpcpp/support/client_callback.h"
#include "proto/traincheck/v1/ingest.grpc.pb.h"

namespace traincheck::agent {

absl::StatusOr<std::shared_ptr<grpc::Channel>> MakeRelayChannel(
    const std::string& address, const ClientFiles& files) {
  grpc::ChannelArguments arguments;
  // A host that vanishes closes no connection: pings find out. They go on
  // without data (0: no limit), because a training may be quiet for long.
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepalive.count());
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeout.count());
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  // Every open stream of ours may retry, so the channel's own back-off only
  // has to be shorter. The minimum is also the time to connect.
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS,
                   kFirstBackoff.count());
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, kMaxBackoff.count() / 2);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS,
                   kKeepaliveTimeout.count());
  return MakeChannel(address, arguments, files);
}

namespace {

// How gRPC's own message begins when it breaks a stream off; the daemon's
// messages never begin so.
constexpr absl::string_view kBrokenOff = "Received RST_STREAM";

// A daemon's gRPC that is short of memory breaks streams off with the code that
// the daemon itself uses for messages over a limit. No message is to blame.
absl::Status ToStatus(const grpc::Status& status) {
  if (status.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED &&
      absl::StartsWith(status.error_message(), kBrokenOff)) {
    return absl::UnavailableError(absl::StrCat(
        "the server has too much to hold: ", status.error_message()));
  }
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()),
                      status.error_message());
}

}  // namespace

// The reactor of one call. It holds itself until OnDone, and the loop's
// IngestStream holds it, too. While the loop may still write, the call has a
// hold, so that a write is legal even if the stream is already broken.
class IngestStream::Call final
    : public grpc::ClientBidiReactor<v1::IngestRequest, v1::IngestReply> {
 public:
  // Runs on the loop's thread.
  static std::shared_ptr<Call> Start(
      const std::shared_ptr<grpc::Channel>& channel, const v1::Hello& hello,
      std::function<void()> wake) {
    auto call = std::make_shared<Call>(channel, std::move(wake));
    call->self_ = call;
    *call->request_.mutable_hello() = hello;
    call->stub_->async()->Stream(&call->context_, call.get());
    // What begins before StartCall waits for it: no callback comes before all
    // of this is done.
    call->AddHold();
    call->StartWrite(&call->request_);
    call->StartRead(&call->reply_);
    call->StartCall();
    return call;
  }

  Call(const std::shared_ptr<grpc::Channel>& channel,
       std::function<void()> wake)
      : stub_(v1::Ingest::NewStub(channel)), wake_(std::move(wake)) {}

  // Everything up to OnWriteDone runs on the loop's thread, what follows on
  // gRPC's threads. The mutex guards what both use; nothing waits under it.
  News TakeNews() {
    bool readable;
    News news;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      news = std::exchange(news_, {});
      readable = readable_;
    }
    // The last read has failed, so nothing is written any more and OnDone may
    // come.
    if (!readable) DropHold();
    return news;
  }

  // The loop's hold is what makes a write legal; without it the call may be
  // over at any moment.
  bool writable() {
    std::lock_guard<std::mutex> lock(mutex_);
    return held_ && readable_ && !writing_;
  }

  // REQUIRES: writable(). gRPC reads request_ until OnWriteDone.
  void Send(v1::IngestRequest request) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      writing_ = true;
    }
    request_ = std::move(request);
    StartWrite(&request_);
  }

  // The stream is over for the loop. The call may go on for a while and then
  // destroys itself.
  void Abandon() {
    context_.TryCancel();
    DropHold();
  }

  // gRPC's side.
  void OnWriteDone(bool ok) override {
    // A failed write is followed by a failed read, which says it all.
    {
      std::lock_guard<std::mutex> lock(mutex_);
      writing_ = false;
    }
    wake_();
  }

  void OnReadDone(bool ok) override {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      if (ok) {
        NoteReply();
      } else {
        readable_ = false;
      }
    }
    // Only behind NoteReply: from here on the reply is gRPC's again.
    if (ok) StartRead(&reply_);
    wake_();
  }

  void OnDone(const grpc::Status& status) override {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      news_.ended = ToStatus(status);
    }
    wake_();
    // May destroy the object: nothing may come behind it.
    self_.reset();
  }

 private:
  // A newer message replaces an older one that the loop has not seen: cursors
  // and plans only grow.
  void NoteReply() {
    if (reply_.has_welcome()) {
      news_.welcome = std::move(*reply_.mutable_welcome());
    } else if (reply_.has_acknowledged()) {
      news_.acknowledged = std::move(*reply_.mutable_acknowledged());
    } else if (reply_.has_plan_change()) {
      news_.plan = std::move(*reply_.mutable_plan_change());
    }
  }

  // Only the loop's thread comes here, so held_ needs no lock.
  void DropHold() {
    if (std::exchange(held_, false)) RemoveHold();
  }

  const std::unique_ptr<v1::Ingest::Stub> stub_;
  const std::function<void()> wake_;
  grpc::ClientContext context_;
  v1::IngestRequest request_;  // gRPC's while writing_
  v1::IngestReply reply_;      // gRPC's while readable_
  std::shared_ptr<Call> self_;
  bool held_ = true;  // the loop's

  std::mutex mutex_;  // guards what follows
  bool writing_ = true;
  bool readable_ = true;
  News news_;
};

IngestStream::IngestStream(const std::shared_ptr<grpc::Channel>& channel,
                           const v1::Hello& hello, std::function<void()> wake)
    : call_(Call::Start(channel, hello, std::move(wake))) {}

IngestStream::~IngestStream() { call_->Abandon(); }

IngestStream::News IngestStream::TakeNews() { return call_->TakeNews(); }

bool IngestStream::writable() const { return call_->writable(); }

void IngestStream::Send(v1::IngestRequest request) {
  call_->Send(std::move(request));
}

}  // namespace traincheck::agent
