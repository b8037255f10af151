// Calls any method of the daemon with any bytes as messages, for tests that
// say what no client of ours would.
//
//   raw_call ADDRESS /traincheck.v1.Ingest/Stream
//
// TRAINCHECK_TLS_CA and TRAINCHECK_TOKEN_FILE mean what they mean to clients.
//
// stdin: messages, each as its length (u32, little-endian) and its bytes. They
// are sent as they come; the end of stdin half-closes the call, which is open
// until then. stdout, after that: a line "reply HEX" for each reply, and
// "status CODE HEX" (the code as a number, the message's bytes).
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <iostream>
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
  Call(grpc::GenericStub* stub, const std::string& method)
      : stream_(stub->PrepareCall(&context_, method, &queue_)) {
    stream_->StartCall(this);
    ok_ = Wait();
  }

  void WriteAll() {
    std::string bytes;
    while (ReadFrame(&bytes)) {
      if (!ok_) continue;  // the call is over; the reader of stdin goes on
      grpc::Slice slice(bytes);
      stream_->Write(grpc::ByteBuffer(&slice, 1), this);
      ok_ = Wait();
    }
  }

  grpc::Status Finish() {
    if (ok_) {
      stream_->WritesDone(this);
      Wait();
    }
    grpc::ByteBuffer reply;
    for (stream_->Read(&reply, this); Wait(); stream_->Read(&reply, this)) {
      std::printf("reply %s\n", Hex(Flat(reply)).c_str());
      std::fflush(stdout);
    }
    grpc::Status status;
    stream_->Finish(&status, this);
    Wait();
    return status;
  }

 private:
  bool Wait() {
    void* tag;
    bool ok = false;
    return queue_.Next(&tag, &ok) && ok;
  }

  grpc::ClientContext context_;
  grpc::CompletionQueue queue_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> stream_;
  bool ok_ = false;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: %s ADDRESS METHOD\n", argv[0]);
    return EXIT_FAILURE;
  }
  const auto channel =
      traincheck::MakeChannel(argv[1], grpc::ChannelArguments(),
                              traincheck::ClientFilesOf(std::getenv));
  if (!channel.ok()) {
    std::fprintf(stderr, "%s\n", channel.status().ToString().c_str());
    return EXIT_FAILURE;
  }
  grpc::GenericStub stub(*channel);
  Call call(&stub, argv[2]);
  call.WriteAll();
  const grpc::Status status = call.Finish();
  std::printf("status %d %s\n", status.error_code(),
              Hex(status.error_message()).c_str());
  return EXIT_SUCCESS;
}
