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

  std::unique_ptr<ProcessObserver> AddProcess(
      const ProcessFacts& facts) override {
    return std::make_unique<Process>(this);
  }
  void EndRun() override {}

 private:
  class Process : public ProcessObserver {
   public:
    explicit Process(const Unjudged* run) : run_(run) {}

    // One verdict a process: users see that the rule was there and was not
    // judged.
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
};

// One of TrainCheck's rules and what it means here.
class ImportedRule : public Rule {
 public:
  // `natives` are empty where nothing here can judge it: `why_not` says why.
  ImportedRule(const Relation* relation, const nlohmann::json& parameters,
               std::vector<JudgedRule> natives, std::string why_not)
      // Its precondition is in its parameters.
      : Rule(relation, parameters, /*facts=*/{}),
        natives_(std::move(natives)),
        why_not_(std::move(why_not)) {}

  std::string Describe() const override { return DescribeRule(parameters()); }
  // A rule that cannot be judged asks for no records.
  void AddNeeds(CaptureNeeds* needs) const override {
    for (const JudgedRule& native : natives_) native.rule->AddNeeds(needs);
  }
  // Such rules say what calls and variables of the reference program did, and
  // not what is right.
  bool is_structure() const override { return true; }
  const std::vector<JudgedRule>& natives() const { return natives_; }
  const std::string& why_not() const { return why_not_; }

 private:
  const std::vector<JudgedRule> natives_;
  const std::string why_not_;
};

// Judges native rules in the name of the imported ones that they stand for.
class Translated : public RunObserver, private RuleSink {
 public:
  explicit Translated(RuleSink* sink) : sink_(sink) {}

  void Add(size_t imported, JudgedRule native) {
    // Several native rules may stand for one imported rule, and the evaluator's
    // numbers must differ.
    native.number = imported_.size();
    natives_.push_back(std::move(native));
    imported_.push_back(imported);
  }

  // No rule is added any more.
  void Begin(const Relation& native) {
    evaluator_ = native.NewEvaluator(natives_, this);
  }

  std::unique_ptr<ProcessObserver> AddProcess(
      const ProcessFacts& facts) override {
    return evaluator_->AddProcess(facts);
  }
  void GiveUpRank(uint32_t attempt, int32_t rank,
                  const std::string& reason) override {
    evaluator_->GiveUpRank(attempt, rank, reason);
  }
  void EndRun() override { evaluator_->EndRun(); }
  void Fields(Archive& archive) override { evaluator_->Fields(archive); }

 private:
  // The finding stays as the native rule's, only the number is the imported
  // one's. Examples are not wanted: nothing is learned of imported rules.
  void OnVerdict(const Verdict& verdict) override {
    Verdict mine = verdict;
    mine.rule = imported_[verdict.rule];
    sink_->OnVerdict(mine);
  }

  RuleSink* const sink_;
  std::vector<JudgedRule> natives_;
  std::vector<size_t> imported_;  // by number of the native rule
  std::unique_ptr<RunObserver> evaluator_;
};

class NothingToLearn : public Generator {
 public:
  std::unique_ptr<ProcessObserver> AddProcess(
      const ProcessFacts& facts) override {
    return std::make_unique<ProcessObserver>();  // keeps nothing
  }
  void EndRun() override {}
  std::vector<Hypothesis> Take() override { return {}; }
};

class TrainCheckRelation : public Relation {
 public:
  explicit TrainCheckRelation(const Relation* native) : native_(native) {}

  const char* name() const override { return "TrainCheck"; }

  absl::StatusOr<RulePtr> Parse(const nlohmann::json& parameters,
                                const std::string& path) const override {
    absl::Status status = CheckRuleForm(parameters, path);
    if (!status.ok()) return status;
    // A rule that is well formed is kept, even if nothing here can judge it: it
    // is shown as unknown with its reason.
    Translation translation = TranslateRule(parameters);
    std::vector<JudgedRule> natives;
    for (NativeRule& native : translation.rules) {
      const auto rule = native_->Parse(native.parameters, "");
      if (rule.ok()) {
        // The evaluator gives the numbers (Translated::Add).
        natives.push_back({0, *rule, std::move(native.precondition)});
        continue;
      }
      // The native rules mean the imported one only together, so one that is
      // refused takes the others with it.
      natives.clear();
      translation.why_not = "an imported rule is not judged on runs of ours: " +
                            std::string(rule.status().message());
      break;
    }
    return std::make_shared<ImportedRule>(this, parameters, std::move(natives),
                                          std::move(translation.why_not));
  }

  std::unique_ptr<Generator> NewGenerator() const override {
    return std::make_unique<NothingToLearn>();
  }

  std::unique_ptr<RunObserver> NewEvaluator(
      const std::vector<JudgedRule>& rules, RuleSink* sink) const override {
    auto translated = std::make_unique<Translated>(sink);
    // Each rule goes to one of the two parts.
    std::vector<Unjudged::Reason> reasons;
    for (const JudgedRule& judged : rules) {
      // The cast is safe: Parse of this relation made the rules (relation.h).
      const auto& rule = static_cast<const ImportedRule&>(*judged.rule);
      for (const JudgedRule& native : rule.natives()) {
        translated->Add(judged.number, native);
      }
      if (rule.natives().empty()) {
        reasons.push_back({judged.number, rule.why_not()});
      }
    }
    translated->Begin(*native_);
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
