#include "invariants/library/library.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "invariants/library/documents.h"
#include "invariants/sets/set_json.h"
#include "invariants/sets/set_merge.h"
#include "invariants/sets/set_ref.h"

namespace traincheck {

absl::StatusOr<std::vector<InvariantSet>> BuiltInFamilies() {
  std::vector<InvariantSet> families;
  for (const EmbeddedText* document = kDocuments; document->name != nullptr;
       ++document) {
    // By the strict reader of users' sets: a slip in a document is then an
    // error of the build's tests, and not a rule that says something else.
    absl::StatusOr<InvariantSet> family = SetFromJsonUntrusted(document->text);
    if (!family.ok()) {
      return absl::InternalError(
          absl::StrCat("the built-in rules of ", document->name,
                       ".json: ", family.status().message()));
    }
    families.push_back(*std::move(family));
  }
  return families;
}

absl::StatusOr<InvariantSet> BuiltInRules() {
  const absl::StatusOr<std::vector<InvariantSet>> families = BuiltInFamilies();
  if (!families.ok()) return families.status();
  // No rule is in two families (library_test), so this puts them one beside the
  // other.
  InvariantSet rules = MergeSets(*families);
  rules.name = kBuiltInSet;
  rules.version = 0;
  return rules;
}

}  // namespace traincheck
