#include "server/store/keys.h"

namespace traincheck::server {
namespace {

constexpr size_t kBatchKeyBytes = 8 + 4 + 8;
constexpr size_t kProcessKeyBytes = 1 + 8 + 4;
constexpr std::string_view kJobPrefix = "job/";

template <typename Number>
// The most significant byte goes first: RocksDB orders keys by their bytes, and
// scans by number rely on that order.
void Append(Number number, std::string* to) {
  for (int shift = 8 * (sizeof(Number) - 1); shift >= 0; shift -= 8) {
    to->push_back(static_cast<char>(number >> shift));
  }
}

template <typename Number>
// REQUIRES: `from` has as many bytes as the number. Callers compare the size of
// the key first, since a key from a damaged store may have any.
Number Take(std::string_view* from) {
  Number number = 0;
  for (size_t i = 0; i < sizeof(Number); ++i) {
    number = number << 8 | static_cast<uint8_t>((*from)[i]);
  }
  from->remove_prefix(sizeof(Number));
  return number;
}

}  // namespace

// The batches of a run, and within it those of a process, are one range each: a
// check reads the second from its cursor on, retention deletes the first.
std::string BatchKey(const BatchId& id) {
  std::string key;
  Append(id.run, &key);
  Append(id.process, &key);
  Append(id.batch, &key);
  return key;
}

bool ParseBatchKey(std::string_view key, BatchId* id) {
  if (key.size() != kBatchKeyBytes) return false;
  id->run = Take<uint64_t>(&key);
  id->process = Take<uint32_t>(&key);
  id->batch = Take<uint64_t>(&key);
  return true;
}

// One table holds several kinds of entries for a run. The letter in front keeps
// each kind in a range of its own, so that a scan of one kind reads no other.
std::string RunKey(uint64_t run) {
  std::string key = "r";
  Append(run, &key);
  return key;
}

std::string ProcessKey(uint64_t run, uint32_t process) {
  std::string key = "p";
  Append(run, &key);
  Append(process, &key);
  return key;
}

// The size tells this kind of key from the others of the table: none of those
// has 13 bytes.
bool ParseProcessKey(std::string_view key, uint64_t* run) {
  if (key.size() != kProcessKeyBytes) return false;
  key.remove_prefix(1);
  *run = Take<uint64_t>(&key);
  return true;
}

std::string CheckKey(uint64_t run) {
  std::string key = "c";
  Append(run, &key);
  return key;
}

std::string SnapshotKey(uint64_t run) {
  std::string key = "s";
  Append(run, &key);
  return key;
}

std::string PlanKey(uint64_t run, uint64_t version) {
  std::string key = "l";
  Append(run, &key);
  Append(version, &key);
  return key;
}

// The number in front puts the violations of a run into one range, which is
// read and deleted as a whole.
std::string ViolationKey(uint64_t run, std::string_view violation) {
  std::string key;
  Append(run, &key);
  key.append(violation);
  return key;
}

std::optional<uint64_t> RunOfViolationKey(std::string_view key) {
  if (key.size() < sizeof(uint64_t)) return std::nullopt;
  return Take<uint64_t>(&key);
}

// Apart from the check itself (CheckKey): clients ask for the progress of a
// check, which must not read the ids of all decided rules.
std::string DecidedKey(uint64_t run) {
  std::string key = "d";
  Append(run, &key);
  return key;
}

// Marks lie under the number of their run, so that deleting the run deletes
// them with one range.
std::string MarkKey(uint64_t run, std::string_view violation) {
  return "mark/" + ViolationKey(run, violation);
}

std::string AlertCallKey(uint64_t run, std::string_view lead) {
  return kAlertCallPrefix + ViolationKey(run, lead);
}

std::string SetKey(std::string_view name, uint32_t version) {
  std::string key(name);
  // A byte that no name has: the versions of "a" do not mix with those of "ab".
  key.push_back('\0');
  Append(version, &key);
  return key;
}

std::string JobKey(uint32_t slot) {
  std::string key(kJobPrefix);
  Append(slot, &key);
  return key;
}

bool ParseJobKey(std::string_view key, uint32_t* slot) {
  if (key.substr(0, kJobPrefix.size()) != kJobPrefix ||
      key.size() != kJobPrefix.size() + sizeof(*slot)) {
    return false;
  }
  key.remove_prefix(kJobPrefix.size());
  *slot = Take<uint32_t>(&key);
  return true;
}

std::string PrefixEnd(std::string prefix) {
  while (!prefix.empty()) {
    // A byte that cannot be raised is left off, and the one before it is
    // raised.
    if (static_cast<uint8_t>(prefix.back()) != 0xff) {
      ++prefix.back();
      return prefix;
    }
    prefix.pop_back();
  }
  return prefix;
}

}  // namespace traincheck::server
