#include "ctl/delivery.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "ctl/channel.h"
#include "grpcpp/grpcpp.h"
#include "proto/traincheck/v1/ingest.grpc.pb.h"
#include "zstd.h"

namespace traincheck::ctl {
namespace {

// Batches that may be under way. Answers are read no later than after so many,
// or the server could not write any more and would wait for us.
constexpr uint64_t kMaxUnderWay = 8;
constexpr int kCompressionLevel = 1;

absl::Status ToAbsl(const grpc::Status& status) {
  // Asked only where an answer is missing: a stream that ended in order has not
  // stored what was sent.
  if (status.ok()) return absl::UnavailableError("the server ended the stream");
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()),
                      status.error_message());
}

struct FreeContext {
  void operator()(ZSTD_CCtx* context) const { ZSTD_freeCCtx(context); }
};

// One frame with a checksum of the content.
std::optional<std::string> Compress(ZSTD_CCtx* context,
                                    const std::string& plain) {
  std::string frame(ZSTD_compressBound(plain.size()), '\0');
  const size_t size = ZSTD_compress2(context, frame.data(), frame.size(),
                                     plain.data(), plain.size());
  if (ZSTD_isError(size)) return std::nullopt;
  frame.resize(size);
  return frame;
}

}  // namespace

// gRPC's asynchronous calls, each waited for at once: a call that blocks has
// no other limit than that of the whole stream.
struct Delivery::Impl {
  using Stream =
      grpc::ClientAsyncReaderWriter<v1::IngestRequest, v1::IngestReply>;

  std::chrono::milliseconds answer_timeout;
  std::unique_ptr<v1::Ingest::Stub> stub;
  std::unique_ptr<ZSTD_CCtx, FreeContext> zstd;
  grpc::CompletionQueue queue;  // of the one operation under way
  // Of the process at hand.
  std::unique_ptr<grpc::ClientContext> context;
  std::unique_ptr<Stream> stream;
  bool welcome = false;
  bool goodbye = false;
  bool timed_out = false;
  uint64_t next_batch = 0;  // all below are stored
  uint64_t next_wanted = 0;

  ~Impl() {
    stream.reset();
    context.reset();
    queue.Shutdown();
    void* tag = nullptr;
    bool ok = false;
    while (queue.Next(&tag, &ok)) {
    }
  }

  // Waits for the operation that was just begun; false: the stream is broken,
  // or the server takes too long.
  bool Done() {
    void* tag = nullptr;
    bool ok = false;
    const gpr_timespec deadline = gpr_time_add(
        gpr_now(GPR_CLOCK_MONOTONIC),
        gpr_time_from_millis(answer_timeout.count(), GPR_TIMESPAN));
    if (queue.AsyncNext(&tag, &ok, deadline) ==
        grpc::CompletionQueue::GOT_EVENT) {
      return ok;
    }
    timed_out = true;
    // The operation ends then, and what it uses may go.
    context->TryCancel();
    queue.Next(&tag, &ok);
    return false;
  }

  // How the stream has ended. Finish may be called once for a stream.
  grpc::Status End() {
    grpc::Status status;
    stream->Finish(&status, nullptr);
    Done();
    stream.reset();
    return status;
  }

  // Why the stream takes or gives no more. An object that has failed is not
  // used again.
  absl::Status Broken() {
    if (!stream) return absl::UnavailableError("no stream is open");
    const grpc::Status status = End();
    if (timed_out) return absl::UnavailableError("no answer in time");
    return ToAbsl(status);
  }

  absl::Status Open() {
    context = std::make_unique<grpc::ClientContext>();
    timed_out = false;
    stream = stub->AsyncStream(context.get(), &queue, nullptr);
    return Done() ? absl::OkStatus() : Broken();
  }

  absl::Status Write(const v1::IngestRequest& request) {
    if (!stream) return Broken();
    stream->Write(request, nullptr);
    return Done() ? absl::OkStatus() : Broken();
  }

  // Takes one answer.
  absl::Status ReadOne() {
    v1::IngestReply reply;
    stream->Read(&reply, nullptr);
    if (!Done()) return Broken();
    if (reply.has_welcome()) {
      welcome = true;
      next_wanted = reply.welcome().next_batch();
    } else if (reply.has_acknowledged()) {
      next_batch = reply.acknowledged().next_batch();
      goodbye |= reply.acknowledged().goodbye();
    }  // a plan changes nothing here
    return absl::OkStatus();
  }
};

Delivery::Delivery(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Delivery::~Delivery() {
  // A stream is still open only after an error: the server must not wait for
  // more of it.
  if (impl_->context) impl_->context->TryCancel();
}

absl::StatusOr<std::unique_ptr<Delivery>> Delivery::Make(
    const std::string& address, std::chrono::milliseconds answer_timeout) {
  auto channel = MakeServerChannel(address);
  if (!channel.ok()) return channel.status();
  auto impl = std::make_unique<Impl>();
  impl->answer_timeout = answer_timeout;
  impl->stub = v1::Ingest::NewStub(*channel);
  impl->zstd.reset(ZSTD_createCCtx());
  ZSTD_CCtx_setParameter(impl->zstd.get(), ZSTD_c_checksumFlag, 1);
  ZSTD_CCtx_setParameter(impl->zstd.get(), ZSTD_c_compressionLevel,
                         kCompressionLevel);
  return std::unique_ptr<Delivery>(new Delivery(std::move(impl)));
}

absl::Status Delivery::Begin(const v1::Hello& hello) {
  impl_->welcome = impl_->goodbye = false;
  impl_->next_batch = impl_->next_wanted = 0;
  v1::IngestRequest request;
  *request.mutable_hello() = hello;
  absl::Status status = impl_->Open();
  if (status.ok()) status = impl_->Write(request);
  while (status.ok() && !impl_->welcome) status = impl_->ReadOne();
  // The server wants a later batch than the first: it has met this process, and
  // what would be sent is partly there.
  if (status.ok() && impl_->next_wanted != 0) {
    return absl::AlreadyExistsError(
        absl::StrCat("the server has records of process ",
                     hello.process().pid(), " of run ", hello.run()));
  }
  return status;
}

absl::Status Delivery::Send(const StoredBatch& batch) {
  std::optional<std::string> payload = Compress(impl_->zstd.get(), batch.plain);
  if (!payload) return absl::InternalError("zstd does not compress a batch");
  v1::IngestRequest request;
  v1::Batch& message = *request.mutable_batch();
  message.set_number(batch.number);
  message.set_plain_bytes(static_cast<uint32_t>(batch.plain.size()));
  message.set_payload(*std::move(payload));
  for (const RingSlice& slice : batch.slices) {
    v1::Slice& added = *message.add_slices();
    added.set_ring(slice.ring);
    added.set_from(slice.from);
    added.set_to(slice.to);
    added.set_records(slice.records);
  }
  absl::Status status = impl_->Write(request);
  // All below next_batch are stored, so this bounds what the server holds of
  // ours.
  while (status.ok() && impl_->next_batch + kMaxUnderWay <= batch.number) {
    status = impl_->ReadOne();
  }
  return status;
}

absl::Status Delivery::End(const std::vector<v1::RingReport>& rings) {
  v1::IngestRequest request;
  v1::Goodbye& goodbye = *request.mutable_goodbye();
  // A trace does not record how its process ended.
  goodbye.set_end(v1::END_KIND_CLEAN);
  goodbye.mutable_rings()->Assign(rings.begin(), rings.end());
  absl::Status status = impl_->Write(request);
  // The server answers in order, so the answer to the goodbye says that all
  // batches before it are stored.
  while (status.ok() && !impl_->goodbye) status = impl_->ReadOne();
  if (!status.ok()) return status;
  impl_->stream->WritesDone(nullptr);
  impl_->Done();  // a server that has ended the stream needs none
  const grpc::Status end = impl_->End();
  impl_->context.reset();
  if (impl_->timed_out) return absl::UnavailableError("no answer in time");
  return end.ok() ? absl::OkStatus() : ToAbsl(end);
}

}  // namespace traincheck::ctl
