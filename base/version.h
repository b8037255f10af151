// The version that the programs report.
#ifndef TRAINCHECK_BASE_VERSION_H_
#define TRAINCHECK_BASE_VERSION_H_

namespace traincheck {

inline constexpr char kVersion[] = "0.1.0";

}  // namespace traincheck

#endif  // TRAINCHECK_BASE_VERSION_H_
