#include "ctl/render/names.h"

#include "absl/strings/str_cat.h"
#include "ctl/text/utc_time.h"

namespace traincheck::ctl {

std::string RoleName(v1::RunRole role) {
  switch (role) {
    case v1::RUN_ROLE_TARGET:
      return "target";
    case v1::RUN_ROLE_REFERENCE:
      return "reference";
    default:
      return "";
  }
}

std::string StatusName(v1::RunStatus status) {
  switch (status) {
    case v1::RUN_STATUS_RUNNING:
      return "running";
    case v1::RUN_STATUS_ENDED:
      return "ended";
    case v1::RUN_STATUS_LOST:
      return "lost";
    default:
      return "";
  }
}

std::string KindName(v1::ProcessKind kind) {
  switch (kind) {
    case v1::PROCESS_KIND_MAIN:
      return "main";
    case v1::PROCESS_KIND_WORKER:
      return "worker";
    case v1::PROCESS_KIND_OTHER:
      return "other";
    default:
      return "";
  }
}

// For words with a regular plural.
std::string Counted(uint64_t count, const std::string& what) {
  return absl::StrCat(count, " ", what, count == 1 ? "" : "s");
}

std::string NumberOrUnknown(bool known, int64_t number) {
  return known ? std::to_string(number) : kUnknown;
}

// An empty cell would look like a mistake of the table.
std::string TextOrUnknown(const std::string& text) {
  return text.empty() ? kUnknown : text;
}

std::string TimeOrUnknown(uint64_t unix_ns) {
  return unix_ns == 0 ? kUnknown : Rfc3339(unix_ns);
}

// Neighbours become a range, so that a thousand ranks fit into a cell.
std::string RankList(const std::vector<int32_t>& ranks) {
  std::string list;
  for (size_t i = 0; i < ranks.size();) {
    size_t end = i + 1;
    while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1) ++end;
    // Two neighbours read better as "0,1" than as "0-1".
    if (end - i == 2) --end;
    absl::StrAppend(&list, list.empty() ? "" : ",", ranks[i]);
    if (end - i > 1) absl::StrAppend(&list, "-", ranks[end - 1]);
    i = end;
  }
  return TextOrUnknown(list);
}

std::string StepRange(const std::string& first, const std::string& last) {
  if (first == last || last == kUnknown) return first;
  return absl::StrCat(first, "-", last);
}

}  // namespace traincheck::ctl
