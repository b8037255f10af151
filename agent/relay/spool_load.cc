#include "agent/relay/spool_load.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "agent/relay/unique_fd.h"

namespace traincheck::agent {
namespace {

// Takes the entries of a file as a scan shows them, and keeps of each batch
// only where it lies: payloads stay on disk.
class Taker {
 public:
  explicit Taker(LoadedSpool* loaded) : loaded_(*loaded) {}

  // False: no relay appends such an entry there. An entry's checksum does not
  // show where the entry belongs, and the server's cursor counts by these
  // numbers.
  bool Take(const SpoolEntryHeader& header, SpoolFile::Offset offset,
            const std::string& payload) {
    if (header.kind == static_cast<uint32_t>(SpoolEntryKind::kDefinitions)) {
      return TakeDefinitions(payload);
    }
    if (header.number < lowest_ || header.number >= kSpoolNumberEnd) {
      return false;
    }
    lowest_ = header.number + 1;
    loaded_.next_number = std::max(loaded_.next_number, lowest_);
    if (header.kind == static_cast<uint32_t>(SpoolEntryKind::kGoodbye)) {
      return TakeGoodbye(payload);
    }
    return header.kind == static_cast<uint32_t>(SpoolEntryKind::kBatch) &&
           TakeBatch(header.number, offset, payload);
  }

 private:
  // These come after the batches in the file and are sent before them.
  bool TakeDefinitions(const std::string& payload) {
    v1::Batch batch;
    if (!batch.ParseFromString(payload)) return false;
    loaded_.definitions.push_back(
        std::make_shared<const v1::Batch>(std::move(batch)));
    return true;
  }

  bool TakeGoodbye(const std::string& payload) {
    v1::Goodbye goodbye;
    if (!goodbye.ParseFromString(payload)) return false;
    loaded_.goodbye = std::move(goodbye);
    return true;
  }

  bool TakeBatch(uint64_t number, SpoolFile::Offset offset,
                 const std::string& payload) {
    v1::Batch batch;
    if (!batch.ParseFromString(payload)) return false;
    // Stored, and not cleared away before its relay died.
    if (number < loaded_.file->head().header.acknowledged) return true;
    loaded_.batches.push_back({.number = number,
                               .offset = offset,
                               .payload_bytes = batch.payload().size(),
                               .slices = std::move(*batch.mutable_slices())});
    return true;
  }

  LoadedSpool& loaded_;
  uint64_t lowest_ = 0;  // above all numbers so far
};

// The Hello of the process, as the relay that wrote the file knew it.
absl::StatusOr<v1::Hello> HelloOf(const SpoolHead& head,
                                  const std::string& path) {
  v1::Hello hello;
  if (!hello.ParseFromString(head.hello)) {
    return absl::DataLossError(
        absl::StrCat(path, ": its Hello does not parse"));
  }
  // The relay that wrote the file may have had a stream, in which the server
  // still believes.
  hello.set_resumes(true);
  return hello;
}

}  // namespace

// Takes the lock; the file is the caller's until it closes or removes it.
absl::StatusOr<LoadedSpool> LoadSpool(SpoolDirectory* directory,
                                      const std::string& path) {
  auto file = SpoolFile::Open(directory, path);
  if (!file.ok()) return file.status();
  absl::StatusOr<v1::Hello> hello = HelloOf((*file)->head(), path);
  if (!hello.ok()) return hello.status();
  LoadedSpool loaded;
  loaded.file = *std::move(file);
  loaded.hello = *std::move(hello);
  // Numbers of batches that are gone from the file are not given again.
  loaded.next_number = loaded.file->head().header.acknowledged;
  Taker taker(&loaded);
  loaded.damage = loaded.file->Scan(
      [&taker](const auto& header, auto offset, const auto& payload) {
        return taker.Take(header, offset, payload);
      });
  return loaded;
}

absl::StatusOr<SpoolOwner> ReadSpoolOwner(const std::string& path) {
  // Without the lock, which a living relay holds: what is read here never
  // changes once it is written.
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!fd.valid()) {
    return absl::ErrnoToStatus(errno, path);
  }
  const absl::StatusOr<SpoolHead> head = ReadSpoolHead(fd.get());
  if (!head.ok()) {
    return absl::Status(head.status().code(),
                        absl::StrCat(path, ": ", head.status().message()));
  }
  absl::StatusOr<v1::Hello> hello = HelloOf(*head, path);
  if (!hello.ok()) return hello.status();
  return SpoolOwner{*std::move(hello), head->header.pid_namespace};
}

// The name no longer ends in .spool, so no relay looks at the file again, and
// nothing is deleted.
std::string SetDamagedAside(const std::string& path) {
  const std::string aside = path + ".damaged";
  return std::rename(path.c_str(), aside.c_str()) == 0 ? aside : path;
}

}  // namespace traincheck::agent
