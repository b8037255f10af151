// The protocol's values in the words that users read.
#ifndef TRAINCHECK_CTL_RENDER_NAMES_H_
#define TRAINCHECK_CTL_RENDER_NAMES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "proto/state_names.h"
#include "proto/traincheck/v1/control.pb.h"

namespace traincheck::ctl {

// "" for a value that this build does not know.
std::string RoleName(v1::RunRole role);
std::string StatusName(v1::RunStatus status);
std::string KindName(v1::ProcessKind kind);

// What tables show where JSON has null.
inline constexpr char kUnknown[] = "-";

// "1 record", "3 records".
std::string Counted(uint64_t count, const std::string& what);

std::string NumberOrUnknown(bool known, int64_t number);
std::string TextOrUnknown(const std::string& text);
std::string TimeOrUnknown(uint64_t unix_ns);

// "0,1", "0-7,9"; REQUIRES: sorted.
std::string RankList(const std::vector<int32_t>& ranks);

// "12" or "12-40"; kUnknown without a first step.
std::string StepRange(const std::string& first, const std::string& last);

}  // namespace traincheck::ctl

#endif  // TRAINCHECK_CTL_RENDER_NAMES_H_
