#include "agent/relay/spool_file.h"

#include <fcntl.h>
#include <unistd.h>
#include <xxhash.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "agent/relay/limits.h"

namespace traincheck {
namespace {

// All bytes or false.
bool WriteAt(int fd, const void* from, size_t bytes, uint64_t offset) {
  const char* at = static_cast<const char*>(from);
  while (bytes > 0) {
    const ssize_t n = pwrite(fd, at, bytes, static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    at += n;
    bytes -= static_cast<size_t>(n);
    offset += static_cast<uint64_t>(n);
  }
  return true;
}

bool ReadAt(int fd, void* to, size_t bytes, uint64_t offset) {
  char* at = static_cast<char*>(to);
  while (bytes > 0) {
    const ssize_t n = pread(fd, at, bytes, static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    at += n;
    bytes -= static_cast<size_t>(n);
    offset += static_cast<uint64_t>(n);
  }
  return true;
}

template <typename T>
std::string Join(const T& header, const std::string& bytes) {
  std::string joined(reinterpret_cast<const char*>(&header), sizeof header);
  return joined.append(bytes);
}

}  // namespace

uint64_t SpoolEntryHash(const SpoolEntryHeader& header,
                        const std::string& payload) {
  return XXH64(payload.data(), payload.size(),
               XXH64(&header, offsetof(SpoolEntryHeader, hash), 0));
}

uint64_t SpoolHelloHash(const std::string& hello) {
  return XXH64(hello.data(), hello.size(), 0);
}

absl::StatusOr<std::unique_ptr<SpoolFile>> SpoolFile::Create(
    SpoolDirectory* directory, const std::string& name,
    const std::string& hello) {
  absl::StatusOr<std::string> folder = directory->Prepare();
  if (!folder.ok()) return folder.status();
  const std::string path = absl::StrCat(*folder, "/", name);
  UniqueFd fd(open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!fd.valid()) {
    return absl::UnavailableError(
        absl::StrCat(path, ": ", std::strerror(errno)));
  }
  std::unique_ptr<SpoolFile> file(
      new SpoolFile(directory, path, std::move(fd)));
  const SpoolHeader header = {kSpoolMagic, kSpoolVersion,
                              static_cast<uint32_t>(hello.size()), 0,
                              SpoolHelloHash(hello)};
  absl::Status status = file->Extend(Join(header, hello));
  if (!status.ok()) {
    file->Remove();
    return status;
  }
  file->begin_ = file->end_;
  return file;
}

SpoolFile::~SpoolFile() = default;

absl::Status SpoolFile::Error(const char* what) const {
  return absl::UnavailableError(
      absl::StrCat(path_, ": ", what, ": ", std::strerror(errno)));
}

absl::Status SpoolFile::Extend(const std::string& bytes) {
  absl::Status room = directory_->Reserve(bytes.size());
  if (!room.ok()) return room;
  if (!WriteAt(fd_.get(), bytes.data(), bytes.size(), end_)) {
    const absl::Status error = Error("write");
    directory_->Return(bytes.size());
    // If this fails too, a torn entry is left, which readers stand.
    [[maybe_unused]] const int result =
        ftruncate(fd_.get(), static_cast<off_t>(end_));
    return error;
  }
  end_ += bytes.size();
  return absl::OkStatus();
}

absl::StatusOr<SpoolFile::Offset> SpoolFile::Append(
    SpoolEntryKind kind, uint64_t number, const std::string& payload) {
  SpoolEntryHeader header = {static_cast<uint32_t>(payload.size()),
                             static_cast<uint32_t>(kind), number, 0};
  header.hash = SpoolEntryHash(header, payload);
  const Offset offset = end_;
  if (absl::Status status = Extend(Join(header, payload)); !status.ok()) {
    return status;
  }
  return offset;
}

absl::StatusOr<std::string> SpoolFile::ReadBatch(Offset offset,
                                                 uint64_t number) {
  const auto bad = [&](const char* what) {
    return absl::DataLossError(absl::StrCat(path_, ": batch ", number,
                                            " at byte ", offset, ": ", what));
  };
  SpoolEntryHeader header;
  if (!ReadAt(fd_.get(), &header, sizeof header, offset)) {
    return bad("the file ends there");
  }
  if (header.kind != static_cast<uint32_t>(SpoolEntryKind::kBatch) ||
      header.number != number ||
      header.payload_bytes > end_ - offset - sizeof header) {
    return bad("its header is damaged");
  }
  std::string payload(header.payload_bytes, '\0');
  if (!ReadAt(fd_.get(), payload.data(), payload.size(),
              offset + sizeof header)) {
    return bad("the file ends there");
  }
  if (SpoolEntryHash(header, payload) != header.hash) {
    return bad("its checksum is wrong");
  }
  return payload;
}

void SpoolFile::SetAcknowledged(uint64_t next_batch) {
  WriteAt(fd_.get(), &next_batch, sizeof next_batch,
          offsetof(SpoolHeader, acknowledged));
}

void SpoolFile::Clear(uint64_t next_batch) {
  SetAcknowledged(next_batch);
  if (ftruncate(fd_.get(), static_cast<off_t>(begin_)) != 0) return;
  directory_->Return(end_ - begin_);
  end_ = begin_;
}

void SpoolFile::Remove() {
  unlink(path_.c_str());
  directory_->Return(end_);
  end_ = begin_ = 0;
}

}  // namespace traincheck
