// A relation made of several forms, each a relation of its own: their
// parameters tell them apart.
//
// Threads: as relation.h.
#ifndef TRAINCHECK_INVARIANTS_RULES_RELATION_FORMS_H_
#define TRAINCHECK_INVARIANTS_RULES_RELATION_FORMS_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "invariants/rules/relation.h"

namespace traincheck {

class RelationForms : public Relation {
 public:
  // Which form these parameters are of; one of them whatever they are, whose
  // Parse says what is wrong.
  using Pick = const Relation* (*)(const nlohmann::json& parameters);

  // The forms are registered nowhere and have the same name. Each makes its own
  // hypotheses, or `make_generator` makes those of all.
  RelationForms(std::vector<const Relation*> forms, Pick pick,
                MakeGenerator make_generator = nullptr)
      : forms_(std::move(forms)),
        pick_(pick),
        make_generator_(make_generator) {}

  const char* name() const override { return forms_[0]->name(); }
  absl::StatusOr<RulePtr> Parse(const nlohmann::json& parameters,
                                const std::string& path) const override {
    return pick_(parameters)->Parse(parameters, path);
  }
  std::unique_ptr<Generator> NewGenerator() const override;
  std::unique_ptr<RunObserver> NewEvaluator(
      const std::vector<JudgedRule>& rules, RuleSink* sink) const override;

 private:
  const std::vector<const Relation*> forms_;
  const Pick pick_;
  const MakeGenerator make_generator_;
};

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_RULES_RELATION_FORMS_H_
