// A spool file whose bytes changed on disk: reading a batch from it gives what
// was appended, or an error, never anything else.
//
// Input: operations, one byte each with the operands behind it.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <iterator>
#include <map>
#include <memory>
#include <string>

#include "agent/relay/spool_file.h"
#include "agent/relay/unique_fd.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/memory_folder.h"

namespace traincheck::agent {
namespace {

constexpr uint64_t kLimit = 1 << 20;

class Play {
 public:
  Play(SpoolDirectory* directory, FuzzInput* input) : input_(*input) {
    auto file = SpoolFile::Create(directory, "f", input_.Bytes(input_.Byte()));
    Require(file.ok());
    file_ = *std::move(file);
    disk_ = UniqueFd(open(file_->path().c_str(), O_RDWR | O_CLOEXEC));
    Require(disk_.valid());
  }
  ~Play() { file_->Remove(); }

  void Run() {
    while (!input_.empty()) {
      const uint8_t operation = input_.Byte();
      if (operation < 64) {
        Append();
      } else if (operation < 128) {
        Read();
      } else {
        Change(operation % 4);
      }
    }
    for (const auto& [offset, batch] : appended_) Read(offset, batch.number);
  }

 private:
  struct Batch {
    uint64_t number = 0;
    std::string payload;
  };

  void Append() {
    const Batch batch = {next_++, input_.Bytes(input_.Byte())};
    const auto offset =
        file_->Append(SpoolEntryKind::kBatch, batch.number, batch.payload);
    if (offset.ok()) appended_[*offset] = batch;
  }

  // Only offsets that Append gave are ever read.
  void Read() {
    if (appended_.empty()) return;
    auto at = appended_.begin();
    std::advance(at, input_.Byte() % appended_.size());
    Read(at->first, input_.Byte());
  }

  void Read(uint64_t offset, uint64_t number) {
    const auto payload = file_->ReadBatch(offset, number);
    if (!payload.ok()) return Require(!payload.status().message().empty());
    // An entry that somebody else made is one too, if its checksum is right.
    const auto found = appended_.find(offset);
    Require(forged_ ||
            (found != appended_.end() && found->second.number == number &&
             found->second.payload == *payload));
  }

  // What happens to files.
  void Change(uint8_t kind) {
    const off_t at = input_.Number<uint16_t>();
    if (kind == 0) {
      Require(ftruncate(disk_.get(), at) == 0);
    } else if (kind == 1) {
      file_->Clear(next_);
      appended_.clear();
    } else if (kind == 2) {
      Write(at, input_.Bytes(input_.Byte() % 32));
    } else {
      // A whole entry, as an attacker makes it.
      SpoolEntryHeader header = {};
      header.payload_bytes = input_.Number<uint32_t>();
      header.kind = 1;
      header.number = input_.Byte();
      const std::string payload = input_.Bytes(input_.Byte());
      header.hash = SpoolEntryHash(header, payload);
      Write(at, std::string(reinterpret_cast<char*>(&header), sizeof header) +
                    payload);
      forged_ = true;
    }
  }

  void Write(off_t at, const std::string& bytes) {
    Require(pwrite(disk_.get(), bytes.data(), bytes.size(), at) ==
            static_cast<ssize_t>(bytes.size()));
  }

  FuzzInput& input_;
  std::unique_ptr<SpoolFile> file_;
  UniqueFd disk_;
  std::map<uint64_t, Batch> appended_;  // by offset
  uint64_t next_ = 0;
  bool forged_ = false;
};

}  // namespace
}  // namespace traincheck::agent

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const traincheck::MemoryFolder folder;
  traincheck::agent::SpoolDirectory directory(
      traincheck::SpoolPlacesIn(folder.path(), geteuid()),
      traincheck::agent::kLimit);
  traincheck::FuzzInput input(data, size);
  traincheck::agent::Play(&directory, &input).Run();
  return 0;
}
