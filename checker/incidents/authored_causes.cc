#include "checker/incidents/authored_causes.h"

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <tuple>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "checker/incidents/parts.h"

namespace traincheck {
namespace {

// One rule may be broken by thousands of variables, each a violation. To look
// at all of them for each violation that may follow would be quadratic; the
// nearest in the order are enough.
constexpr size_t kMostLookedAt = 64;

bool NameDifferentVariables(const IncidentPart& a, const IncidentPart& b) {
  if (a.variables.empty() || b.variables.empty()) return false;
  absl::flat_hash_set<std::string_view> names;
  for (const std::string& name : a.variables) names.insert(OwnerOf(name));
  return std::none_of(b.variables.begin(), b.variables.end(),
                      [&names](const std::string& name) {
                        return names.contains(OwnerOf(name));
                      });
}

// One step of tolerance on both sides: what a step breaks may show only as the
// next one begins, in either of the two.
bool Brings(const IncidentPart& cause, const IncidentPart& part) {
  return Begin(cause) <= Begin(part) + 1 && Lasts(cause, part) &&
         !NameDifferentVariables(cause, part);
}

}  // namespace

std::vector<std::optional<size_t>> AuthoredCauses(
    const std::vector<IncidentPart>& parts, const std::vector<size_t>& order) {
  std::vector<std::optional<size_t>> causes(parts.size());
  // What brings a rule's violations on a rank of an attempt, by headline; with
  // the place in the order.
  using Bringers = std::vector<std::pair<size_t, size_t>>;
  absl::flat_hash_map<std::tuple<uint32_t, int32_t, std::string_view>, Bringers>
      bringers;
  for (size_t place = 0; place < order.size(); ++place) {
    const size_t at = order[place];
    const IncidentPart& part = parts[at];
    if (part.place.structure) continue;
    size_t nearest = 0;
    ForRanks(part, [&](int32_t rank) {
      const auto found = bringers.find({part.attempt, rank, part.headline});
      if (found == bringers.end()) return;
      const Bringers& all = found->second;
      const size_t looked_at = std::min(all.size(), kMostLookedAt);
      const auto cause = std::find_if(
          all.rbegin(), all.rbegin() + looked_at,
          [&](const auto& one) { return Brings(parts[one.second], part); });
      if (cause == all.rbegin() + looked_at) return;
      if (causes[at] && cause->first < nearest) return;
      nearest = cause->first;
      causes[at] = cause->second;
    });
    // Entered behind the search above: causes come before what follows from
    // them in the order, so that no two violations can be each other's cause.
    for (const std::string& headline : part.brings) {
      ForRanks(part, [&](int32_t rank) {
        bringers[{part.attempt, rank, headline}].push_back({place, at});
      });
    }
  }
  return causes;
}

}  // namespace traincheck
