#include "checker/zoom/value_comparison.h"

#include <algorithm>
#include <cstdio>
#include <optional>
#include <set>
#include <utility>

namespace traincheck {
namespace {

using Kind = ZoomedValue::Kind;

// How many numbers of rows, or of ranks, are written out.
constexpr size_t kShownRows = 8;

// People compare sizes: three digits do.
std::string ShortNumber(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g", value);
  return text;
}

std::string Count(uint64_t count, uint64_t of, const char* what) {
  return std::to_string(count) + " of " + std::to_string(of) + " " + what;
}

// Is its content known, so that "changed" and "not changed" can be told apart?
bool IsKnown(const ZoomedValue& value) {
  return value.kind == Kind::kZero || value.kind == Kind::kOther;
}

// Not of a missing gradient, which is known to be none.
bool IsComparable(const ZoomedValue& value) {
  return value.kind != Kind::kUnreadable;
}

bool IsSame(const ZoomedValue& a, const ZoomedValue& b) {
  // A missing gradient has no digest.
  if (a.kind == Kind::kNone || b.kind == Kind::kNone) return a.kind == b.kind;
  return a.digest == b.digest;
}

// Least and most of a number over ranks and steps. Equal texts are written
// once: three digits may not tell the two apart.
struct Range {
  double least = 0;
  double most = 0;

  std::string Words() const {
    const std::string low = ShortNumber(least);
    const std::string high = ShortNumber(most);
    return low == high ? low : low + " to " + high;
  }
};

// Ranks by what they had in one step: groups of equal ones, the largest first.
std::vector<std::vector<int32_t>> EqualRanks(const ValuesByRank& values,
                                             uint64_t step) {
  std::vector<std::vector<int32_t>> groups;
  std::vector<const ZoomedValue*> of_group;
  for (const auto& [rank, steps] : values) {
    const auto at = steps->find(step);
    if (at == steps->end() || !IsComparable(at->second)) continue;
    // Equality is by digest, so one value stands for its group. The cost is
    // ranks times groups, of which there are few: replicas are equal, or one
    // differs.
    size_t group = 0;
    while (group < groups.size() && !IsSame(*of_group[group], at->second)) {
      ++group;
    }
    if (group == groups.size()) {
      groups.emplace_back();
      of_group.push_back(&at->second);
    }
    groups[group].push_back(rank);
  }
  std::stable_sort(
      groups.begin(), groups.end(),
      [](const auto& a, const auto& b) { return a.size() > b.size(); });
  return groups;
}

// Ranks may have recorded different steps: an agent that is over its budget
// leaves some out.
std::set<uint64_t> StepsOf(const ValuesByRank& values) {
  std::set<uint64_t> steps;
  for (const auto& [rank, by_step] : values) {
    for (const auto& [step, value] : *by_step) steps.insert(step);
  }
  return steps;
}

// "rank 1 differs from ranks 0, 2"; without a majority: "ranks 0 and 1 differ".
std::string DifferenceWords(const std::vector<std::vector<int32_t>>& groups) {
  std::vector<int32_t> others;
  for (size_t i = 1; i < groups.size(); ++i) {
    others.insert(others.end(), groups[i].begin(), groups[i].end());
  }
  std::sort(others.begin(), others.end());
  if (groups[0].size() > others.size()) {
    return RanksWords(others) + (others.size() == 1 ? " differs" : " differ") +
           " from " + RanksWords(groups[0]);
  }
  if (groups.size() == 2) {
    return RanksWords(groups[0]) + " and " + RanksWords(groups[1]) + " differ";
  }
  return std::to_string(groups.size()) + " different contents on " +
         std::to_string(groups[0].size() + others.size()) + " ranks";
}

}  // namespace

std::string RanksWords(const std::vector<int32_t>& ranks) {
  std::string words = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (i == kShownRows) return words + ", ...";
    words += (i == 0 ? "" : ", ") + std::to_string(ranks[i]);
  }
  return words;
}

// Rows show where a tensor differs: one row of an embedding, or all of it.
std::string DifferentRowsWords(const ZoomedValue& a, const ZoomedValue& b) {
  if (a.rows.empty() || a.rows.size() != b.rows.size()) return "";
  std::vector<size_t> different;
  for (size_t row = 0; row < a.rows.size(); ++row) {
    if (a.rows[row] != b.rows[row]) different.push_back(row);
  }
  if (different.empty()) return "";
  std::string words = Count(different.size(), a.rows.size(), "rows");
  // Their numbers would say nothing where all differ.
  if (different.size() == a.rows.size()) return words;
  for (size_t i = 0; i < different.size() && i < kShownRows; ++i) {
    words += (i == 0 ? ": " : ", ") + std::to_string(different[i]);
  }
  return different.size() > kShownRows ? words + ", ..." : words;
}

// Over all ranks and steps in one line: norms that grow, and the first step
// with elements that are not finite, are what people look for.
std::string SizeWords(const ValuesByRank& values) {
  std::optional<Range> norm;
  double absmax = 0;
  uint64_t nan_count = 0, inf_count = 0;
  std::optional<uint64_t> since;
  for (const auto& [rank, steps] : values) {
    for (const auto& [step, value] : *steps) {
      if (!value.statistics) continue;
      const ZoomedStatistics& one = *value.statistics;
      if (!norm) norm = Range{one.norm, one.norm};
      norm->least = std::min(norm->least, one.norm);
      norm->most = std::max(norm->most, one.norm);
      absmax = std::max(absmax, one.absmax);
      nan_count += one.nan_count;
      inf_count += one.inf_count;
      const bool finite = one.nan_count == 0 && one.inf_count == 0;
      if (!finite && (!since || step < *since)) since = step;
    }
  }
  if (!norm) return "";
  std::string words =
      "norm " + norm->Words() + ", largest magnitude " + ShortNumber(absmax);
  if (!since) return words + ", all finite";
  return words + ", " + std::to_string(nan_count) + " NaN and " +
         std::to_string(inf_count) + " infinite elements since step " +
         std::to_string(*since);
}

std::string AbsenceWords(const ValuesByRank& values) {
  uint64_t all = 0, none = 0, zero = 0;
  for (const auto& [rank, steps] : values) {
    for (const auto& [step, value] : *steps) {
      if (!IsComparable(value)) continue;
      ++all;
      if (value.kind == Kind::kNone) ++none;
      if (value.kind == Kind::kZero) ++zero;
    }
  }
  if (none > 0) return "there is none in " + Count(none, all, "records");
  if (zero > 0) return "all zero in " + Count(zero, all, "records");
  return "";
}

std::string RankWords(const ValuesByRank& values) {
  std::vector<int32_t> compared;
  for (const uint64_t step : StepsOf(values)) {
    // Steps go upwards: the first one in which ranks differ is what people
    // need; later ones follow from it.
    const auto groups = EqualRanks(values, step);
    if (groups.size() > 1) {
      std::string words =
          DifferenceWords(groups) + " since step " + std::to_string(step);
      const std::string rows = DifferentRowsWords(
          values.at(groups[0][0])->at(step), values.at(groups[1][0])->at(step));
      return rows.empty() ? words : words + " in " + rows;
    }
    // A rank may have recorded fewer steps than others: the largest set that
    // was equal in one step is named.
    if (!groups.empty() && groups[0].size() > compared.size()) {
      compared = groups[0];
    }
  }
  return compared.size() < 2 ? "" : "equal on " + RanksWords(compared);
}

std::string ChangeWords(const ValuesByRank& before, const ValuesByRank& after) {
  uint64_t steps = 0, changed = 0;
  std::string rows;
  for (const auto& [rank, values] : before) {
    const auto others = after.find(rank);
    if (others == after.end()) continue;
    for (const auto& [step, value] : *values) {
      const auto other = others->second->find(step);
      // A value that is missing on one side shows neither that it changed nor
      // that it did not.
      if (other == others->second->end() || !IsKnown(value) ||
          !IsKnown(other->second)) {
        continue;
      }
      ++steps;
      if (IsSame(value, other->second)) continue;
      ++changed;
      if (rows.empty()) rows = DifferentRowsWords(value, other->second);
    }
  }
  if (steps == 0) return "";
  if (changed == 0) {
    return "the optimizer's step changed it in " + Count(0, steps, "records");
  }
  return "the optimizer's step changed it in " +
         Count(changed, steps, "records") +
         (rows.empty() ? "" : ", first in " + rows);
}

}  // namespace traincheck
