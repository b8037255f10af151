#include "invariants/relations/event_contain/event_contain.h"

#include "base/json_reader.h"
#include "invariants/relations/event_contain/contain_calls.h"
#include "invariants/relations/event_contain/contain_cleared.h"
#include "invariants/relations/event_contain/contain_facts.h"
#include "invariants/relations/event_contain/contain_generator.h"
#include "invariants/relations/event_contain/contain_kept.h"
#include "invariants/relations/event_contain/contain_reached.h"
#include "invariants/relations/event_contain/contain_spans.h"
#include "invariants/relations/event_contain/contain_updates.h"
#include "invariants/rules/relation_forms.h"

namespace traincheck {

namespace {

// Must know every row of kStates (contain_spec.cc): a kind of state that is not
// named here goes to ContainUpdates, which would judge it as an update.
const Relation* FormOf(const nlohmann::json& parameters) {
  const nlohmann::json& event = Member(parameters, "event");
  if (Member(event, "kind") != "state") {
    const bool span = Member(Member(parameters, "window"), "kind") == "span";
    return span ? ContainSpans() : ContainCalls();
  }
  if (!Member(event, "fact").is_null()) return ContainFacts();
  const nlohmann::json& is = Member(event, "is");
  if (is == "cleared") return ContainCleared();
  if (is == "kept") return ContainKept();
  if (is == "reached" || is == "reached_at_ends") return ContainReached();
  // All forms read their parameters alike (ContainSpec): what is decided here
  // is only who judges. Gradients that change are an event of the backward's
  // own call.
  const bool in_backward =
      is == "changed" && Member(event, "of") == "parameter.grad";
  return in_backward ? ContainCalls() : ContainUpdates();
}

}  // namespace

const Relation* EventContain() {
  static const auto* const kRelation = new RelationForms(
      {ContainCalls(), ContainSpans(), ContainUpdates(), ContainCleared(),
       ContainKept(), ContainReached(), ContainFacts()},
      FormOf, NewContainGenerator);
  return kRelation;
}

}  // namespace traincheck
