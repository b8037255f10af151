// The version that this daemon reports.
#ifndef TRAINCHECK_SERVER_CONTROL_VERSION_H_
#define TRAINCHECK_SERVER_CONTROL_VERSION_H_

namespace traincheck {

inline constexpr char kServerVersion[] = "0.1.0";

}  // namespace traincheck

#endif  // TRAINCHECK_SERVER_CONTROL_VERSION_H_
