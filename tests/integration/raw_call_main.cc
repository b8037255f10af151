// Calls any method of the daemon with any bytes as messages, for tests that
// say what no client of ours would.
//
//   raw_call ADDRESS /traincheck.v1.Ingest/Stream [CALLS [hold]]
//
// TRAINCHECK_TLS_CA and TRAINCHECK_TOKEN_FILE mean what they mean to clients.
//
// stdin: messages, each as its length (u32, little-endian) and its bytes. They
// are sent as they come; the end of stdin half-closes the call, which is open
// until then. stdout, after that: a line "reply HEX" for each reply, and
// "status CODE HEX" (the code as a number, the message's bytes).
//
// CALLS: so many at once, each on a connection of its own, with the same
// messages. `hold`: one message; a line "open" once the daemon has begun to
// answer each call, and at the end of stdin those that are open are cancelled.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "base/credentials.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/grpcpp.h"

namespace {

std::string Flat(const grpc::ByteBuffer& buffer) {
  std::vector<grpc::Slice> slices;
  std::string bytes;
  if (!buffer.Dump(&slices).ok()) return bytes;
  for (const grpc::Slice& slice : slices) {
    bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  return bytes;
}

std::string Hex(const std::string& bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string hex;
  for (unsigned char byte : bytes) {
    hex += kDigits[byte >> 4];
    hex += kDigits[byte & 15];
  }
  return hex;
}

bool ReadFrame(std::string* bytes) {
  uint32_t size = 0;
  if (!std::cin.read(reinterpret_cast<char*>(&size), sizeof size)) return false;
  bytes->resize(size);
  return size == 0 || std::cin.read(bytes->data(), size).good();
}

class Call {
 public:
  Call(const std::shared_ptr<grpc::Channel>& channel, const std::string& method)
      : stub_(channel), stream_(stub_.PrepareCall(&context_, method, &queue_)) {
    stream_->StartCall(this);
    ok_ = Wait();
  }

  // Two halves, so that many calls send at once. A call that is over takes
  // nothing more.
  void BeginWrite(const grpc::Slice& slice) {
    if (ok_) stream_->Write(grpc::ByteBuffer(&slice, 1), this);
  }
  void EndWrite() {
    if (ok_) ok_ = Wait();
  }

  // Asks for the status at once: one that has come is not lost by Cancel.
  void AwaitOpen() {
    stream_->ReadInitialMetadata(this);
    Wait();
    stream_->Finish(&status_, this);
    is_ending_ = true;
  }
  void Cancel() { context_.TryCancel(); }

  grpc::Status Finish() {
    if (is_ending_) {
      Wait();
      return status_;
    }
    if (ok_) {
      stream_->WritesDone(this);
      Wait();
    }
    grpc::ByteBuffer reply;
    for (stream_->Read(&reply, this); Wait(); stream_->Read(&reply, this)) {
      std::printf("reply %s\n", Hex(Flat(reply)).c_str());
      std::fflush(stdout);
    }
    stream_->Finish(&status_, this);
    Wait();
    return status_;
  }

 private:
  bool Wait() {
    void* tag;
    bool ok = false;
    return queue_.Next(&tag, &ok) && ok;
  }

  grpc::ClientContext context_;
  grpc::CompletionQueue queue_;
  grpc::GenericStub stub_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> stream_;
  grpc::Status status_;
  bool ok_ = false;
  bool is_ending_ = false;
};

using Calls = std::vector<std::unique_ptr<Call>>;

// False if there is no next message.
bool SendNext(const Calls& calls) {
  std::string bytes;
  if (!ReadFrame(&bytes)) return false;
  const grpc::Slice slice(bytes);
  for (const auto& call : calls) call->BeginWrite(slice);
  for (const auto& call : calls) call->EndWrite();
  return true;
}

void Hold(const Calls& calls) {
  SendNext(calls);
  for (const auto& call : calls) call->AwaitOpen();
  std::printf("open\n");
  std::fflush(stdout);
  std::string rest;
  while (std::getline(std::cin, rest)) {
  }
  for (const auto& call : calls) call->Cancel();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3 || argc > 5) {
    std::fprintf(stderr, "usage: %s ADDRESS METHOD [CALLS [hold]]\n", argv[0]);
    return EXIT_FAILURE;
  }
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  Calls calls;
  for (int i = 0; i < (argc > 3 ? std::atoi(argv[3]) : 1); ++i) {
    const auto channel = traincheck::MakeChannel(
        argv[1], arguments, traincheck::ClientFilesOf(std::getenv));
    if (!channel.ok()) {
      std::fprintf(stderr, "%s\n", channel.status().ToString().c_str());
      return EXIT_FAILURE;
    }
    calls.push_back(std::make_unique<Call>(*channel, argv[2]));
  }
  if (argc > 4) {
    Hold(calls);
  } else {
    while (SendNext(calls)) {
    }
  }
  for (const auto& call : calls) {
    const grpc::Status status = call->Finish();
    std::printf("status %d %s\n", status.error_code(),
                Hex(status.error_message()).c_str());
  }
  return EXIT_SUCCESS;
}
