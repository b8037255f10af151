#include "ctl/run/left_out.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "invariants/sets/set_ref.h"

namespace traincheck::ctl {
namespace {

std::string WhyLeftOut(const std::string& rule,
                       const std::vector<SilencedRule>& silenced,
                       const std::vector<v1::DisabledRule>* disabled) {
  // The repository's file first: its reason was written for this training, the
  // server's for everybody.
  for (const SilencedRule& one : silenced) {
    if (one.rule != rule) continue;
    return absl::StrCat("silenced by ", kRepositoryFile, ": ", one.reason);
  }
  if (disabled == nullptr) {
    return "and why is not known: the server did not say which rules are "
           "disabled on it";
  }
  for (const v1::DisabledRule& one : *disabled) {
    if (one.rule() != rule) continue;
    return absl::StrCat("disabled on the server: ", one.reason());
  }
  // The user wrote ",-RULE" behind the sets.
  return "asked for with the sets";
}

}  // namespace

std::string SelectionInWords(const std::string& text) {
  const auto selection = ParseSelection(text);
  // A selection that this program cannot read is shown as the server wrote it.
  if (!selection.ok()) return text;
  std::vector<std::string> sets;
  for (const SetRef& set : selection->sets) sets.push_back(ToText(set));
  const size_t without = selection->without.size();
  return absl::StrCat(absl::StrJoin(sets, ","),
                      without == 0
                          ? ""
                          : absl::StrCat(" without ", without,
                                         without == 1 ? " rule" : " rules"));
}

// Said at the end of each run, so that nobody forgets what is not looked for.
std::vector<std::string> LeftOutTexts(
    const std::string& text, const std::vector<SilencedRule>& silenced,
    const std::vector<v1::DisabledRule>* disabled) {
  const auto selection = ParseSelection(text);
  if (!selection.ok()) return {};
  std::vector<std::string> texts;
  for (const std::string& rule : selection->without) {
    texts.push_back(absl::StrCat("rule ", rule, " is left out, ",
                                 WhyLeftOut(rule, silenced, disabled)));
  }
  return texts;
}

std::vector<std::string> LeftOutOf(Client* client, const std::string& selection,
                                   const std::vector<SilencedRule>& silenced) {
  auto disabled = client->ListDisabledRules();
  // An older server disables none.
  if (absl::IsUnimplemented(disabled.status())) disabled.emplace();
  return LeftOutTexts(selection, silenced,
                      disabled.ok() ? &*disabled : nullptr);
}

}  // namespace traincheck::ctl
