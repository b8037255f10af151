#include "invariants/relations/saved_equals_live/saved_content.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "base/json_reader.h"
#include "invariants/relations/saved_equals_live/saved_checkpoint.h"
#include "invariants/rules/process_relation.h"
#include "invariants/rules/several.h"
#include "invariants/rules/verdicts.h"
#include "invariants/rules/words.h"

namespace traincheck {

namespace {

enum class What { kContent, kKeys, kLoaded };

struct SavedSpec {
  What what = What::kContent;

  static absl::StatusOr<SavedSpec> Parse(const nlohmann::json& parameters,
                                         const std::string& path) {
    JsonReader reader(parameters, path);
    const std::string what = reader.String("what");
    if (what != "content" && what != "keys" && what != "loaded") {
      reader.Fail("what",
                  "none of \"content\", \"keys\", \"loaded\", \"moment\", "
                  "\"still\" and \"resumed\"");
    }
    if (what == "loaded") return reader.Finish(SavedSpec{What::kLoaded});
    return reader.Finish(
        SavedSpec{what == "keys" ? What::kKeys : What::kContent});
  }

  std::string Describe() const {
    switch (what) {
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
  static std::vector<const Fact*> Facts() { return {}; }
  void AddNeeds(CaptureNeeds* needs) const {
    const char* point = what == What::kLoaded ? "load" : "save";
    needs->State("parameter.data", point);
    needs->State("buffer.data", point);
  }
};
using Judged = JudgedRules<SpecRule<SavedSpec>>;

// Calls visit(model) for each model that the checkpoint holds in its live
// state.
template <typename Visit>
void ForEachLiveModel(const ProcessFacts& facts,
                      const SavedCheckpoint& checkpoint, const Digests& before,
                      Visit visit) {
  const ProcessDefinitions& definitions = facts.definitions();
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

// Was a model seen in its live state?
class ModelsSeen : public SavedCheckpoints {
 public:
  ModelsSeen(CheckpointPoints points, bool* seen)
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

class CheckpointsSeen : public BothWays<ModelsSeen> {
 public:
  CheckpointsSeen() : BothWays(&saved_, &loaded_) {}

  void Collect(const ProcessDefinitions& definitions,
               HypothesisSet* out) const {
    if (saved_) {
      // Which keys a program saves is its own affair: adapters alone are
      // enough for some.
      out->Add({{{"what", "content"}}, Scope::kGeneral, {}});
      out->Add({{{"what", "keys"}}, Scope::kExperiment, {}});
    }
    if (loaded_) out->Add({{{"what", "loaded"}}, Scope::kGeneral, {}});
  }

 private:
  bool saved_ = false;
  bool loaded_ = false;
};

// Fills in what differs; returns why the rest may too, "" where it does not.
std::string JudgeContent(const ProcessFacts& facts, const SavedModel& model,
                         Finding* finding) {
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

void JudgeKeys(const ProcessFacts& facts, const SavedCheckpoint& checkpoint,
               const SavedModel& model, Finding* finding) {
  finding->variables =
      FullNames(facts.definitions(),
                MissingParameters(model, facts.definitions(), checkpoint.live));
  finding->expected = "every parameter of the model in the checkpoint";
  finding->seen = std::to_string(finding->variables.size()) +
                  " missing: " + ListWords(finding->variables, 3);
}

void Explain(const ProcessFacts& facts, const SavedCheckpoint& checkpoint,
             const SavedModel& model, Verdict* verdict) {
  MarkViolated(facts, checkpoint.call, verdict);
  verdict->label = "checkpoint " + std::to_string(checkpoint.number);
  if (!model.prefix.empty()) {
    verdict->finding.evidence.push_back("the model is saved under \"" +
                                        model.prefix + "\"");
  }
}

// Judges what is saved, or what is loaded.
class ModelsJudged : public SavedCheckpoints {
 public:
  struct Of {
    const Judged* judged;
    bool loads;
  };
  ModelsJudged(CheckpointPoints points, const Of& of)
      : SavedCheckpoints(points), of_(of) {}

 private:
  void OnCheckpoint(const ProcessFacts& facts,
                    const SavedCheckpoint& checkpoint,
                    const Digests& before) override {
    if (!checkpoint.broken.empty()) return TellUnknown(facts, checkpoint);
    ForEachLiveModel(facts, checkpoint, before, [&](const SavedModel& model) {
      for (const auto& rule : of_.judged->rules) {
        if (!IsMine(rule.spec)) continue;
        Verdict verdict = NewVerdict(facts, rule.index, model.root);
        // Had an old state been saved, it would have shown.
        verdict.trials = static_cast<uint32_t>(
            of_.loads ? model.variables.size()
                      : ChangedParameters(model, facts.definitions(),
                                          checkpoint.live, before));
        verdict.varied = verdict.trials > 0;
        Judge(facts, checkpoint, model, rule.spec.what, &verdict);
      }
    });
  }

  bool IsMine(const SavedSpec& spec) const {
    return (spec.what == What::kLoaded) == of_.loads;
  }

  void TellUnknown(const ProcessFacts& facts,
                   const SavedCheckpoint& checkpoint) const {
    for (const auto& rule : of_.judged->rules) {
      if (!IsMine(rule.spec)) continue;
      Verdict verdict = NewVerdict(facts, rule.index, /*root=*/0);
      MarkUnknown(checkpoint.broken, &verdict);
      of_.judged->sink->OnVerdict(verdict);
    }
  }

  void Judge(const ProcessFacts& facts, const SavedCheckpoint& checkpoint,
             const SavedModel& model, What what, Verdict* verdict) const {
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
    of_.judged->sink->OnVerdict(*verdict);
  }

  const Of of_;
};

class CheckpointsOfProcess : public BothWays<ModelsJudged> {
 public:
  explicit CheckpointsOfProcess(const Judged* judged)
      : BothWays(ModelsJudged::Of{judged, /*loads=*/false},
                 ModelsJudged::Of{judged, /*loads=*/true}) {}
};

}  // namespace

const Relation* SavedContent() {
  static const auto* const kRelation =
      new ProcessRelation<SavedSpec, CheckpointsOfProcess>("SavedEqualsLive",
                                                           nullptr);
  return kRelation;
}

std::unique_ptr<Generator> NewSavedGenerator() {
  return NewSeenGenerator<CheckpointsSeen>();
}

}  // namespace traincheck
