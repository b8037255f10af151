#include "invariants/relations/saved_equals_live/saved_equals_live.h"

#include "base/json_reader.h"
#include "invariants/relations/saved_equals_live/saved_content.h"
#include "invariants/relations/saved_equals_live/saved_moment.h"
#include "invariants/relations/saved_equals_live/saved_resumed.h"
#include "invariants/relations/saved_equals_live/saved_still.h"
#include "invariants/relations/saved_equals_live/saved_whole.h"
#include "invariants/rules/relation_forms.h"

namespace traincheck {

namespace {

// The form of "content" and "loaded" reports what does not fit, with the names
// of all forms.
const Relation* FormOf(const nlohmann::json& parameters) {
  const nlohmann::json& what = Member(parameters, "what");
  if (what == "keys" || what == "modules") return SavedWhole();
  if (what == "moment") return SavedMoment();
  if (what == "still") return SavedStill();
  if (what == "resumed") return SavedResumed();
  return SavedContent();
}

}  // namespace

const Relation* SavedEqualsLive() {
  static const auto* const kRelation =
      new RelationForms({SavedContent(), SavedWhole(), SavedMoment(),
                         SavedStill(), SavedResumed()},
                        FormOf, NewSavedGenerator);
  return kRelation;
}

}  // namespace traincheck
