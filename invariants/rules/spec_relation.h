// The frame of a relation, or a form of one: the specification of a rule, what
// makes hypotheses, and what judges. process_relation.h and rank_relation.h
// bring the two kinds of judges, relation_forms.h joins forms.
//
// Spec has
//   static absl::StatusOr<Spec> Parse(const nlohmann::json& parameters,
//                                     const std::string& path);
//   std::string Describe() const;
//   void AddNeeds(CaptureNeeds* needs) const;
//   std::vector<const Fact*> Facts() const;  (or static)
// where rules, or some of them, are the program's structure (rule.h)
//   bool is_structure() const;  (or static constexpr)
// where others' programs say nothing of them
//   static constexpr bool kIsHabit = true;
// and where some of these facts need guards (rule.h)
//   std::vector<nlohmann::json> GuardsOf(const Fact& fact) const;
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

template <typename Spec>
class ParsedRule : public Rule {
 public:
  ParsedRule(const Relation* relation, nlohmann::json parameters, Spec parsed)
      : Rule(relation, std::move(parameters), parsed.Facts()),
        spec(std::move(parsed)) {}

  std::string Describe() const override { return spec.Describe(); }
  void AddNeeds(CaptureNeeds* needs) const override { spec.AddNeeds(needs); }
  bool is_structure() const override {
    if constexpr (requires { spec.is_structure(); }) return spec.is_structure();
    return false;
  }
  bool is_habit() const override {
    if constexpr (requires { Spec::kIsHabit; }) return Spec::kIsHabit;
    return false;
  }
  std::vector<nlohmann::json> GuardsOf(const Fact& fact) const override {
    if constexpr (requires { spec.GuardsOf(fact); }) {
      return spec.GuardsOf(fact);
    } else {
      return {};
    }
  }

  const Spec spec;
};

// A rule as what judges it has it.
template <typename SpecT>
struct SpecRule {
  // REQUIRES: a relation of this Spec parsed it.
  explicit SpecRule(const JudgedRule& judged)
      : index(judged.number),
        rule(judged.rule),
        precondition(judged.precondition),
        spec(static_cast<const ParsedRule<SpecT>&>(*rule).spec) {}

  size_t index;  // in verdicts
  RulePtr rule;
  Precondition precondition;
  const SpecT& spec;  // of `rule`
};

// For a Seen as hypothesis_set.h has it.
template <typename Seen>
std::unique_ptr<Generator> NewSeenGenerator() {
  return std::make_unique<SeenGenerator<Seen>>();
}

template <typename Spec, typename Evaluator>
class SpecRelation : public Relation {
 public:
  // `make_generator` is null for a form whose hypotheses its relation makes
  // (relation_forms.h); NewGenerator is not called then.
  SpecRelation(const char* name, MakeGenerator make_generator)
      : name_(name), make_generator_(make_generator) {}

  const char* name() const override { return name_; }

  absl::StatusOr<RulePtr> Parse(const nlohmann::json& parameters,
                                const std::string& path) const override {
    absl::StatusOr<Spec> spec = Spec::Parse(parameters, path);
    if (!spec.ok()) return spec.status();
    return std::make_shared<ParsedRule<Spec>>(this, parameters,
                                              *std::move(spec));
  }
  std::unique_ptr<Generator> NewGenerator() const override {
    return make_generator_();
  }
  std::unique_ptr<RunObserver> NewEvaluator(
      const std::vector<JudgedRule>& rules, RuleSink* sink) const override {
    return std::make_unique<Evaluator>(
        std::vector<SpecRule<Spec>>(rules.begin(), rules.end()), sink);
  }

 private:
  const char* const name_;
  const MakeGenerator make_generator_;
};

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_RULES_SPEC_RELATION_H_
