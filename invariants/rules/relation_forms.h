// A relation made of several forms, each a relation of its own: their
// parameters tell them apart.
//
// Threads: as relation.h.
#ifndef TRAINCHECK_INVARIANTS_RULES_RELATION_FORMS_H_
#define TRAINCHECK_INVARIANTS_RULES_RELATION_FORMS_H_

#include <memory>
#include <string>
#include <vector>

#include "invariants/rules/relation.h"

namespace traincheck {

class RelationForms : public Relation {
 public:
  // Which form these parameters are of; one of them whatever they are, whose
  // Check says what is wrong.
  using Pick = const Relation* (*)(const nlohmann::json& parameters);

  // The forms are registered nowhere; their names mean nothing.
  RelationForms(const char* name, std::vector<const Relation*> forms, Pick pick)
      : name_(name), forms_(std::move(forms)), pick_(pick) {}

  const char* name() const override { return name_; }
  absl::Status Check(const nlohmann::json& parameters,
                     const std::string& path) const override {
    return pick_(parameters)->Check(parameters, path);
  }
  std::string Describe(const nlohmann::json& parameters) const override {
    return pick_(parameters)->Describe(parameters);
  }
  std::vector<const Fact*> FactsFor(
      const nlohmann::json& parameters) const override {
    return pick_(parameters)->FactsFor(parameters);
  }
  std::vector<nlohmann::json> GuardsOf(const nlohmann::json& parameters,
                                       const Fact& fact) const override {
    return pick_(parameters)->GuardsOf(parameters, fact);
  }
  void AddNeeds(const nlohmann::json& parameters,
                CaptureNeeds* needs) const override {
    pick_(parameters)->AddNeeds(parameters, needs);
  }
  std::unique_ptr<Generator> NewGenerator() const override;
  std::unique_ptr<RunObserver> NewEvaluator(const std::vector<Rule>& rules,
                                            RuleSink* sink) const override;

 private:
  const char* const name_;
  const std::vector<const Relation*> forms_;
  const Pick pick_;
};

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_RULES_RELATION_FORMS_H_
