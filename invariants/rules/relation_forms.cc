#include "invariants/rules/relation_forms.h"

#include "invariants/rules/several.h"

namespace traincheck {

std::unique_ptr<Generator> RelationForms::NewGenerator() const {
  // One generator for all forms, where they make their hypotheses of the same
  // observations.
  if (make_generator_) return make_generator_();
  auto all = std::make_unique<SeveralGenerators>();
  for (const Relation* form : forms_) all->Add(form->NewGenerator());
  return all;
}

std::unique_ptr<RunObserver> RelationForms::NewEvaluator(
    const std::vector<JudgedRule>& rules, RuleSink* sink) const {
  auto all = std::make_unique<Several<RunObserver>>();
  for (const Relation* form : forms_) {
    std::vector<JudgedRule> mine;
    for (const JudgedRule& rule : rules) {
      if (&rule.rule->relation() == form) mine.push_back(rule);
    }
    // A form without rules costs nothing at each event, and saves nothing.
    if (!mine.empty()) all->Add(form->NewEvaluator(mine, sink));
  }
  return all;
}

}  // namespace traincheck
