#include "invariants/relations/registry.h"

#include "invariants/relations/api_arg/api_arg.h"
#include "invariants/relations/api_output/api_output.h"
#include "invariants/relations/api_sequence/api_sequence.h"
#include "invariants/relations/call_count/call_count.h"
#include "invariants/relations/call_returns/call_returns.h"
#include "invariants/relations/collective_contract/collective_contract.h"
#include "invariants/relations/consistent/consistent.h"
#include "invariants/relations/declared_total/declared_total.h"
#include "invariants/relations/event_contain/event_contain.h"
#include "invariants/relations/optimizer_progress/optimizer_progress.h"
#include "invariants/relations/rate_schedule/rate_schedule.h"
#include "invariants/relations/reproduced_steps/reproduced_steps.h"
#include "invariants/relations/saved_equals_live/saved_equals_live.h"
#include "invariants/relations/state_change/state_change.h"
#include "invariants/relations/traincheck_rules/traincheck_rules.h"

namespace traincheck {

const std::vector<const Relation*>& Relations() {
  // Never destroyed: rules point to their relation as long as the process
  // lives.
  static const auto* const kRelations = new std::vector<const Relation*>{
      ApiArg(),
      ApiOutput(),
      ApiSequence(),
      CallCount(),
      CallReturns(),
      CollectiveContract(),
      Consistent(),
      DeclaredTotal(),
      EventContain(),
      OptimizerProgress(),
      RateSchedule(),
      ReproducedSteps(),
      SavedEqualsLive(),
      StateChange(),
      // Relations do not include each other: the one that judges the imported
      // rules is handed in here.
      NewTrainCheckRules(EventContain()).release(),
  };
  return *kRelations;
}

const Relation* FindRelation(const std::string& name) {
  for (const Relation* relation : Relations()) {
    if (name == relation->name()) return relation;
  }
  return nullptr;
}

}  // namespace traincheck
