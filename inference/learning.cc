#include "inference/learning.h"

#include <algorithm>
#include <memory>
#include <thread>

#include "inference/name_filter.h"
#include "inference/parallel.h"
#include "inference/selection.h"
#include "invariants/relations/registry.h"
#include "invariants/rules/rule_notes.h"
#include "invariants/sets/identity.h"

namespace traincheck {

namespace {

constexpr char kNotWanted[] = "left out by the options";
constexpr char kTooMany[] = "over the limit of hypotheses";
// A relation's generator has proposed what its own Parse refuses: a defect of
// the relation, which costs this rule and not the job.
constexpr char kNotARule[] = "not a rule of its relation";

// Generate, judge, judge again.
constexpr size_t kPasses = 3;

// Hands the verdicts of one relation in one run to the candidates' scores.
class ScoreSink : public RuleSink {
 public:
  void AddRule(Candidate* candidate) {
    rules_.push_back({rules_.size(), candidate->invariant.rule,
                      candidate->invariant.precondition});
    scores_.emplace_back(candidate, RunScore());
  }
  const std::vector<JudgedRule>& rules() const { return rules_; }
  std::vector<std::pair<Candidate*, RunScore>> TakeScores() {
    return std::move(scores_);
  }

  void OnVerdict(const Verdict& verdict) override {
    scores_[verdict.rule].second.Add(verdict);
  }
  // A checker has no use for them; here they are what preconditions are learned
  // from.
  bool wants_examples() const override { return true; }
  void OnExample(size_t rule, const Example& example) override {
    scores_[rule].second.examples.Add(example);
  }

 private:
  std::vector<JudgedRule> rules_;
  std::vector<std::pair<Candidate*, RunScore>> scores_;
};

void ParseRule(const Hypothesis& hypothesis, Candidate* candidate) {
  auto rule = candidate->relation->Parse(hypothesis.parameters, "");
  if (rule.ok()) {
    candidate->invariant.rule = *std::move(rule);
  } else {
    candidate->dropped = kNotARule;
  }
}

bool IsAsked(const InferenceOptions& options, const Relation& relation) {
  return options.relations.empty() ||
         std::find(options.relations.begin(), options.relations.end(),
                   relation.name()) != options.relations.end();
}

// Where a rule comes from, for people.
nlohmann::json OriginOf(const Candidate& candidate,
                        const std::vector<const RecordedRun*>& runs) {
  nlohmann::json seen = nlohmann::json::array();
  for (const RecordedRun* run : runs) {
    const auto witness = candidate.score.witnesses().find(run->info().run);
    if (witness == candidate.score.witnesses().end()) continue;
    const std::optional<int64_t> step = witness->second.step;
    seen.push_back({{"run", run->info().run},
                    {"torch", run->info().torch_version},
                    {"step", step ? nlohmann::json(*step) : nullptr}});
  }
  return {{"format", "learned"},
          {"units", candidate.score.units()},
          {"chance", ChanceOf(candidate.score.varied())},
          {"runs", std::move(seen)}};
}

// A habit is how a program is written: one that has never shown it neither
// supports nor refutes it.
bool Concerns(const Candidate& candidate, const ReferenceRun& run) {
  return !candidate.invariant.rule->is_habit() ||
         candidate.programs.contains(run.program);
}

}  // namespace

Learning::Learning(const std::vector<const RecordedRun*>& runs,
                   const InferenceOptions& options,
                   const std::function<void(double)>& progress)
    : runs_(runs),
      options_(options),
      progress_(progress),
      threads_(ThreadCount()) {}

size_t Learning::ThreadCount() const {
  if (options_.threads > 0) return options_.threads;
  return std::max(1u, std::thread::hardware_concurrency());
}

void Learning::Divide() {
  std::vector<const Relation*> relations;
  for (const Relation* relation : Relations()) {
    if (IsAsked(options_, *relation)) relations.push_back(relation);
  }
  const size_t runs = std::max<size_t>(1, runs_.size());
  // Each piece reads its run again, so a run is divided only where there are
  // fewer runs than threads.
  const size_t pieces = std::clamp<size_t>(
      (threads_ + runs - 1) / runs, 1, std::max<size_t>(1, relations.size()));
  for (const RecordedRun* run : runs_) {
    for (size_t piece = 0; piece < pieces; ++piece) {
      // The first piece collects the run's models, too (Generate).
      Part part{run, {}, piece == 0};
      for (size_t i = piece; i < relations.size(); i += pieces) {
        part.relations.push_back(relations[i]);
      }
      parts_.push_back(std::move(part));
    }
  }
}

void Learning::ForEachPart(const std::function<void(size_t)>& work) {
  RunInParallel(parts_.size(), threads_, [&](size_t part) {
    work(part);
    Progress();
  });
}

void Learning::Progress() {
  // Held while progress_ is called, which may be by one thread at a time.
  absl::MutexLock lock(&telling_);
  ++parts_done_;
  const size_t all = kPasses * std::max<size_t>(1, parts_.size());
  if (progress_) {
    progress_(static_cast<double>(parts_done_) / static_cast<double>(all));
  }
}

void Learning::AddHypothesis(const Relation& relation,
                             const std::string& program,
                             Hypothesis hypothesis) {
  const CandidateKey key = KeyOf(relation, hypothesis.parameters);
  const auto [found, added] = candidates_.try_emplace(key);
  Candidate& candidate = found->second;
  if (added) {
    if (!IsWanted(hypothesis.parameters, options_)) {
      candidate.dropped = kNotWanted;
    } else if (++hypotheses_[relation.name()] > options_.max_hypotheses) {
      // Which ones are over it depends on the order in which they come: that of
      // the parts (Generate).
      candidate.dropped = kTooMany;
    }
    candidate.relation = &relation;
    candidate.invariant.scope = hypothesis.scope;
    // A hypothesis that is dropped stays in the table without a rule: Result
    // counts it by its reason.
    if (candidate.dropped.empty()) ParseRule(hypothesis, &candidate);
  }
  ++candidate.runs;
  candidate.programs.insert(program);
  for (const Hypothesis::Broader& broader : hypothesis.broader) {
    Implied implied{{KeyOf(relation, broader.parameters)}, broader.why};
    // Both together imply it: that A comes before C follows from A before B and
    // B before C.
    if (!broader.with.is_null()) {
      implied.by.push_back(KeyOf(relation, broader.with));
    }
    ++candidate.implied[std::move(implied)];
  }
}

void Learning::Generate() {
  struct Found {
    std::vector<std::pair<const Relation*, std::vector<Hypothesis>>> hypotheses;
    ModelCollector models;
  };
  std::vector<Found> found(parts_.size());
  ForEachPart([&](size_t number) {
    const Part& part = parts_[number];
    std::vector<std::unique_ptr<Generator>> generators;
    std::vector<RunObserver*> observers;
    for (const Relation* relation : part.relations) {
      generators.push_back(relation->NewGenerator());
      observers.push_back(generators.back().get());
    }
    if (part.first) observers.push_back(&found[number].models);
    part.run->Replay(std::move(observers));
    for (size_t i = 0; i < generators.size(); ++i) {
      found[number].hypotheses.emplace_back(part.relations[i],
                                            generators[i]->Take());
    }
  });
  // In the order of the parts and not of the threads: which hypotheses are over
  // the limit must not depend on which thread was faster.
  for (size_t number = 0; number < parts_.size(); ++number) {
    for (auto& [relation, hypotheses] : found[number].hypotheses) {
      for (Hypothesis& hypothesis : hypotheses) {
        AddHypothesis(*relation, parts_[number].run->info().program,
                      std::move(hypothesis));
      }
    }
    kinds_.Add(parts_[number].run->info().program,
               found[number].models.models());
  }
}

// On any thread: candidates_ is only read, verdicts go into scores of the
// part's own.
std::vector<std::pair<Candidate*, RunScore>> Learning::JudgePart(
    const Part& part, const Wanted& wanted) {
  std::vector<std::unique_ptr<ScoreSink>> sinks;
  std::vector<std::unique_ptr<RunObserver>> evaluators;
  std::vector<RunObserver*> observers;
  for (const Relation* relation : part.relations) {
    auto sink = std::make_unique<ScoreSink>();
    for (auto& [key, candidate] : candidates_) {
      if (candidate.relation == relation && candidate.dropped.empty() &&
          Concerns(candidate, part.run->info()) && wanted(candidate)) {
        sink->AddRule(&candidate);
      }
    }
    if (sink->rules().empty()) continue;
    // All rules of a relation in one evaluator, which shares the work on each
    // event.
    evaluators.push_back(relation->NewEvaluator(sink->rules(), sink.get()));
    observers.push_back(evaluators.back().get());
    sinks.push_back(std::move(sink));
  }
  if (!observers.empty()) part.run->Replay(std::move(observers));
  std::vector<std::pair<Candidate*, RunScore>> scores;
  for (const auto& sink : sinks) {
    for (auto& score : sink->TakeScores()) scores.push_back(std::move(score));
  }
  return scores;
}

void Learning::Judge(const Wanted& wanted) {
  std::vector<std::vector<std::pair<Candidate*, RunScore>>> scores(
      parts_.size());
  ForEachPart([&](size_t number) {
    scores[number] = JudgePart(parts_[number], wanted);
  });
  // Added up when all threads are done and in the order of the parts: this
  // needs no lock, and the sums are the same whoever was faster.
  for (size_t number = 0; number < parts_.size(); ++number) {
    const ReferenceRun& run = parts_[number].run->info();
    for (auto& [candidate, score] : scores[number]) {
      candidate->score.Add(run.run, run.program, score);
    }
  }
}

InferenceResult Learning::Result() {
  InferenceResult result;
  for (auto& [key, candidate] : candidates_) {
    // What was dropped is counted by reason and shown with the job, so that a
    // rule that somebody misses can be explained.
    if (!candidate.dropped.empty()) {
      ++result.dropped[candidate.dropped];
      continue;
    }
    Invariant invariant = std::move(candidate.invariant);
    invariant.support = candidate.score.passed();
    invariant.experiments = candidate.score.Programs();
    invariant.origin = OriginOf(candidate, runs_);
    if (invariant.rule->is_structure()) MakeAdvice(&invariant.origin);
    invariant.id = IdOf(invariant);
    invariant.text = TextOf(invariant);
    result.invariants.push_back(std::move(invariant));
  }
  std::sort(result.invariants.begin(), result.invariants.end(),
            [](const Invariant& a, const Invariant& b) { return a.id < b.id; });
  return result;
}

InferenceResult Learning::Learn() {
  Divide();
  Generate();
  Judge([](const Candidate&) { return true; });
  for (auto& [key, candidate] : candidates_) Weigh(&candidate);
  // Only what got a condition is judged again: its first score counts windows
  // outside of it.
  Judge([](const Candidate& candidate) {
    return !candidate.invariant.precondition.empty();
  });
  for (auto& [key, candidate] : candidates_) {
    WeighAgain(&candidate);
    Settle(options_, kinds_, &candidate);
  }
  // Guards first: a rule that is dropped here must not suppress another.
  DropUnguarded(&candidates_);
  Suppress(&candidates_);
  KeepBest(options_.max_invariants, &candidates_);
  return Result();
}

}  // namespace traincheck
