// The version that this daemon reports.
#ifndef TRAINCHECK_SERVER_CONTROL_VERSION_H_
#define TRAINCHECK_SERVER_CONTROL_VERSION_H_

#include "base/version.h"

namespace traincheck::server {

inline constexpr const char* kServerVersion = kVersion;

}  // namespace traincheck::server

#endif  // TRAINCHECK_SERVER_CONTROL_VERSION_H_
