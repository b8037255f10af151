// A spool file with any bytes, as the next relay or `spool send` finds it: it
// is refused, or all that it is said to hold can be read, and the relay goes
// on behind it.
//
// Input, by its first byte: even, the file itself; odd, parts of one whose
// checksums are made here, because no fuzzer finds a hash: acknowledged i8,
// hello (u8 length), then entries: kind u8, number i8, length u16, payload.
// Numbers below zero are those next to 2^64.
#include <fcntl.h>
#include <unistd.h>

#include <string>

#include "agent/relay/spool_load.h"
#include "agent/relay/unique_fd.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/memory_folder.h"

namespace traincheck::agent {
namespace {

// What one input leaves must not stop those behind it.
constexpr uint64_t kLimit = UINT64_MAX;

template <typename T>
std::string Raw(const T& value) {
  return std::string(reinterpret_cast<const char*>(&value), sizeof value);
}

uint64_t SmallOrHuge(FuzzInput* input) {
  return static_cast<uint64_t>(int64_t{input->Number<int8_t>()});
}

std::string EntryOf(FuzzInput* input) {
  SpoolEntryHeader entry = {};
  entry.kind = input->Byte();
  entry.number = SmallOrHuge(input);
  const std::string payload = input->Bytes(input->Number<uint16_t>());
  entry.payload_bytes = static_cast<uint32_t>(payload.size());
  entry.hash = SpoolEntryHash(entry, payload);
  return Raw(entry) + payload;
}

std::string FileOf(FuzzInput* input) {
  if (input->Byte() % 2 == 0) return input->Rest();
  SpoolHeader head = {};
  head.magic = kSpoolMagic;
  head.version = kSpoolVersion;
  head.acknowledged = SmallOrHuge(input);
  const std::string hello = input->Bytes(input->Byte());
  head.hello_bytes = static_cast<uint32_t>(hello.size());
  head.hello_hash = SpoolHelloHash(hello, head.pid_namespace);
  std::string file = Raw(head) + hello;
  while (!input->empty()) file += EntryOf(input);
  return file;
}

void Write(const std::string& path, const std::string& bytes) {
  const UniqueFd fd(
      open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  Require(fd.valid() && write(fd.get(), bytes.data(), bytes.size()) ==
                            static_cast<ssize_t>(bytes.size()));
}

// Numbers rise, and what was announced is there.
void CheckBatches(const LoadedSpool& loaded) {
  uint64_t lowest = loaded.file->head().header.acknowledged;
  for (const SpooledBatch& batch : loaded.batches) {
    Require(batch.number >= lowest && batch.number < loaded.next_number);
    lowest = batch.number + 1;
    Require(loaded.file->ReadBatch(batch.offset, batch.number).ok());
  }
}

// One batch more, as the relay that found the file appends it.
void GoOn(LoadedSpool loaded, SpoolDirectory* directory) {
  const std::string path = loaded.file->path();
  Require(loaded.file
              ->Append(SpoolEntryKind::kBatch, loaded.next_number,
                       v1::Batch().SerializeAsString())
              .ok());
  loaded.file.reset();
  const auto again = LoadSpool(directory, path);
  Require(again.ok());
  CheckBatches(*again);
  Require(again->damage.torn_bytes == 0);
  Require(again->damage.places == loaded.damage.places);
  Require(again->batches.size() == loaded.batches.size() + 1);
  Require(again->next_number == loaded.next_number + 1);
}

void Load(const std::string& path, SpoolDirectory* directory) {
  const auto owner = ReadSpoolOwner(path);
  auto loaded = LoadSpool(directory, path);
  Require(loaded.ok() == owner.ok());
  if (!loaded.ok()) return Require(!loaded.status().message().empty());
  CheckBatches(*loaded);
  GoOn(*std::move(loaded), directory);
}

}  // namespace
}  // namespace traincheck::agent

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const traincheck::MemoryFolder folder;
  const std::string path = folder.path() + "/f.spool";
  traincheck::FuzzInput input(data, size);
  traincheck::agent::Write(path, traincheck::agent::FileOf(&input));
  traincheck::agent::SpoolDirectory directory(
      traincheck::SpoolPlacesIn(folder.path(), geteuid()),
      traincheck::agent::kLimit);
  traincheck::Require(directory.Prepare().ok());
  traincheck::agent::Load(path, &directory);
  unlink(path.c_str());
  return 0;
}
