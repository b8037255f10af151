#include "invariants/relations/traincheck_rules/traincheck_rules.h"

#include <utility>

#include "invariants/relations/traincheck_rules/rule_form.h"
#include "invariants/relations/traincheck_rules/rule_words.h"
#include "invariants/relations/traincheck_rules/translation.h"
#include "invariants/rules/several.h"
#include "invariants/rules/verdicts.h"

namespace traincheck {

namespace {

// Rules that nothing here can judge: unknown at the end of each process.
class Unjudged : public RunObserver {
 public:
  struct Reason {
    size_t rule = 0;
    std::string words;
  };

  Unjudged(std::vector<Reason> reasons, RuleSink* sink)
      : reasons_(std::move(reasons)), sink_(sink) {}

  ProcessObserver* AddProcess(const ProcessFacts& facts) override {
    processes_.push_back(std::make_unique<Process>(this));
    return processes_.back().get();
  }
  void EndRun() override {}

 private:
  class Process : public ProcessObserver {
   public:
    explicit Process(const Unjudged* run) : run_(run) {}

    void OnEnd(const ProcessFacts& facts, ProcessEnd end) override {
      for (const Reason& reason : run_->reasons_) {
        Verdict verdict = NewVerdict(facts, reason.rule, /*object=*/0);
        MarkUnknown(reason.words, &verdict);
        run_->sink_->OnVerdict(verdict);
      }
    }

   private:
    const Unjudged* const run_;
  };

  const std::vector<Reason> reasons_;
  RuleSink* const sink_;
  std::vector<std::unique_ptr<Process>> processes_;
};

// Judges native rules in the name of the imported ones that they stand for.
class Translated : public RunObserver, private RuleSink {
 public:
  Translated(const Relation* native, RuleSink* sink)
      : native_(native), sink_(sink) {}

  void Add(size_t imported, NativeRule native) {
    auto invariant = std::make_unique<Invariant>();
    invariant->relation = native_->name();
    invariant->parameters = std::move(native.parameters);
    auto precondition = Precondition::FromJson(native.precondition, "");
    rules_.push_back({invariant.get(), precondition.ok()
                                           ? *std::move(precondition)
                                           : Precondition()});
    invariants_.push_back(std::move(invariant));
    imported_.push_back(imported);
  }

  // No rule is added any more.
  void Begin() { evaluator_ = native_->NewEvaluator(rules_, this); }

  ProcessObserver* AddProcess(const ProcessFacts& facts) override {
    return evaluator_->AddProcess(facts);
  }
  void GiveUpRank(uint32_t attempt, int32_t rank,
                  const std::string& reason) override {
    evaluator_->GiveUpRank(attempt, rank, reason);
  }
  void EndRun() override { evaluator_->EndRun(); }
  void Fields(Archive& archive) override { evaluator_->Fields(archive); }

 private:
  void OnVerdict(const Verdict& verdict) override {
    Verdict mine = verdict;
    mine.rule = imported_[verdict.rule];
    sink_->OnVerdict(mine);
  }

  const Relation* const native_;
  RuleSink* const sink_;
  std::vector<std::unique_ptr<Invariant>> invariants_;  // of rules_
  std::vector<Rule> rules_;
  std::vector<size_t> imported_;  // by native rule
  std::unique_ptr<RunObserver> evaluator_;
};

class NothingToLearn : public Generator {
 public:
  ProcessObserver* AddProcess(const ProcessFacts& facts) override {
    return &observer_;
  }
  void EndRun() override {}
  std::vector<Hypothesis> Take() override { return {}; }

 private:
  ProcessObserver observer_;  // keeps nothing
};

class TrainCheckRelation : public Relation {
 public:
  explicit TrainCheckRelation(const Relation* native) : native_(native) {}

  const char* name() const override { return "TrainCheck"; }

  absl::Status Check(const nlohmann::json& parameters,
                     const std::string& path) const override {
    return CheckRuleForm(parameters, path);
  }

  std::string Describe(const nlohmann::json& parameters) const override {
    return DescribeRule(parameters);
  }

  // Their preconditions are in their parameters.
  std::vector<const Fact*> FactsFor(const nlohmann::json&) const override {
    return {};
  }

  void AddNeeds(const nlohmann::json& parameters,
                CaptureNeeds* needs) const override {
    for (const NativeRule& native : TranslateRule(parameters).rules) {
      native_->AddNeeds(native.parameters, needs);
    }
  }

  std::unique_ptr<Generator> NewGenerator() const override {
    return std::make_unique<NothingToLearn>();
  }

  std::unique_ptr<RunObserver> NewEvaluator(const std::vector<Rule>& rules,
                                            RuleSink* sink) const override {
    auto translated = std::make_unique<Translated>(native_, sink);
    std::vector<Unjudged::Reason> reasons;
    for (size_t i = 0; i < rules.size(); ++i) {
      Translation translation = TranslateRule(rules[i].invariant->parameters);
      for (NativeRule& native : translation.rules) {
        translated->Add(i, std::move(native));
      }
      if (translation.rules.empty()) {
        reasons.push_back({i, std::move(translation.why_not)});
      }
    }
    translated->Begin();
    auto parts = std::make_unique<Several<RunObserver>>();
    parts->Add(std::move(translated));
    parts->Add(std::make_unique<Unjudged>(std::move(reasons), sink));
    return parts;
  }

 private:
  const Relation* const native_;  // of rules that say the same
};

}  // namespace

std::unique_ptr<Relation> NewTrainCheckRules(const Relation* event_contain) {
  return std::make_unique<TrainCheckRelation>(event_contain);
}

}  // namespace traincheck
