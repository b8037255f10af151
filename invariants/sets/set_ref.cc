#include "invariants/sets/set_ref.h"

#include <set>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/printable_text.h"

namespace traincheck {
namespace {

// A selection may name thousands of rules; an error shows its begin.
constexpr size_t kMaxShownBytes = 128;

absl::Status Bad(const std::string& text, const std::string& why) {
  return absl::InvalidArgumentError(absl::StrCat(
      "\"", EscapeUnprintable(text.substr(0, kMaxShownBytes)), "\" ", why));
}

}  // namespace

absl::StatusOr<SetRef> ParseSetRef(const std::string& text) {
  // The last one: whether a name may contain the character is for others to
  // say.
  const size_t at = text.rfind('@');
  if (at == std::string::npos) return SetRef{text};
  SetRef set{text.substr(0, at)};
  if (!absl::SimpleAtoi(text.substr(at + 1), &set.version) ||
      set.version == 0) {
    return Bad(text,
               "is not a set: write NAME for its newest version, or "
               "NAME@VERSION with a version from 1 on");
  }
  return set;
}

std::string ToText(const SetRef& set) {
  return set.version == 0 ? set.name : absl::StrCat(set.name, "@", set.version);
}

absl::StatusOr<RuleSelection> ParseSelection(const std::string& text) {
  RuleSelection selection;
  std::set<std::string> names;
  std::set<std::string> without;
  std::set<std::string> advised;
  for (const std::string& part :
       std::vector<std::string>(absl::StrSplit(text, ','))) {
    // A sign with no id behind it goes on to the sets, which refuse it below.
    if (part.size() > 1 && part[0] == '-') {
      without.insert(part.substr(1));
      continue;
    }
    if (part.size() > 1 && part[0] == '?') {
      advised.insert(part.substr(1));
      continue;
    }
    absl::StatusOr<SetRef> set = ParseSetRef(part);
    if (!set.ok()) return set.status();
    if (set->name.empty() || set->name == "-" || set->name == "?") {
      return Bad(text, "names no set beside a comma: write A,B");
    }
    // Also in two versions: which of them decides would not be clear.
    if (!names.insert(set->name).second) {
      return Bad(text, absl::StrCat("names the set ", set->name, " twice"));
    }
    selection.sets.push_back(*std::move(set));
  }
  if (selection.sets.empty()) {
    return Bad(text, "names rules to leave out and no set: write A,-RULE");
  }
  // Sorted, and each once: readers search in them (binary_search), and equal
  // selections have equal texts.
  selection.without.assign(without.begin(), without.end());
  selection.advised.assign(advised.begin(), advised.end());
  return selection;
}

std::string ToText(const RuleSelection& selection) {
  std::vector<std::string> parts;
  for (const SetRef& set : selection.sets) parts.push_back(ToText(set));
  for (const std::string& rule : selection.without) {
    parts.push_back(absl::StrCat("-", rule));
  }
  for (const std::string& rule : selection.advised) {
    parts.push_back(absl::StrCat("?", rule));
  }
  return absl::StrJoin(parts, ",");
}

}  // namespace traincheck
