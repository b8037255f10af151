#include "agent/relay/spool_load.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "agent/relay/unique_fd.h"

namespace traincheck {
namespace {

bool TakeEntry(const SpoolEntryHeader& header, SpoolFile::Offset offset,
               const std::string& payload, LoadedSpool* loaded) {
  loaded->next_number = std::max(loaded->next_number, header.number + 1);
  if (header.kind == static_cast<uint32_t>(SpoolEntryKind::kGoodbye)) {
    return loaded->goodbye.emplace().ParseFromString(payload);
  }
  v1::Batch batch;
  if (header.kind == static_cast<uint32_t>(SpoolEntryKind::kDefinitions)) {
    if (!batch.ParseFromString(payload)) return false;
    loaded->definitions.push_back(
        std::make_shared<const v1::Batch>(std::move(batch)));
    return true;
  }
  if (header.kind != static_cast<uint32_t>(SpoolEntryKind::kBatch) ||
      !batch.ParseFromString(payload)) {
    return false;
  }
  if (header.number < loaded->file->head().header.acknowledged) return true;
  loaded->batches.push_back({.number = header.number,
                             .offset = offset,
                             .payload_bytes = batch.payload().size(),
                             .slices = std::move(*batch.mutable_slices())});
  return true;
}

absl::StatusOr<v1::Hello> HelloOf(const SpoolHead& head,
                                  const std::string& path) {
  v1::Hello hello;
  if (!hello.ParseFromString(head.hello)) {
    return absl::DataLossError(
        absl::StrCat(path, ": its Hello does not parse"));
  }
  hello.set_resumes(true);
  return hello;
}

}  // namespace

absl::StatusOr<LoadedSpool> LoadSpool(SpoolDirectory* directory,
                                      const std::string& path) {
  auto file = SpoolFile::Open(directory, path);
  if (!file.ok()) return file.status();
  absl::StatusOr<v1::Hello> hello = HelloOf((*file)->head(), path);
  if (!hello.ok()) return hello.status();
  LoadedSpool loaded;
  loaded.file = *std::move(file);
  loaded.hello = *std::move(hello);
  loaded.next_number = loaded.file->head().header.acknowledged;
  loaded.damage = loaded.file->Scan(
      [&loaded](const auto& header, auto offset, const auto& payload) {
        return TakeEntry(header, offset, payload, &loaded);
      });
  return loaded;
}

absl::StatusOr<SpoolOwner> ReadSpoolOwner(const std::string& path) {
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!fd.valid()) {
    return absl::UnavailableError(
        absl::StrCat(path, ": ", std::strerror(errno)));
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

std::string SetDamagedAside(const std::string& path) {
  const std::string aside = path + ".damaged";
  return std::rename(path.c_str(), aside.c_str()) == 0 ? aside : path;
}

}  // namespace traincheck
