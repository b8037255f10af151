// The data directory around the database: made private, recognised by its
// FORMAT file, refused if it is somebody else's or of a newer version.
//
// Threads: pure functions over the file system.
#ifndef TRAINCHECK_SERVER_STORE_DATA_DIR_H_
#define TRAINCHECK_SERVER_STORE_DATA_DIR_H_

#include <string>

#include "absl/status/status.h"

namespace traincheck {

inline constexpr int kStoreFormatVersion = 1;

// Makes `dir` (0700) if it is not there or empty and checks it otherwise.
[[nodiscard]] absl::Status PrepareDataDir(const std::string& dir);

// Where in it the database lies.
std::string DatabasePath(const std::string& dir);

}  // namespace traincheck

#endif  // TRAINCHECK_SERVER_STORE_DATA_DIR_H_
