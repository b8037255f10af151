#include "invariants/relations/saved_equals_live.h"

#include <algorithm>
#include <utility>

#include "invariants/json_reader.h"
#include "invariants/relations/saved_checkpoint.h"
#include "invariants/relations/several.h"
#include "invariants/relations/verdicts.h"
#include "invariants/relations/words.h"

namespace traincheck {

namespace {

enum class What { kContent, kKeys, kLoaded };

What ParseWhat(const nlohmann::json& parameters, const std::string& path,
               absl::Status* status) {
  JsonReader reader(parameters, path);
  const std::string what = reader.String("what");
  if (what != "content" && what != "keys" && what != "loaded") {
    reader.Fail("what", "neither \"content\", \"keys\" nor \"loaded\"");
  }
  *status = reader.Finish();
  if (what == "loaded") return What::kLoaded;
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

// A collector of what is saved and one of what is loaded.
template <typename Collector>
class BothWays : public SeveralObservers {
 public:
  template <typename Of>
  BothWays(Of saves, Of loads)
      : saved_(kSaving, saves), loaded_(kLoading, loads) {
    Add(&saved_);
    Add(&loaded_);
  }

 private:
  Collector saved_;
  Collector loaded_;
};

class HypothesisMaker : public Generator {
 public:
  ProcessObserver* AddProcess(const ProcessFacts& facts) override {
    processes_.push_back(
        std::make_unique<BothWays<Process>>(&saved_, &loaded_));
    return processes_.back().get();
  }
  void EndRun() override {}

  std::vector<Hypothesis> Take() override {
    std::vector<Hypothesis> result;
    if (saved_) {
      // Which keys a program saves is its own affair: adapters alone are
      // enough for some.
      result.push_back({{{"what", "content"}}, Scope::kGeneral, {}});
      result.push_back({{{"what", "keys"}}, Scope::kExperiment, {}});
    }
    if (loaded_) result.push_back({{{"what", "loaded"}}, Scope::kGeneral, {}});
    return result;
  }

 private:
  class Process : public SavedCheckpoints {
   public:
    Process(CheckpointPoints points, bool* seen)
        : SavedCheckpoints(points), seen_(seen) {}

   private:
    void OnCheckpoint(const ProcessFacts& facts,
                      const SavedCheckpoint& checkpoint,
                      const Digests& before) override {
      ForEachLiveModel(facts, checkpoint, before,
                       [this](const SavedModel&) { *seen_ = true; });
    }

    bool* const seen_;
  };

  std::vector<std::unique_ptr<BothWays<Process>>> processes_;
  bool saved_ = false;
  bool loaded_ = false;
};

class Evaluator : public RunObserver {
 public:
  Evaluator(const std::vector<Rule>& rules, RuleSink* sink) : sink_(sink) {
    for (size_t i = 0; i < rules.size(); ++i) {
      const What what = WhatOf(rules[i].invariant->parameters);
      (what == What::kLoaded ? loaded_ : saved_).emplace_back(i, what);
    }
  }

  ProcessObserver* AddProcess(const ProcessFacts& facts) override {
    processes_.push_back(std::make_unique<BothWays<Process>>(
        JudgeOf{this, &saved_}, JudgeOf{this, &loaded_}));
    return processes_.back().get();
  }
  void EndRun() override {}

 private:
  using WhatRules = std::vector<std::pair<size_t, What>>;
  struct JudgeOf {
    const Evaluator* run;
    const WhatRules* rules;
  };

  class Process : public SavedCheckpoints {
   public:
    Process(CheckpointPoints points, const JudgeOf& judge)
        : SavedCheckpoints(points), judge_(judge) {}

   private:
    void OnCheckpoint(const ProcessFacts& facts,
                      const SavedCheckpoint& checkpoint,
                      const Digests& before) override {
      if (!checkpoint.broken.empty()) {
        return judge_.run->TellUnknown(facts, *judge_.rules, checkpoint);
      }
      ForEachLiveModel(facts, checkpoint, before, [&](const SavedModel& model) {
        for (const auto& [rule, what] : *judge_.rules) {
          Verdict verdict = NewVerdict(facts, rule, model.root);
          // Had an old state been saved, it would have shown.
          verdict.trials = static_cast<uint32_t>(ChangedParameters(
              model, facts.definitions(), checkpoint.live, before));
          if (what == What::kLoaded) {
            verdict.trials = static_cast<uint32_t>(model.variables.size());
          }
          verdict.varied = verdict.trials > 0;
          judge_.run->Judge(facts, checkpoint, model, what, &verdict);
        }
      });
    }

    const JudgeOf judge_;
  };

  void TellUnknown(const ProcessFacts& facts, const WhatRules& rules,
                   const SavedCheckpoint& checkpoint) const;
  void Judge(const ProcessFacts& facts, const SavedCheckpoint& checkpoint,
             const SavedModel& model, What what, Verdict* verdict) const;
  static std::string JudgeContent(const ProcessFacts& facts,
                                  const SavedModel& model, Finding* finding);
  static void JudgeKeys(const ProcessFacts& facts,
                        const SavedCheckpoint& checkpoint,
                        const SavedModel& model, Finding* finding);
  static void Explain(const ProcessFacts& facts,
                      const SavedCheckpoint& checkpoint,
                      const SavedModel& model, Verdict* verdict);

  RuleSink* const sink_;
  WhatRules saved_;
  WhatRules loaded_;
  std::vector<std::unique_ptr<BothWays<Process>>> processes_;
};

void Evaluator::TellUnknown(const ProcessFacts& facts, const WhatRules& rules,
                            const SavedCheckpoint& checkpoint) const {
  for (const auto& [rule, what] : rules) {
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
                      const SavedCheckpoint& checkpoint,
                      const SavedModel& model, What what,
                      Verdict* verdict) const {
  std::string unread;
  if (what == What::kKeys) {
    JudgeKeys(facts, checkpoint, model, &verdict->finding);
  } else {
    unread = JudgeContent(facts, model, &verdict->finding);
    if (what == What::kLoaded) verdict->finding.expected = "what was loaded";
  }
  if (checkpoint.left_out != 0 && unread.empty()) {
    unread = "the checkpoint has " + std::to_string(checkpoint.left_out) +
             " more entries than are recorded";
  }
  const bool violated = !verdict->finding.variables.empty();
  const bool sure = what != What::kKeys || checkpoint.left_out == 0;
  if (violated && sure) {
    Explain(facts, checkpoint, model, verdict);
  } else if (!unread.empty()) {
    MarkUnknown(unread, verdict);
  }
  sink_->OnVerdict(*verdict);
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
    switch (WhatOf(parameters)) {
      case What::kContent:
        return "What a checkpoint holds of a model is equal to the model as "
               "it is when it is saved.";
      case What::kKeys:
        return "A checkpoint of a model holds every parameter of it.";
      case What::kLoaded:
        return "After a model has loaded a state, it is equal to it.";
    }
    return "";
  }

  // That a model is there in its live state says when it applies.
  std::vector<const Fact*> FactsFor(const nlohmann::json&) const override {
    return {};
  }

  void AddNeeds(const nlohmann::json& parameters,
                CaptureNeeds* needs) const override {
    const char* point = WhatOf(parameters) == What::kLoaded ? "load" : "save";
    needs->State("parameter.data", point);
    needs->State("buffer.data", point);
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
