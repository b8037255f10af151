// The options by which a list is narrowed and ordered. The server sends the
// whole list; what is asked for is chosen here.
#ifndef TRAINCHECK_CTL_COMMANDS_LIST_FLAGS_H_
#define TRAINCHECK_CTL_COMMANDS_LIST_FLAGS_H_

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "ctl/report.h"
#include "ctl/text/since.h"

namespace traincheck::ctl {

// What a list can be narrowed by; an empty member: not by that.
template <typename Row>
struct ListShape {
  std::function<std::string(const Row&)> experiment;
  std::function<std::string(const Row&)> status;
  std::vector<std::string> statuses;
  std::string time_is;                       // "they started"
  std::function<uint64_t(const Row&)> time;  // unix ns; 0: not known
  using Before = std::function<bool(const Row&, const Row&)>;
  std::vector<std::pair<std::string, Before>> orders;
};

struct ListFlags {
  std::string experiment;
  std::string status;
  std::string since;
  std::string sort;
  bool reverse = false;
  size_t limit = 0;  // 0: none
};

// Adds --since TIME to `command`. REQUIRES: `since` outlives the parsing.
inline void AddSinceFlag(CLI::App* command, std::string* since,
                         const std::string& what) {
  command->add_option("--since", *since, what)
      ->check([](const std::string& text) {
        return std::string(ParseSince(text, NowUnixNs()).status().message());
      });
}

// REQUIRES: `flags` outlives the parsing.
template <typename Row>
void AddListFlags(CLI::App* list, const ListShape<Row>& shape,
                  ListFlags* flags) {
  if (shape.experiment) {
    list->add_option("--experiment", flags->experiment,
                     "Rows of this experiment only");
  }
  if (shape.status) {
    list->add_option("--status", flags->status, "With this status only")
        ->check(CLI::IsMember(shape.statuses));
  }
  if (shape.time) {
    AddSinceFlag(list, &flags->since,
                 absl::StrCat("Only if ", shape.time_is,
                              " since then: 10m, 2h, 3d ago, or a time"));
  }
  std::vector<std::string> names;
  for (const auto& [name, before] : shape.orders) names.push_back(name);
  list->add_option("--sort", flags->sort, "Order by this, least first")
      ->check(CLI::IsMember(names));
  list->add_flag("--reverse", flags->reverse, "Last first");
  list->add_option("--limit", flags->limit, "The first so many only")
      ->check(CLI::PositiveNumber);
}

// The rows that are asked for; says on stderr how many --limit leaves out.
template <typename Row>
std::vector<Row> Select(std::vector<Row> rows, const ListShape<Row>& shape,
                        const ListFlags& flags) {
  const auto remove = [&rows](const auto& unwanted) {
    rows.erase(std::remove_if(rows.begin(), rows.end(), unwanted), rows.end());
  };
  if (!flags.experiment.empty()) {
    remove([&](const Row& row) {
      return shape.experiment(row) != flags.experiment;
    });
  }
  if (!flags.status.empty()) {
    remove([&](const Row& row) { return shape.status(row) != flags.status; });
  }
  if (!flags.since.empty()) {
    const auto since = ParseSince(flags.since, NowUnixNs());
    remove([&](const Row& row) { return shape.time(row) < since.value_or(0); });
  }
  for (const auto& [name, before] : shape.orders) {
    if (name == flags.sort) std::stable_sort(rows.begin(), rows.end(), before);
  }
  if (flags.reverse) std::reverse(rows.begin(), rows.end());
  if (flags.limit > 0 && rows.size() > flags.limit) {
    Complain(absl::StrCat("the first ", flags.limit, " of ", rows.size(),
                          " are shown (--limit)"));
    rows.erase(rows.begin() + flags.limit, rows.end());
  }
  return rows;
}

}  // namespace traincheck::ctl

#endif  // TRAINCHECK_CTL_COMMANDS_LIST_FLAGS_H_
