#include "agent/relay/spool_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "agent/relay/limits.h"
#include "agent/relay/process_liveness.h"
#include "agent/relay/spool_folder.h"

namespace traincheck::agent {
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

// Bounds of what is read into memory: a Batch is its payload and some slices, a
// Hello some names. A damaged length must not become an allocation.
constexpr uint64_t kMaxEntryBytes = 2 * kMaxPayloadBytes;
constexpr uint64_t kMaxHelloBytes = 1u << 20;
constexpr uint64_t kSearchBytes = 4u << 20;
// What the search for whole entries may hash, in sizes of the file. A file
// that was only damaged stays far below; one made of false headers would cost
// the largest payload for every 24 bytes.
constexpr uint64_t kMaxSearchSizes = 16;

template <typename T>
std::string Join(const T& header, const std::string& bytes) {
  std::string joined(reinterpret_cast<const char*>(&header), sizeof header);
  return joined.append(bytes);
}

}  // namespace

// The header's first 16 bytes are hashed, too: a damaged number or kind would
// otherwise pass.
uint64_t SpoolEntryHash(const SpoolEntryHeader& header,
                        const std::string& payload) {
  return XXH64(payload.data(), payload.size(),
               XXH64(&header, offsetof(SpoolEntryHeader, hash), 0));
}

// The namespace decides whether the process counts as dead, so it is hashed
// with the Hello.
uint64_t SpoolHelloHash(const std::string& hello, uint64_t pid_namespace) {
  return XXH64(hello.data(), hello.size(), pid_namespace);
}

// Everything is checked before it is used; the file may be damaged, or of a
// later version.
absl::StatusOr<SpoolHead> ReadSpoolHead(int fd) {
  SpoolHead head = {};
  SpoolHeader& header = head.header;
  // As much as the oldest version has: only then the version is known.
  if (!ReadAt(fd, &header, kSpoolHeaderBytesV1, 0) ||
      header.magic != kSpoolMagic) {
    return absl::DataLossError("it does not begin as a spool file");
  }
  // A later version's file is sound: it must not be set aside as damaged.
  if (header.version < kSpoolVersionMin || header.version > kSpoolVersion) {
    return absl::UnimplementedError(absl::StrCat(
        "spool version ", header.version, ", this relay reads versions ",
        kSpoolVersionMin, " to ", kSpoolVersion));
  }
  head.bytes = header.version == 1 ? kSpoolHeaderBytesV1 : sizeof header;
  if (!ReadAt(fd, &header, head.bytes, 0) ||
      header.hello_bytes > kMaxHelloBytes ||
      header.acknowledged >= kSpoolNumberEnd) {
    return absl::DataLossError("its header is damaged");
  }
  head.hello.resize(header.hello_bytes);
  if (!ReadAt(fd, head.hello.data(), head.hello.size(), head.bytes) ||
      SpoolHelloHash(head.hello, header.pid_namespace) != header.hello_hash) {
    return absl::DataLossError("its Hello is damaged");
  }
  head.bytes += head.hello.size();
  return head;
}

// The order is header, Hello, then entries. A relay that dies in between leaves
// a file without a valid beginning, which is set aside after
// kUnfinishedSpoolAge.
absl::StatusOr<std::unique_ptr<SpoolFile>> SpoolFile::Create(
    SpoolDirectory* directory, const std::string& name,
    const std::string& hello) {
  // Never one that is there: it may hold what a relay before this one has left.
  // Locked: whoever looks at it sees a living process or a young file.
  absl::StatusOr<SpoolDirectory::NewFile> made = directory->CreateFile(name);
  if (!made.ok()) return made.status();
  std::unique_ptr<SpoolFile> file(
      new SpoolFile(directory, made->path, std::move(made->fd)));
  const uint64_t pid_namespace = PidNamespace();
  const SpoolHeader header = {
      .magic = kSpoolMagic,
      .version = kSpoolVersion,
      .hello_bytes = static_cast<uint32_t>(hello.size()),
      .acknowledged = 0,
      .hello_hash = SpoolHelloHash(hello, pid_namespace),
      .pid_namespace = pid_namespace};
  absl::Status status = file->Extend(Join(header, hello));
  if (!status.ok()) {
    file->Remove();
    return status;
  }
  file->head_ = {header, hello, file->end_};
  file->begin_ = file->end_;
  return file;
}

// The lock decides who owns the file. It is not waited for: who has it goes on
// with it.
absl::StatusOr<std::unique_ptr<SpoolFile>> SpoolFile::Open(
    SpoolDirectory* directory, const std::string& path) {
  UniqueFd fd(open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
  if (!fd.valid()) {
    return absl::ErrnoToStatus(errno, path);
  }
  const auto aborted = [&] {
    return absl::AbortedError(absl::StrCat(path, ": another relay has it"));
  };
  if (!LockSpoolFile(fd.get(), LOCK_NB)) {
    if (errno == EWOULDBLOCK) return aborted();
    return absl::UnavailableError(
        absl::StrCat(path, ": cannot be locked: ", std::strerror(errno)));
  }
  struct stat there, here;
  // Its owner may have deleted it between our open and the lock.
  if (fstat(fd.get(), &here) != 0 || stat(path.c_str(), &there) != 0) {
    return errno == ENOENT ? aborted()
                           : absl::UnavailableError(absl::StrCat(
                                 path, ": ", std::strerror(errno)));
  }
  if (here.st_ino != there.st_ino) return aborted();
  absl::StatusOr<SpoolHead> head = ReadSpoolHead(fd.get());
  if (!head.ok()) {
    return absl::Status(head.status().code(),
                        absl::StrCat(path, ": ", head.status().message()));
  }
  std::unique_ptr<SpoolFile> file(
      new SpoolFile(directory, path, std::move(fd)));
  file->begin_ = head->bytes;
  file->end_ = static_cast<uint64_t>(here.st_size);
  file->head_ = *std::move(head);
  directory->Adopt(file->end_);
  return file;
}

// False: damage, or the entry is torn. Both look alike here; Scan
// distinguishes them by what follows.
bool SpoolFile::ReadEntry(Offset offset, uint64_t end, SpoolEntryHeader* header,
                          std::string* payload) const {
  // Everything in the header is checked before it is added or allocated: it may
  // be damaged.
  if (end - offset < sizeof *header ||
      !ReadAt(fd_.get(), header, sizeof *header, offset) ||
      header->payload_bytes > kMaxEntryBytes ||
      header->payload_bytes > end - offset - sizeof *header) {
    return false;
  }
  payload->resize(header->payload_bytes);
  return ReadAt(fd_.get(), payload->data(), payload->size(),
                offset + sizeof *header) &&
         SpoolEntryHash(*header, *payload) == header->hash;
}

// Behind damage nobody knows where the next entry begins, so each byte is
// tried. Windows overlap by a header less one byte, so that none is missed
// between two.
SpoolFile::Offset SpoolFile::FindEntry(Offset offset, uint64_t end,
                                       uint64_t* budget) const {
  SpoolEntryHeader header;
  std::string payload, window;
  while (end - offset >= sizeof header) {
    window.resize(std::min(kSearchBytes, end - offset));
    if (!ReadAt(fd_.get(), window.data(), window.size(), offset)) return end;
    const size_t starts = window.size() - sizeof header + 1;
    for (size_t at = 0; at < starts; ++at) {
      std::memcpy(&header, window.data() + at, sizeof header);
      // Only what looks like an entry is worth a checksum.
      const bool likely =
          (header.kind == static_cast<uint32_t>(SpoolEntryKind::kBatch) ||
           header.kind == static_cast<uint32_t>(SpoolEntryKind::kGoodbye) ||
           header.kind ==
               static_cast<uint32_t>(SpoolEntryKind::kDefinitions)) &&
          header.payload_bytes <= kMaxEntryBytes &&
          header.payload_bytes <= end - offset - at - sizeof header;
      if (!likely) continue;
      if (header.payload_bytes > *budget) return end;
      *budget -= header.payload_bytes;
      if (ReadEntry(offset + at, end, &header, &payload)) return offset + at;
    }
    offset += starts;
  }
  return end;
}

// Reads the file once from front to back. Afterwards end_ lies behind the last
// whole entry, where the next one is appended.
SpoolFile::Damage SpoolFile::Scan(const Visitor& visit) {
  Damage damage;
  SpoolEntryHeader header;
  std::string payload;
  uint64_t budget = kMaxSearchSizes * end_;
  Offset at = begin_;
  while (at < end_) {
    if (ReadEntry(at, end_, &header, &payload)) {
      if (!visit(header, at, payload)) ++damage.places;
      at += sizeof header + payload.size();
      continue;
    }
    const Offset next = FindEntry(at + 1, end_, &budget);
    if (next == end_) break;
    ++damage.places;
    at = next;
  }
  // Torn bytes that cannot be cut off are overwritten by the next entry.
  damage.torn_bytes = end_ - at;
  if (damage.torn_bytes > 0 &&
      ftruncate(fd_.get(), static_cast<off_t>(at)) == 0) {
    directory_->Return(damage.torn_bytes);
  }
  end_ = at;
  return damage;
}

SpoolFile::~SpoolFile() {
  // The file stays on disk for others, so its bytes still count.
  if (end_ > 0) directory_->Leave(end_);
}

absl::Status SpoolFile::Error(const char* what) const {
  return absl::UnavailableError(
      absl::StrCat(path_, ": ", what, ": ", std::strerror(errno)));
}

// Room is reserved before the write, so that two relays do not exceed the limit
// together.
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

// An entry is complete with its last byte: a relay that dies in between leaves
// a torn one, whose batch is still in the ring.
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
  SpoolEntryHeader header;
  std::string payload;
  if (offset > end_ || !ReadEntry(offset, end_, &header, &payload) ||
      header.kind != static_cast<uint32_t>(SpoolEntryKind::kBatch) ||
      header.number != number) {
    return absl::DataLossError(absl::StrCat(
        path_, ": batch ", number, " at byte ", offset, " is damaged"));
  }
  return payload;
}

// Written in place, 8 bytes. A relay that dies in between leaves the old or the
// new cursor.
void SpoolFile::SetAcknowledged(uint64_t next_batch) {
  WriteAt(fd_.get(), &next_batch, sizeof next_batch,
          offsetof(SpoolHeader, acknowledged));
}

// Kept at its first bytes, so that the Hello stays for a relay that takes over.
void SpoolFile::Clear(uint64_t next_batch) {
  if (end_ == begin_) return;
  SetAcknowledged(next_batch);
  // Behind the cursor: if the relay dies in between, what lies there is known
  // as stored.
  if (ftruncate(fd_.get(), static_cast<off_t>(begin_)) != 0) return;
  directory_->Return(end_ - begin_);
  end_ = begin_;
}

void SpoolFile::Remove() {
  unlink(path_.c_str());
  directory_->Return(end_);
  end_ = begin_ = 0;
}

}  // namespace traincheck::agent
