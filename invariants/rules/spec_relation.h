// The frame of a relation, or a form of one: the specification of a rule, what
// makes hypotheses, and what judges. process_relation.h and rank_relation.h
// bring the two kinds of judges, relation_forms.h joins forms.
//
// Spec has
//   static Spec Parse(const nlohmann::json& parameters,
//                     const std::string& path, absl::Status* status);
//   std::string Describe() const;
//   void AddNeeds(CaptureNeeds* needs) const;
//   std::vector<const Fact*> Facts() const;  (or static)
// Evaluator is a RunObserver made of a std::vector<SpecRule<Spec>> and a
// RuleSink*.
//
// Threads: as relation.h.
#ifndef TRAINCHECK_INVARIANTS_RULES_SPEC_RELATION_H_
#define TRAINCHECK_INVARIANTS_RULES_SPEC_RELATION_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "invariants/rules/hypothesis_set.h"
#include "invariants/rules/relation.h"

namespace traincheck {

template <typename SpecT>
struct SpecRule {
  size_t index = 0;
  const Rule* rule = nullptr;
  SpecT spec;
};

// For a Seen as hypothesis_set.h has it.
template <typename Seen>
std::unique_ptr<Generator> NewSeenGenerator() {
  return std::make_unique<SeenGenerator<Seen>>();
}

using MakeGenerator = std::unique_ptr<Generator> (*)();

template <typename Spec, typename Evaluator>
class SpecRelation : public Relation {
 public:
  SpecRelation(const char* name, MakeGenerator make_generator)
      : name_(name), make_generator_(make_generator) {}

  const char* name() const override { return name_; }

  absl::Status Check(const nlohmann::json& parameters,
                     const std::string& path) const override {
    absl::Status status;
    Spec::Parse(parameters, path, &status);
    return status;
  }
  std::string Describe(const nlohmann::json& parameters) const override {
    return SpecOf(parameters).Describe();
  }
  std::vector<const Fact*> FactsFor(
      const nlohmann::json& parameters) const override {
    return SpecOf(parameters).Facts();
  }
  void AddNeeds(const nlohmann::json& parameters,
                CaptureNeeds* needs) const override {
    SpecOf(parameters).AddNeeds(needs);
  }
  std::unique_ptr<Generator> NewGenerator() const override {
    return make_generator_();
  }
  std::unique_ptr<RunObserver> NewEvaluator(const std::vector<Rule>& rules,
                                            RuleSink* sink) const override {
    std::vector<SpecRule<Spec>> mine;
    for (size_t i = 0; i < rules.size(); ++i) {
      mine.push_back({i, &rules[i], SpecOf(rules[i].invariant->parameters)});
    }
    return std::make_unique<Evaluator>(std::move(mine), sink);
  }

 private:
  // REQUIRES: Check is ok.
  static Spec SpecOf(const nlohmann::json& parameters) {
    absl::Status status;
    return Spec::Parse(parameters, "", &status);
  }

  const char* const name_;
  const MakeGenerator make_generator_;
};

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_RULES_SPEC_RELATION_H_
