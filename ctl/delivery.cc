#include "ctl/delivery.h"

#include <chrono>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/credentials.h"
#include "grpcpp/grpcpp.h"
#include "proto/traincheck/v1/ingest.grpc.pb.h"
#include "zstd.h"

namespace traincheck::ctl {
namespace {

// Batches that may be under way. Answers are read no later than after so many,
// or the server could not write any more and would wait for us.
constexpr uint64_t kMaxUnderWay = 8;
constexpr int kCompressionLevel = 1;
// Of one process; only a server that hangs takes so long.
constexpr std::chrono::hours kTimeLimit{1};

absl::Status ToAbsl(const grpc::Status& status) {
  // Asked only where an answer is missing: a stream that ended in order has not
  // stored what was sent.
  if (status.ok()) return absl::UnavailableError("the server ended the stream");
  if (status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED) {
    return absl::UnavailableError("no answer in time");
  }
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

struct Delivery::Impl {
  using Stream = grpc::ClientReaderWriter<v1::IngestRequest, v1::IngestReply>;

  std::unique_ptr<v1::Ingest::Stub> stub;
  std::unique_ptr<ZSTD_CCtx, FreeContext> zstd;
  // Of the process at hand.
  std::unique_ptr<grpc::ClientContext> context;
  std::unique_ptr<Stream> stream;
  bool welcome = false;
  bool goodbye = false;
  uint64_t next_batch = 0;  // all below are stored
  uint64_t next_wanted = 0;

  // Why the stream takes or gives no more. Finish may be called once for a
  // stream, so an object that has failed is not used again.
  absl::Status Broken() {
    return stream ? ToAbsl(stream->Finish())
                  : absl::UnavailableError("no stream is open");
  }

  absl::Status Write(const v1::IngestRequest& request) {
    if (stream && stream->Write(request)) return absl::OkStatus();
    return Broken();
  }

  // Takes one answer.
  absl::Status ReadOne() {
    v1::IngestReply reply;
    if (!stream->Read(&reply)) return Broken();
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
    const std::string& address) {
  auto channel = MakeChannel(address, grpc::ChannelArguments(),
                             ClientFilesOf(std::getenv));
  if (!channel.ok()) return channel.status();
  auto impl = std::make_unique<Impl>();
  impl->stub = v1::Ingest::NewStub(*channel);
  impl->zstd.reset(ZSTD_createCCtx());
  ZSTD_CCtx_setParameter(impl->zstd.get(), ZSTD_c_checksumFlag, 1);
  ZSTD_CCtx_setParameter(impl->zstd.get(), ZSTD_c_compressionLevel,
                         kCompressionLevel);
  return std::unique_ptr<Delivery>(new Delivery(std::move(impl)));
}

absl::Status Delivery::Begin(const v1::Hello& hello) {
  impl_->context = std::make_unique<grpc::ClientContext>();
  impl_->context->set_deadline(std::chrono::system_clock::now() + kTimeLimit);
  impl_->stream = impl_->stub->Stream(impl_->context.get());
  impl_->welcome = impl_->goodbye = false;
  impl_->next_batch = impl_->next_wanted = 0;
  v1::IngestRequest request;
  *request.mutable_hello() = hello;
  absl::Status status = impl_->Write(request);
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
  impl_->stream->WritesDone();
  const grpc::Status end = impl_->stream->Finish();
  impl_->stream.reset();
  impl_->context.reset();
  return end.ok() ? absl::OkStatus() : ToAbsl(end);
}

}  // namespace traincheck::ctl
