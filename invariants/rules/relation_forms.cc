#include "invariants/rules/relation_forms.h"

#include <utility>

#include "invariants/rules/several.h"

namespace traincheck {

namespace {

// The rules of one form, whose verdicts go on under their numbers among all.
class FormEvaluator : public RunObserver, private RuleSink {
 public:
  explicit FormEvaluator(RuleSink* sink) : sink_(sink) {}

  void Add(size_t number, const Rule& rule) {
    rules_.push_back(rule);
    numbers_.push_back(number);
  }
  // No rule is added any more. False: there is none.
  bool Begin(const Relation& form) {
    if (!rules_.empty()) evaluator_ = form.NewEvaluator(rules_, this);
    return evaluator_ != nullptr;
  }

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
    mine.rule = numbers_[verdict.rule];
    sink_->OnVerdict(mine);
  }
  bool wants_examples() const override { return sink_->wants_examples(); }
  void OnExample(size_t rule, const Example& example) override {
    sink_->OnExample(numbers_[rule], example);
  }

  RuleSink* const sink_;
  std::vector<Rule> rules_;
  std::vector<size_t> numbers_;  // by rule of this form
  std::unique_ptr<RunObserver> evaluator_;
};

}  // namespace

std::unique_ptr<Generator> RelationForms::NewGenerator() const {
  auto all = std::make_unique<SeveralGenerators>();
  for (const Relation* form : forms_) all->Add(form->NewGenerator());
  return all;
}

std::unique_ptr<RunObserver> RelationForms::NewEvaluator(
    const std::vector<Rule>& rules, RuleSink* sink) const {
  auto all = std::make_unique<Several<RunObserver>>();
  for (const Relation* form : forms_) {
    auto evaluator = std::make_unique<FormEvaluator>(sink);
    for (size_t i = 0; i < rules.size(); ++i) {
      if (pick_(rules[i].invariant->parameters) == form) {
        evaluator->Add(i, rules[i]);
      }
    }
    if (evaluator->Begin(*form)) all->Add(std::move(evaluator));
  }
  return all;
}

}  // namespace traincheck
