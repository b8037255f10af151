#include "invariants/relations/saved_equals_live.h"

#include <algorithm>
#include <utility>

#include "invariants/json_reader.h"
#include "invariants/relations/saved_checkpoint.h"
#include "invariants/relations/verdicts.h"
#include "invariants/relations/words.h"

namespace traincheck {

namespace {

enum class What { kContent, kKeys };

What ParseWhat(const nlohmann::json& parameters, const std::string& path,
               absl::Status* status) {
  JsonReader reader(parameters, path);
  const std::string what = reader.String("what");
  if (what != "content" && what != "keys") {
    reader.Fail("what", "neither \"content\" nor \"keys\"");
  }
  *status = reader.Finish();
  return what == "keys" ? What::kKeys : What::kContent;
}

What WhatOf(const nlohmann::json& parameters) {
  absl::Status status;
  return ParseWhat(parameters, "", &status);
}

// Calls visit(model) for each model that the checkpoint holds in its live
// state.
template <typename Visit>
void ForEachLiveModel(const ProcessFacts& facts,
                      const SavedCheckpoint& checkpoint, const Digests& before,
                      Visit visit) {
  const Definitions& definitions = facts.definitions();
  for (const SavedModel& model :
       FindSavedModels(checkpoint.entries, definitions, checkpoint.live)) {
    if (IsLiveState(model, definitions, checkpoint.live, before)) visit(model);
  }
}

class HypothesisMaker : public Generator {
 public:
  ProcessObserver* AddProcess(const ProcessFacts& facts) override {
    processes_.push_back(std::make_unique<Process>(&seen_));
    return processes_.back().get();
  }
  void EndRun() override {}

  std::vector<Hypothesis> Take() override {
    if (!seen_) return {};
    // Which keys a program saves is its own affair: adapters alone are enough
    // for some.
    return {{{{"what", "content"}}, Scope::kGeneral, {}},
            {{{"what", "keys"}}, Scope::kExperiment, {}}};
  }

 private:
  class Process : public SavedCheckpoints {
   public:
    explicit Process(bool* seen) : seen_(seen) {}

   private:
    void OnCheckpoint(const ProcessFacts& facts,
                      const SavedCheckpoint& checkpoint,
                      const Digests& before) override {
      ForEachLiveModel(facts, checkpoint, before,
                       [this](const SavedModel&) { *seen_ = true; });
    }

    bool* const seen_;
  };

  std::vector<std::unique_ptr<Process>> processes_;
  bool seen_ = false;
};

class Evaluator : public RunObserver {
 public:
  Evaluator(const std::vector<Rule>& rules, RuleSink* sink) : sink_(sink) {
    for (size_t i = 0; i < rules.size(); ++i) {
      rules_.emplace_back(i, WhatOf(rules[i].invariant->parameters));
    }
  }

  ProcessObserver* AddProcess(const ProcessFacts& facts) override {
    processes_.push_back(std::make_unique<Process>(this));
    return processes_.back().get();
  }
  void EndRun() override {}

 private:
  class Process : public SavedCheckpoints {
   public:
    explicit Process(const Evaluator* run) : run_(run) {}

   private:
    void OnCheckpoint(const ProcessFacts& facts,
                      const SavedCheckpoint& checkpoint,
                      const Digests& before) override {
      if (!checkpoint.broken.empty()) {
        return run_->TellUnknown(facts, checkpoint);
      }
      ForEachLiveModel(facts, checkpoint, before, [&](const SavedModel& model) {
        run_->Judge(facts, checkpoint, before, model);
      });
    }

    const Evaluator* const run_;
  };

  void TellUnknown(const ProcessFacts& facts,
                   const SavedCheckpoint& checkpoint) const;
  void Judge(const ProcessFacts& facts, const SavedCheckpoint& checkpoint,
             const Digests& before, const SavedModel& model) const;
  static std::string JudgeContent(const ProcessFacts& facts,
                                  const SavedModel& model, Finding* finding);
  static void JudgeKeys(const ProcessFacts& facts,
                        const SavedCheckpoint& checkpoint,
                        const SavedModel& model, Finding* finding);
  static void Explain(const ProcessFacts& facts,
                      const SavedCheckpoint& checkpoint,
                      const SavedModel& model, Verdict* verdict);

  RuleSink* const sink_;
  std::vector<std::pair<size_t, What>> rules_;
  std::vector<std::unique_ptr<Process>> processes_;
};

void Evaluator::TellUnknown(const ProcessFacts& facts,
                            const SavedCheckpoint& checkpoint) const {
  for (const auto& [rule, what] : rules_) {
    Verdict verdict = NewVerdict(facts, rule, /*root=*/0);
    MarkUnknown(checkpoint.broken, &verdict);
    sink_->OnVerdict(verdict);
  }
}

// The names of the variables, sorted.
std::vector<std::string> FullNames(const Definitions& definitions,
                                   const std::vector<uint32_t>& variables) {
  std::vector<std::string> names;
  for (uint32_t variable : variables) {
    names.push_back(definitions.Variable(variable)->FullName());
  }
  std::sort(names.begin(), names.end());
  return names;
}

// Fills in what differs; returns why the rest may too, "" where it does not.
std::string Evaluator::JudgeContent(const ProcessFacts& facts,
                                    const SavedModel& model, Finding* finding) {
  std::vector<uint32_t> differ;
  std::vector<uint32_t> unread;
  for (const SavedVariable& saved : model.variables) {
    if (saved.as == SavedAs::kDiffers) differ.push_back(saved.variable);
    if (saved.as == SavedAs::kUnread) unread.push_back(saved.variable);
  }
  finding->variables = FullNames(facts.definitions(), differ);
  finding->expected = "equal to the live model";
  finding->seen = std::to_string(differ.size()) + " of " +
                  std::to_string(model.variables.size()) +
                  " differ: " + ListWords(finding->variables, 3);
  if (unread.empty()) return "";
  return ListWords(FullNames(facts.definitions(), unread), 3) +
         " could not be read on " + facts.Name();
}

void Evaluator::JudgeKeys(const ProcessFacts& facts,
                          const SavedCheckpoint& checkpoint,
                          const SavedModel& model, Finding* finding) {
  finding->variables =
      FullNames(facts.definitions(),
                MissingParameters(model, facts.definitions(), checkpoint.live));
  finding->expected = "every parameter of the model in the checkpoint";
  finding->seen = std::to_string(finding->variables.size()) +
                  " missing: " + ListWords(finding->variables, 3);
}

void Evaluator::Explain(const ProcessFacts& facts,
                        const SavedCheckpoint& checkpoint,
                        const SavedModel& model, Verdict* verdict) {
  MarkViolated(facts, checkpoint.call, verdict);
  verdict->label = "checkpoint " + std::to_string(checkpoint.number);
  if (!model.prefix.empty()) {
    verdict->finding.evidence.push_back("the model is saved under \"" +
                                        model.prefix + "\"");
  }
}

void Evaluator::Judge(const ProcessFacts& facts,
                      const SavedCheckpoint& checkpoint, const Digests& before,
                      const SavedModel& model) const {
  for (const auto& [rule, what] : rules_) {
    Verdict verdict = NewVerdict(facts, rule, model.root);
    // Had an old state been saved, it would have shown.
    verdict.varied =
        HasChanged(model, facts.definitions(), checkpoint.live, before);
    std::string unread;
    if (what == What::kContent) {
      unread = JudgeContent(facts, model, &verdict.finding);
    } else {
      JudgeKeys(facts, checkpoint, model, &verdict.finding);
    }
    if (checkpoint.left_out != 0 && unread.empty()) {
      unread = "the checkpoint has " + std::to_string(checkpoint.left_out) +
               " more entries than are recorded";
    }
    const bool violated = !verdict.finding.variables.empty();
    const bool sure = what == What::kContent || checkpoint.left_out == 0;
    if (violated && sure) {
      Explain(facts, checkpoint, model, &verdict);
    } else if (!unread.empty()) {
      MarkUnknown(unread, &verdict);
    }
    sink_->OnVerdict(verdict);
  }
}

class SavedEqualsLiveRelation : public Relation {
 public:
  const char* name() const override { return "SavedEqualsLive"; }

  absl::Status Check(const nlohmann::json& parameters,
                     const std::string& path) const override {
    absl::Status status;
    ParseWhat(parameters, path, &status);
    return status;
  }

  std::string Describe(const nlohmann::json& parameters) const override {
    return WhatOf(parameters) == What::kContent
               ? "What a checkpoint holds of a model is equal to the model as "
                 "it is when it is saved."
               : "A checkpoint of a model holds every parameter of it.";
  }

  // That a model is there in its live state says when it applies.
  std::vector<const Fact*> FactsFor(const nlohmann::json&) const override {
    return {};
  }

  void AddNeeds(const nlohmann::json&, CaptureNeeds* needs) const override {
    needs->State("parameter.data", "save");
    needs->State("buffer.data", "save");
  }

  std::unique_ptr<Generator> NewGenerator() const override {
    return std::make_unique<HypothesisMaker>();
  }

  std::unique_ptr<RunObserver> NewEvaluator(const std::vector<Rule>& rules,
                                            RuleSink* sink) const override {
    return std::make_unique<Evaluator>(rules, sink);
  }
};

}  // namespace

const Relation* SavedEqualsLive() {
  static const auto* const kRelation = new SavedEqualsLiveRelation;
  return kRelation;
}

}  // namespace traincheck
