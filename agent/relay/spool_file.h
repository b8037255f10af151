// The batches of one process that the server has not acknowledged, on disk.
// The file outlives the relay when the server stays away or the relay dies.
//
//   header   magic u64 | version u32 | bytes of hello u32 |
//            acknowledged u64 | XXH64 of hello u64 |
//            pid namespace u64 (since version 2) | serialized Hello
//   entry    bytes u32 | kind u32 | number u64 | XXH64 of the 16 bytes before
//            and of the payload u64 | payload
//
// Integers are little-endian. A payload is a serialized Batch (kind 1), a
// serialized Goodbye (kind 2, the last entry) or, since version 3, a Batch of
// definitions that lie before those of the batches (kind 3, its number means
// nothing): for another store than the one that had acknowledged them. Numbers
// rise and stay below 2^62: what has another one is damage. A batch whose
// number lies below `acknowledged` is in the server's store. The hash of the
// hello is seeded with the pid namespace. A file may end within an entry: what
// is torn there was never promised to anybody.
//
// Who holds the file's lock (flock, exclusive) owns it: the relay of a living
// process, or whoever delivers what a dead one left.
//
// Not synced: it has to survive the death of processes, not of the machine.
//
// Owned by the process's Outbox; borrows the SpoolDirectory.
// Threads: externally synchronised (the relay's loop).
#ifndef TRAINCHECK_AGENT_RELAY_SPOOL_FILE_H_
#define TRAINCHECK_AGENT_RELAY_SPOOL_FILE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "agent/relay/spool_directory.h"
#include "agent/relay/unique_fd.h"

namespace traincheck::agent {

inline constexpr uint64_t kSpoolMagic = 0x314c4f4f50534354;  // "TCSPOOL1"
inline constexpr uint32_t kSpoolVersion = 3;
// The oldest that can still be read.
inline constexpr uint32_t kSpoolVersionMin = 1;

// Far above what any training counts to, far below where counting wraps.
inline constexpr uint64_t kSpoolNumberEnd = uint64_t{1} << 62;

struct SpoolHeader {
  uint64_t magic;
  uint32_t version;
  uint32_t hello_bytes;
  uint64_t acknowledged;  // batches below this number are in the store
  uint64_t hello_hash;
  uint64_t pid_namespace;  // inode; 0: unknown. Not in version 1
};
static_assert(sizeof(SpoolHeader) == 40);
inline constexpr size_t kSpoolHeaderBytesV1 = 32;

enum class SpoolEntryKind : uint32_t {
  kBatch = 1,
  kGoodbye = 2,
  kDefinitions = 3
};

struct SpoolEntryHeader {
  uint32_t payload_bytes;
  uint32_t kind;  // SpoolEntryKind
  uint64_t number;
  uint64_t hash;
};
static_assert(sizeof(SpoolEntryHeader) == 24);

// Of the header but for its last field, and the payload.
uint64_t SpoolEntryHash(const SpoolEntryHeader& header,
                        const std::string& payload);
uint64_t SpoolHelloHash(const std::string& hello, uint64_t pid_namespace);

// The beginning of a spool file.
struct SpoolHead {
  SpoolHeader header;
  std::string hello;
  uint64_t bytes = 0;  // header and hello: the first entry follows
};

// DataLoss: no spool file, or a damaged one. Unimplemented: a later version.
[[nodiscard]] absl::StatusOr<SpoolHead> ReadSpoolHead(int fd);

class SpoolFile {
 public:
  // Where an entry starts.
  using Offset = uint64_t;

  // What a scan found besides whole entries.
  struct Damage {
    uint64_t places = 0;      // between whole entries
    uint64_t torn_bytes = 0;  // behind the last one; cut off by now
  };
  // Gets an entry; false: its payload makes no sense, which is damage too.
  using Visitor =
      std::function<bool(const SpoolEntryHeader& header, Offset offset,
                         const std::string& payload)>;

  // A new file `name` in the directory, mode 0600; never an existing one.
  // Unavailable: no place can be written to and has locks.
  [[nodiscard]] static absl::StatusOr<std::unique_ptr<SpoolFile>> Create(
      SpoolDirectory* directory, const std::string& name,
      const std::string& hello);
  // Takes over an existing file. Aborted: somebody else owns it. NotFound: its
  // owner has deleted it. Unavailable: it cannot be locked, or not be looked
  // at. DataLoss and Unimplemented as ReadSpoolHead. Whoever
  // appends to it prepares the directory before.
  [[nodiscard]] static absl::StatusOr<std::unique_ptr<SpoolFile>> Open(
      SpoolDirectory* directory, const std::string& path);
  // Closes the file and leaves it where it is.
  ~SpoolFile();
  SpoolFile(const SpoolFile&) = delete;
  SpoolFile& operator=(const SpoolFile&) = delete;

  const std::string& path() const { return path_; }
  // As its header says.
  const SpoolHead& head() const { return head_; }

  // Shows all entries of a file that was taken over, each checked, and makes
  // it end behind the last one.
  Damage Scan(const Visitor& visit);

  // All or nothing.
  [[nodiscard]] absl::StatusOr<Offset> Append(SpoolEntryKind kind,
                                              uint64_t number,
                                              const std::string& payload);
  // The payload of the batch `number` at `offset`; DataLoss if what lies
  // there is not what was appended.
  [[nodiscard]] absl::StatusOr<std::string> ReadBatch(Offset offset,
                                                      uint64_t number);

  // Notes the server's cursor for whoever finds the file. Best effort: a
  // server drops what it has already.
  void SetAcknowledged(uint64_t next_batch);
  // Everything in it is acknowledged: the file becomes empty, if it can.
  void Clear(uint64_t next_batch);
  // Deletes the file. Only the destructor may follow.
  void Remove();

 private:
  SpoolFile(SpoolDirectory* directory, std::string path, UniqueFd fd)
      : directory_(directory), path_(std::move(path)), fd_(std::move(fd)) {}

  // Reserves room and writes at the end; takes a part back if it fails.
  [[nodiscard]] absl::Status Extend(const std::string& bytes);
  absl::Status Error(const char* what) const;
  // The entry at `offset` if all of it lies before `end` and is undamaged.
  bool ReadEntry(Offset offset, uint64_t end, SpoolEntryHeader* header,
                 std::string* payload) const;
  // Where the next whole entry begins, from `offset` on; `end`: nowhere.
  // Takes what it hashes off the budget, and ends with it.
  Offset FindEntry(Offset offset, uint64_t end, uint64_t* budget) const;

  SpoolDirectory* const directory_;
  const std::string path_;
  UniqueFd fd_;
  SpoolHead head_;
  uint64_t begin_ = 0;  // of the first entry
  uint64_t end_ = 0;
};

}  // namespace traincheck::agent

#endif  // TRAINCHECK_AGENT_RELAY_SPOOL_FILE_H_
