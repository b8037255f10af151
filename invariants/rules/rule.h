// One rule of a relation, valid by construction: Relation::Parse makes it of
// its parameters, once, and everything that is asked of a rule is asked of this
// object.
//
// Threads: constant; shared by all that judge it.
#ifndef TRAINCHECK_INVARIANTS_RULES_RULE_H_
#define TRAINCHECK_INVARIANTS_RULES_RULE_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "invariants/facts/fact.h"
#include "invariants/rules/capture_needs.h"
#include "invariants/rules/precondition.h"
#include "nlohmann/json.hpp"

namespace traincheck {

class Relation;

enum class Scope {
  kGeneral,     // role level: applies to every run
  kExperiment,  // applies to runs of the experiments that it was learned from
};

class Rule {
 public:
  Rule(const Relation* relation, nlohmann::json parameters,
       std::vector<const Fact*> facts)
      : relation_(relation),
        parameters_(std::move(parameters)),
        facts_(std::move(facts)) {}
  virtual ~Rule() = default;
  Rule(const Rule&) = delete;
  Rule& operator=(const Rule&) = delete;

  // The relation, or the form of one, that parsed it and judges it.
  const Relation& relation() const { return *relation_; }
  // "Consistent", "EventContain"
  const char* relation_name() const;
  // As they were parsed: ids are made of them.
  const nlohmann::json& parameters() const { return parameters_; }
  // Over which a precondition may be learned: known when the window opens, and
  // never the one whose absence the rule is to report.
  const std::vector<const Fact*>& facts() const { return facts_; }
  std::vector<FactValue> ReadFacts(const FactSubject& subject) const;

  // In plain English, without its precondition.
  virtual std::string Describe() const = 0;
  // What must be recorded for it to be decided, besides what the facts of its
  // precondition need.
  virtual void AddNeeds(CaptureNeeds* needs) const = 0;
  // Does it know how a program is written (which functions it calls, how often,
  // with what), and not what is right or wrong? A program that was changed on
  // purpose breaks it, too: where it is learned, its violations are advice, and
  // they explain no other violation.
  virtual bool is_structure() const { return false; }
  // Is it judged in the programs in which it was seen alone? What others do
  // says nothing of it.
  virtual bool is_habit() const { return false; }
  // Of a fact that it offers and whose absence would silence it: parameters of
  // the rules of its relation of which one must ship with it. Empty: the fact
  // needs no guard.
  virtual std::vector<nlohmann::json> GuardsOf(const Fact& fact) const {
    return {};
  }

 private:
  const Relation* const relation_;
  const nlohmann::json parameters_;
  const std::vector<const Fact*> facts_;
};

using RulePtr = std::shared_ptr<const Rule>;

// A rule as an evaluator is given it.
struct JudgedRule {
  // In its verdicts; those of one evaluator differ.
  size_t number = 0;
  RulePtr rule;
  Precondition precondition;
};

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_RULES_RULE_H_
