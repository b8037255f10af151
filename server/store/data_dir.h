// The data directory around the database: made private, recognised by its
// FORMAT file, refused if it is somebody else's or of a newer version.
//
// Threads: pure functions over the file system.
#ifndef TRAINCHECK_SERVER_STORE_DATA_DIR_H_
#define TRAINCHECK_SERVER_STORE_DATA_DIR_H_

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"

namespace traincheck::server {

inline constexpr int kStoreFormatVersion = 2;

// Makes `dir` (0700) if it is not there or empty and checks it otherwise.
[[nodiscard]] absl::Status PrepareDataDir(const std::string& dir);

// Gives a directory of an older format this version's number, so that an older
// program refuses it from now on. REQUIRES: PrepareDataDir, and nobody else has
// the database open.
[[nodiscard]] absl::Status RaiseFormat(const std::string& dir);

// Where in it the database lies.
std::string DatabasePath(const std::string& dir);

// Bytes of all files below `dir`; 0 if it cannot be read.
uint64_t BytesOf(const std::string& dir);

// Makes the data directory `folder` by `copy_database`, which makes the
// database at the path that it is given. The folder appears complete, synced
// and marked as a backup of store `store_id`, or not at all. It is filled under
// the name `folder`.partial-XXXXXX, new and with a random end; that stays if
// the daemon dies meanwhile and is no data directory. Nothing that was there
// before is removed or changed. Errors as Store::Backup.
[[nodiscard]] absl::Status MakeBackup(
    const std::string& dir, const std::string& folder,
    const std::string& store_id,
    const std::function<absl::Status(const std::string& path)>& copy_database);

// A backup that was never opened: its store needs an id of its own.
bool IsUnopenedBackup(const std::string& dir);
// REQUIRES: the new id is durable.
[[nodiscard]] absl::Status MarkBackupOpened(const std::string& dir);

}  // namespace traincheck::server

#endif  // TRAINCHECK_SERVER_STORE_DATA_DIR_H_
