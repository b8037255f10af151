// What a relation is made of. Each relation brings its rules (rule.h),
// generation of hypotheses, examples and check together; inference and checker
// run the same evaluator, so that "violated in a reference" is decided by the
// code that checks.
//
// To add one: docs/adding-a-relation.md.
//
// Threads: relations are constant; a generator or evaluator is one object of
// one thread at a time.
#ifndef TRAINCHECK_INVARIANTS_RULES_RELATION_H_
#define TRAINCHECK_INVARIANTS_RULES_RELATION_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "invariants/facts/process_observer.h"
#include "invariants/rules/rule.h"
#include "invariants/trace/archive.h"

namespace traincheck {

enum class Outcome { kPass, kViolated, kUnknown };

// What people are shown of a violated window.
struct Finding {
  std::vector<std::string> apis;
  std::vector<std::string> variables;
  // What else it is about (subjects.h).
  std::vector<std::string> subjects;
  std::vector<std::string> sites;  // most telling first
  // Through which the first of these was reached (ProcessDefinitions).
  std::vector<std::string> callers;
  std::string expected;
  std::string seen;
  std::vector<std::string> evidence;

  void Fields(Archive& archive) {
    archive(apis, variables, subjects, sites, callers, expected, seen,
            evidence);
  }
};

// One window of one rule, judged. Windows of a unit come in their order.
struct Verdict {
  size_t rule = 0;  // JudgedRule::number
  Outcome outcome = Outcome::kPass;
  uint32_t attempt = 0;
  // Number of the process that the rule was judged in; nullopt: of several.
  std::optional<uint32_t> process = {};
  // Whose windows follow each other: an optimizer of a rank, a replica group.
  uint64_t unit = 0;
  std::optional<int64_t> step = 0;  // nullopt: not known
  // Something relevant differs from the unit's window before, so that the
  // rule could have been refuted here.
  bool varied = true;
  // How many things could have refuted it, where it varied: one a window, or
  // each of the values that were compared.
  uint32_t trials = 1;
  // Where it says that little could have refuted a window that is like another:
  // what it was like. Windows with equal contexts are one trial.
  std::optional<uint64_t> context = {};
  // The rule compares ranks: they are part of a violation's identity.
  bool across_ranks = false;
  std::string reason;  // kUnknown: why
  // kViolated only, from here on.
  std::vector<int32_t> ranks;
  // Names the window within its unit, the same however batches interleave.
  std::string label;
  // The same window was reported before, when not all ranks were in.
  bool again = false;
  Finding finding;
};

// One window as the learner of preconditions sees it.
struct Example {
  bool holds = false;
  std::vector<FactValue> facts;  // in the order of Rule::facts
};

class RuleSink {
 public:
  virtual ~RuleSink() = default;
  virtual void OnVerdict(const Verdict& verdict) = 0;
  // Evaluators make examples only for a sink that wants them.
  virtual bool wants_examples() const { return false; }
  virtual void OnExample(size_t rule, const Example& example) {}
};

// What looks at all processes of one run.
class RunObserver {
 public:
  virtual ~RunObserver() = default;
  // The observer of one more process. It is destroyed before this object, and
  // with `facts`: at the end of the run, or once its process has ended. What is
  // needed of the process after that is copied in OnEnd.
  virtual std::unique_ptr<ProcessObserver> AddProcess(
      const ProcessFacts& facts) = 0;
  // No process came for this rank, and none is waited for any more.
  virtual void GiveUpRank(uint32_t attempt, int32_t rank,
                          const std::string& reason) {}
  // No more events will come.
  virtual void EndRun() = 0;
  // Saves or restores what it has seen; REQUIRES: AddProcess was called for
  // the same processes, without those that were let go. What a process's
  // observer has seen is not part of it.
  virtual void Fields(Archive& archive) {}
};

struct Hypothesis {
  // Of the same relation: where it ships, this one says nothing new.
  struct Broader {
    nlohmann::json parameters;
    const char* why = "";  // "a role says it of all optimizers"
    // Not null: only together with this one.
    nlohmann::json with = nullptr;
  };

  nlohmann::json parameters;
  // The widest in which it may be shipped.
  Scope scope = Scope::kExperiment;
  std::vector<Broader> broader;
};

// Looks at one run and makes hypotheses of what it sees. REQUIRES: processes
// are kept until EndRun.
class Generator : public RunObserver {
 public:
  // After EndRun; each hypothesis once.
  virtual std::vector<Hypothesis> Take() = 0;
};

using MakeGenerator = std::unique_ptr<Generator> (*)();

class Relation {
 public:
  virtual ~Relation() = default;
  // A form has the name of its relation.
  virtual const char* name() const = 0;
  // Errors name the JSON path below `path`.
  [[nodiscard]] virtual absl::StatusOr<RulePtr> Parse(
      const nlohmann::json& parameters, const std::string& path) const = 0;
  virtual std::unique_ptr<Generator> NewGenerator() const = 0;
  // REQUIRES: Parse of this relation made the rules. `sink` must outlive the
  // evaluator.
  virtual std::unique_ptr<RunObserver> NewEvaluator(
      const std::vector<JudgedRule>& rules, RuleSink* sink) const = 0;
};

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_RULES_RELATION_H_
