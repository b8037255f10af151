#include "inference/learning.h"

#include <algorithm>
#include <set>

#include "invariants/identity.h"
#include "invariants/relations/registry.h"

namespace traincheck {

namespace {

constexpr char kNeverSeen[] = "its subject was not seen";
constexpr char kUndecided[] = "undecided in a run that has its subject";
constexpr char kViolated[] = "violated in a reference";
constexpr char kNotRefutable[] = "could not have been refuted";
constexpr char kCovered[] = "covered by a broader rule";

// Generate, judge, judge again.
constexpr size_t kPasses = 3;

// Hands the verdicts of one relation in one run to the candidates' scores.
class ScoreSink : public RuleSink {
 public:
  explicit ScoreSink(const RecordedRun& run) : run_(run) {}

  void AddRule(Rule rule, Score* score) {
    rules_.push_back(std::move(rule));
    scores_.push_back(score);
  }
  const std::vector<Rule>& rules() const { return rules_; }

  void OnVerdict(const Verdict& verdict) override {
    scores_[verdict.rule]->Add(run_.run(), run_.experiment(), verdict);
  }
  bool wants_examples() const override { return true; }
  void OnExample(size_t rule, const Example& example) override {
    scores_[rule]->AddExample(run_.experiment(), example);
  }

 private:
  const RecordedRun& run_;
  std::vector<Rule> rules_;
  std::vector<Score*> scores_;
};

bool Wanted(const InferenceOptions& options, const Relation& relation) {
  return options.relations.empty() ||
         std::find(options.relations.begin(), options.relations.end(),
                   relation.name()) != options.relations.end();
}

std::string Canonical(const nlohmann::json& json) {
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace

Learning::Learning(const std::vector<const RecordedRun*>& runs,
                   const InferenceOptions& options,
                   const std::function<void(double)>& progress)
    : runs_(runs), options_(options), progress_(progress) {}

void Learning::Progress() {
  ++passes_done_;
  if (progress_) {
    progress_(static_cast<double>(passes_done_) /
              static_cast<double>(kPasses * std::max<size_t>(1, runs_.size())));
  }
}

void Learning::Generate() {
  for (const RecordedRun* run : runs_) {
    std::vector<std::pair<const Relation*, std::unique_ptr<Generator>>> all;
    std::vector<RunObserver*> observers;
    for (const Relation* relation : Relations()) {
      if (!Wanted(options_, *relation)) continue;
      all.emplace_back(relation, relation->NewGenerator());
      observers.push_back(all.back().second.get());
    }
    run->Replay(std::move(observers));
    for (auto& [relation, generator] : all) {
      for (Hypothesis& hypothesis : generator->Take()) {
        Candidate& candidate =
            candidates_[{relation->name(), Canonical(hypothesis.parameters)}];
        candidate.relation = relation;
        candidate.invariant.relation = relation->name();
        candidate.invariant.parameters = std::move(hypothesis.parameters);
        candidate.invariant.scope = hypothesis.scope;
        for (const nlohmann::json& broader : hypothesis.broader) {
          candidate.broader.push_back(Canonical(broader));
        }
      }
    }
    Progress();
  }
}

void Learning::JudgeRun(const RecordedRun& run,
                        const std::function<bool(const Candidate&)>& wanted) {
  std::vector<std::unique_ptr<ScoreSink>> sinks;
  std::vector<std::unique_ptr<RunObserver>> evaluators;
  std::vector<RunObserver*> observers;
  for (const Relation* relation : Relations()) {
    auto sink = std::make_unique<ScoreSink>(run);
    for (auto& [key, candidate] : candidates_) {
      if (candidate.relation != relation || candidate.dropped ||
          !wanted(candidate)) {
        continue;
      }
      sink->AddRule({&candidate.invariant, candidate.precondition},
                    &candidate.score);
    }
    if (sink->rules().empty()) continue;
    evaluators.push_back(relation->NewEvaluator(sink->rules(), sink.get()));
    observers.push_back(evaluators.back().get());
    sinks.push_back(std::move(sink));
  }
  if (!observers.empty()) run.Replay(std::move(observers));
}

void Learning::Judge(const std::function<bool(const Candidate&)>& wanted) {
  for (const RecordedRun* run : runs_) {
    JudgeRun(*run, wanted);
    Progress();
  }
}

// After the first look.
void Learning::Weigh(Candidate* candidate) {
  const Score& score = candidate->score;
  if (!score.seen()) {
    candidate->dropped = kNeverSeen;
  } else if (!score.DecidedEverywhere()) {
    candidate->dropped = kUndecided;
  }
  if (candidate->dropped || score.violated() == 0) return;
  const auto precondition = LearnPrecondition(
      candidate->relation->FactsFor(candidate->invariant.parameters),
      score.Examples());
  if (!precondition) {
    candidate->dropped = kViolated;
    return;
  }
  // A condition that only one program asked for may be its accident.
  if (score.refuting().size() < 2) {
    candidate->invariant.scope = Scope::kExperiment;
  }
  candidate->precondition = *precondition;
  candidate->score = Score();
}

// After the second, under the precondition.
void Learning::WeighAgain(Candidate* candidate) {
  if (candidate->dropped || candidate->precondition.empty()) return;
  if (candidate->score.violated() > 0) {
    candidate->dropped = kViolated;
  } else if (!candidate->score.seen()) {
    candidate->dropped = kNeverSeen;
  } else if (!candidate->score.DecidedEverywhere()) {
    candidate->dropped = kUndecided;
  }
}

void Learning::CheckSupport(Candidate* candidate) {
  if (!candidate->dropped && !candidate->score.Refutable()) {
    candidate->dropped = kNotRefutable;
  }
}

void Learning::Suppress() {
  std::set<std::pair<std::string, std::string>> shipped;
  for (const auto& [key, candidate] : candidates_) {
    // A broader rule under a condition says less than it seems to.
    if (!candidate.dropped && candidate.precondition.empty()) {
      shipped.insert(key);
    }
  }
  for (auto& [key, candidate] : candidates_) {
    for (const std::string& broader : candidate.broader) {
      if (!candidate.dropped && shipped.count({key.first, broader})) {
        candidate.dropped = kCovered;
      }
    }
  }
}

InferenceResult Learning::Result() {
  InferenceResult result;
  for (auto& [key, candidate] : candidates_) {
    if (candidate.dropped) {
      ++result.dropped[candidate.dropped];
      continue;
    }
    Invariant invariant = std::move(candidate.invariant);
    invariant.precondition = candidate.precondition.ToJson();
    invariant.support = candidate.score.passed();
    const auto& experiments = candidate.score.experiments();
    invariant.experiments.assign(experiments.begin(), experiments.end());
    invariant.id = IdOf(invariant);
    invariant.text = TextOf(invariant);
    result.invariants.push_back(std::move(invariant));
  }
  std::sort(result.invariants.begin(), result.invariants.end(),
            [](const Invariant& a, const Invariant& b) { return a.id < b.id; });
  return result;
}

InferenceResult Learning::Learn() {
  Generate();
  Judge([](const Candidate&) { return true; });
  for (auto& [key, candidate] : candidates_) Weigh(&candidate);
  Judge([](const Candidate& candidate) {
    return !candidate.precondition.empty();
  });
  for (auto& [key, candidate] : candidates_) {
    WeighAgain(&candidate);
    CheckSupport(&candidate);
  }
  Suppress();
  return Result();
}

}  // namespace traincheck
