// Ids may be cut short where what is left names one.
#ifndef TRAINCHECK_CTL_COMMANDS_ID_PREFIX_H_
#define TRAINCHECK_CTL_COMMANDS_ID_PREFIX_H_

#include <algorithm>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace traincheck::ctl {

// How many of the ids that fit are named.
inline constexpr size_t kMaxIdsNamed = 8;

// get(id); where there is none of that id, of the only row of list() whose id
// begins so. InvalidArgument names the rows if there are several.
template <typename Row, typename Get, typename List>
absl::StatusOr<Row> GetByPrefix(const std::string& id, Get get, List list) {
  absl::StatusOr<Row> exact = get(id);
  if (!absl::IsNotFound(exact.status()) || id.empty()) return exact;
  const absl::StatusOr<std::vector<Row>> rows = list();
  if (!rows.ok()) return rows.status();
  std::vector<std::string> fitting;
  for (const Row& row : *rows) {
    if (absl::StartsWith(row.id(), id)) fitting.push_back(row.id());
  }
  if (fitting.empty()) return exact;
  if (fitting.size() == 1) return get(fitting[0]);
  std::string message =
      absl::StrCat("\"", id, "\" begins ", fitting.size(), " ids:");
  for (size_t i = 0; i < std::min(fitting.size(), kMaxIdsNamed); ++i) {
    absl::StrAppend(&message, " ", fitting[i]);
  }
  if (fitting.size() > kMaxIdsNamed) absl::StrAppend(&message, " ...");
  return absl::InvalidArgumentError(message);
}

}  // namespace traincheck::ctl

#endif  // TRAINCHECK_CTL_COMMANDS_ID_PREFIX_H_
