// Words of people that are stored and shown to others: reasons, comments,
// names.
//
// Threads: pure function.
#ifndef TRAINCHECK_SERVER_SETS_HUMAN_TEXT_H_
#define TRAINCHECK_SERVER_SETS_HUMAN_TEXT_H_

#include <cstddef>
#include <string>

#include "absl/status/status.h"

namespace traincheck::server {

inline constexpr size_t kMaxHumanTextBytes = 1024;

// InvalidArgument, beginning with `what`, if the text is empty, longer than
// that, or cannot be printed as it is.
[[nodiscard]] absl::Status CheckHumanText(const char* what,
                                          const std::string& text);

}  // namespace traincheck::server

#endif  // TRAINCHECK_SERVER_SETS_HUMAN_TEXT_H_
