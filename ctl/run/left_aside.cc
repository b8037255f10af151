#include "ctl/run/left_aside.h"

#include <algorithm>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "invariants/sets/set_ref.h"
#include "nlohmann/json.hpp"

namespace traincheck::ctl {
namespace {

constexpr size_t kMaxShown = 5;

// The message has the scope of a rule and not its experiments, so these are
// read from the rule's own JSON. A rule that cannot be read names none.
std::set<std::string> ExperimentsOf(const v1::SetDetail& set) {
  std::set<std::string> experiments;
  for (const v1::Invariant& invariant : set.invariants()) {
    const auto json = nlohmann::json::parse(invariant.json(), nullptr,
                                            /*allow_exceptions=*/false);
    if (!json.is_object() || !json.contains("experiments")) continue;
    for (const auto& name : json["experiments"]) {
      if (name.is_string()) experiments.insert(name.get<std::string>());
    }
  }
  return experiments;
}

bool IsGeneral(const v1::Invariant& invariant) {
  return invariant.scope() == "general";
}

}  // namespace

// The usual case: a set was learned from runs of one experiment, and this run
// was started under another name.
std::string LeftAsideText(const v1::SetDetail& set,
                          const std::string& experiment) {
  const std::set<std::string> all = ExperimentsOf(set);
  // Some rules of the set apply to the run, so it is not left aside as a whole.
  if (all.contains(experiment) ||
      std::any_of(set.invariants().begin(), set.invariants().end(),
                  IsGeneral)) {
    return "";
  }
  const std::string rules =
      absl::StrCat("the rules of set ", set.summary().name());
  // Imported from a file of TrainCheck's without --experiment.
  if (all.empty()) {
    return absl::StrCat(rules, " name no experiment and apply to no run: ",
                        "import them with --experiment");
  }
  auto end = all.begin();
  for (size_t i = 0; i < kMaxShown && end != all.end(); ++i) ++end;
  std::string names = absl::StrJoin(all.begin(), end, ", ");
  if (end != all.end()) {
    absl::StrAppend(&names, " and ", all.size() - kMaxShown, " more");
  }
  const bool one = all.size() == 1;
  return absl::StrCat(rules, " are of experiment", one ? " " : "s ", names,
                      ", this run is ", experiment, ": give --experiment ",
                      one ? names : "with one of them");
}

std::string WhyLeftAside(Client* client, const std::string& set,
                         const std::string& experiment,
                         const v1::CheckProgress& check) {
  // Most checks leave nothing aside, and a set may be large to fetch.
  if (check.not_applied() == 0) return "";
  const auto selection = ParseSelection(set);
  if (!selection.ok()) return "";
  std::vector<std::string> texts;
  for (const SetRef& ref : selection->sets) {
    const auto detail = client->GetSet(ToText(ref));
    // The set may have been deleted meanwhile, and an explanation is not worth
    // an error.
    if (!detail.ok()) continue;
    const std::string text = LeftAsideText(*detail, experiment);
    if (!text.empty()) texts.push_back(text);
  }
  return absl::StrJoin(texts, "; ");
}

}  // namespace traincheck::ctl
