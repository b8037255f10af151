// Keys of the store (key_format.md). Numbers are big-endian, so that byte
// order is numeric order.
//
// Threads: pure functions.
#ifndef TRAINCHECK_SERVER_STORE_KEYS_H_
#define TRAINCHECK_SERVER_STORE_KEYS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace traincheck::server {

// In the meta table: number of the next new run.
inline constexpr char kNextRunKey[] = "next_run";
// Before the id of a rule, the name of an experiment, the name of a set, the id
// of a silence, the id of a token.
inline constexpr char kDisabledPrefix[] = "disabled/";
inline constexpr char kDemotedPrefix[] = "demoted/";
inline constexpr char kDeployedPrefix[] = "deployed/";
inline constexpr char kLastVersionPrefix[] = "last_version/";
inline constexpr char kSilencePrefix[] = "silence/";
inline constexpr char kTokenPrefix[] = "token/";
// Before all keys of AlertCallKey.
inline constexpr char kAlertCallPrefix[] = "called/";
// The last change of violations that was looked at for alerts, decimal.
inline constexpr char kAlertCursorKey[] = "alert_cursor";

struct BatchId {
  uint64_t run = 0;      // number of the run in this store
  uint32_t process = 0;  // number of the process in its run
  uint64_t batch = 0;
};

std::string BatchKey(const BatchId& id);
// False if `key` is no batch key.
bool ParseBatchKey(std::string_view key, BatchId* id);

std::string RunKey(uint64_t run);
std::string ProcessKey(uint64_t run, uint32_t process);
// Which run's process; false for another kind of key.
bool ParseProcessKey(std::string_view key, uint64_t* run);
std::string CheckKey(uint64_t run);
std::string SnapshotKey(uint64_t run);
std::string PlanKey(uint64_t run, uint64_t version);
std::string ViolationKey(uint64_t run, std::string_view violation);
// nullopt: it is too short for a violation's.
std::optional<uint64_t> RunOfViolationKey(std::string_view key);
// Which rules its check decided.
std::string DecidedKey(uint64_t run);
// In the meta table, by violation; "": before those of the run.
std::string MarkKey(uint64_t run, std::string_view violation);
std::string AlertCallKey(uint64_t run, std::string_view lead);
std::string SetKey(std::string_view name, uint32_t version);
std::string JobKey(uint32_t slot);
// False if `key` is no job key.
bool ParseJobKey(std::string_view key, uint32_t* slot);

// The key behind every key that starts with `prefix`. REQUIRES: prefix has a
// byte other than 0xff.
std::string PrefixEnd(std::string prefix);

}  // namespace traincheck::server

#endif  // TRAINCHECK_SERVER_STORE_KEYS_H_
