// The ring reader on a ring whose writer does what it likes: any header, any
// bytes, any position, changed between the reader's calls and while it reads.
//
// Input: operations, one byte each with the operands behind it.
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <string>

#include "agent/ring/ring_reader.h"
#include "tests/fuzz/fuzz_input.h"

namespace traincheck::agent {
namespace {

constexpr uint64_t kCapacity = kMinRingBytes;
constexpr size_t kFileBytes = kRingHeaderBytes + kCapacity;
constexpr RingHandover kHandover = {kRingMagic, kRingVersion, 1, kCapacity, 7,
                                    8};

// One file for all inputs, as a writer sees it.
class Memory {
 public:
  Memory() : fd_(memfd_create("ring", MFD_CLOEXEC | MFD_ALLOW_SEALING)) {
    Require(fd_ >= 0 && ftruncate(fd_, kFileBytes) == 0);
    void* address =
        mmap(nullptr, kFileBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
    Require(address != MAP_FAILED);
    bytes_ = static_cast<char*>(address);
  }

  void Reset() {
    std::memset(bytes_, 0, kFileBytes);
    RingHeader& to = header();
    to.magic = kHandover.magic;
    to.version = kHandover.version;
    to.ring = kHandover.ring;
    to.capacity_bytes = kHandover.capacity_bytes;
    to.pid = kHandover.pid;
    to.tid = kHandover.tid;
  }

  int fd() const { return fd_; }
  char* bytes() { return bytes_; }
  RingHeader& header() { return *reinterpret_cast<RingHeader*>(bytes_); }
  char* data() { return bytes_ + kRingHeaderBytes; }

 private:
  int fd_;
  char* bytes_;
};

class Play {
 public:
  Play(Memory* memory, FuzzInput* input) : memory_(*memory), input_(*input) {}

  void Run() {
    RingHandover handover = kHandover;
    while (!input_.empty()) {
      const uint8_t operation = input_.Byte();
      if (operation % 16 < 4) {
        Write(operation % 16);
      } else if (!ring_ && operation % 16 == 4) {
        const std::string bytes = input_.Bytes(sizeof handover);
        std::memcpy(&handover, bytes.data(), bytes.size());
      } else if (!ring_) {
        std::string error;
        ring_ = RingReader::Map(memory_.fd(), handover, &error);
        if (!ring_) {
          Require(!error.empty());
          return;
        }
      } else {
        Read(operation % 16);
      }
    }
  }

 private:
  // What the other side does.
  void Write(uint8_t operation) {
    RingHeader& header = memory_.header();
    const uint64_t head = header.head.load();
    if (operation == 0) {
      const size_t at = input_.Byte() % (sizeof(RingHeader) - 8);
      const auto value = input_.Number<uint64_t>();
      std::memcpy(memory_.bytes() + at, &value, sizeof value);
    } else if (operation == 1) {
      Scribble();
    } else if (operation == 2) {
      header.head.store(head + uint64_t{input_.Byte()} * 8);
    } else {
      const std::string bytes = input_.Bytes(input_.Byte());
      for (size_t i = 0; i < bytes.size(); ++i) {
        memory_.data()[(head + i) % kCapacity] = bytes[i];
      }
      header.head.store(head + AlignRecord(bytes.size()));
    }
  }

  void Scribble() {
    const size_t at = input_.Number<uint16_t>() % kCapacity;
    const std::string bytes = input_.Bytes(input_.Byte() % 32);
    std::memcpy(memory_.data() + at, bytes.data(),
                std::min(bytes.size(), kCapacity - at));
  }

  // What the relay does.
  void Read(uint8_t operation) {
    const uint64_t before = ring_->position();
    if (operation < 6) {
      Require(ring_->Refresh() != ring_->quarantined());
    } else if (operation < 11) {
      Take();
    } else if (operation == 11) {
      Require(ring_->Peek(input_.Byte() * 64).size() <= 255 * 64);
    } else if (operation == 12) {
      const uint64_t back = input_.Number<uint16_t>();
      ring_->Release(before - std::min(back, before));
    } else if (operation == 13) {
      ring_->Discard();
    } else {
      volatile uint64_t all = ring_->counters().offered_records +
                              ring_->closed() + ring_->unread_bytes();
      all = all + ring_->unreleased_bytes();
    }
    Require(ring_->position() >= before);
    Require(ring_->unread_bytes() <= kCapacity);
  }

  void Take() {
    const size_t limit = input_.Number<uint16_t>();
    const bool scribbles = limit % 2 == 1;
    std::string out(8, 'x');
    uint32_t records = 0;
    const RingChunk chunk =
        ring_->Take(limit, &out, [&](const RecordReader& record) {
          records += record.type() != RecordType::kPadding;
          if (scribbles) Scribble();
          FieldReader fields = record.Fields();
          while (fields.Next()) {
          }
        });
    Require(chunk.to == ring_->position() && chunk.from <= chunk.to);
    Require(out.size() == 8 + (chunk.to - chunk.from));
    Require(chunk.to - chunk.from <= limit && chunk.records == records);
    // What was taken is records from end to end, whatever changed meanwhile.
    const std::string taken = out.substr(8);
    RecordReader again(taken);
    while (again.Next()) {
    }
    Require(again.ok());
  }

  Memory& memory_;
  FuzzInput& input_;
  std::unique_ptr<RingReader> ring_;
};

}  // namespace
}  // namespace traincheck::agent

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static auto* const memory = new traincheck::agent::Memory;
  traincheck::FuzzInput input(data, size);
  memory->Reset();
  traincheck::agent::Play(memory, &input).Run();
  return 0;
}
