// Prints docs/built-in-rules.md: every built-in rule in the words that a user
// reads.
#include <cstdio>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "invariants/library/library.h"
#include "invariants/rules/rule_notes.h"

namespace traincheck {
namespace {

constexpr char kHead[] = R"(# Built-in rules

What every healthy training obeys, whatever it trains. The daemon has
these rules built in, as the set `builtin`; no reference run is needed. An *alert*
says that something is wrong; *advice* says that something is unusual and worth
a look. A rule whose subject a training does not use (no DDP, no dropout) says
nothing.

This page is made from the documents in
[invariants/library](../invariants/library/README.md), one a family.
)";

// Families are named "builtin.amp"; the page leaves the first word out.
std::string Title(const std::string& family) {
  return family.substr(family.find('.') + 1);
}

// "- Also breaks: a; b\n"; "" if it brings nothing.
std::string BringsText(const Invariant& rule) {
  const std::vector<std::string> brings = NotesOf(rule.origin).brings;
  if (brings.empty()) return "";
  return absl::StrCat("- Also breaks: ", absl::StrJoin(brings, "; "), "\n");
}

// In the form of Markdown. Each rule has all of these parts (library_test).
std::string RuleText(const Invariant& rule) {
  const auto& origin = rule.origin;
  return absl::StrCat("### ", rule.text, "\n\n- **", origin.value("grade", ""),
                      "** `", rule.id, "` (", rule.rule->relation_name(),
                      ")\n- Headline: ", origin.value("headline", ""),
                      "\n- Why nothing fails: ", origin.value("why", ""),
                      "\n- What to do: ", origin.value("fix", ""), "\n",
                      BringsText(rule), "- See <",
                      origin.value("reference", ""), ">\n\n");
}

int Print() {
  const auto families = BuiltInFamilies();
  if (!families.ok()) {
    std::fprintf(stderr, "%s\n",
                 std::string(families.status().message()).c_str());
    return 1;
  }
  std::string page = kHead;
  for (const InvariantSet& family : *families) {
    absl::StrAppend(&page, "\n## ", Title(family.name), "\n\n");
    for (const Invariant& rule : family.invariants) {
      absl::StrAppend(&page, RuleText(rule));
    }
    // The last rule ends with an empty line, and the next title begins with
    // one.
    page.pop_back();
  }
  std::fputs(page.c_str(), stdout);
  return 0;
}

}  // namespace
}  // namespace traincheck

int main() { return traincheck::Print(); }
