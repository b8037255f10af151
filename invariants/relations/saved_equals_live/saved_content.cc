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

struct SavedSpec {
  bool loaded = false;  // else content

  static absl::StatusOr<SavedSpec> Parse(const nlohmann::json& parameters,
                                         const std::string& path) {
    JsonReader reader(parameters, path);
    const std::string what = reader.String("what");
    if (what != "content" && what != "loaded") {
      reader.Fail("what",
                  "none of \"content\", \"keys\", \"loaded\", \"modules\", "
                  "\"moment\", \"still\" and \"resumed\"");
    }
    return reader.Finish(SavedSpec{what == "loaded"});
  }
  std::string Describe() const {
    return loaded ? "After load_state_dict, the model equals the state that "
                    "it was given."
                  : "What a checkpoint holds of a model is equal to the model "
                    "as it is when it is saved.";
  }
  // That a model is there in its live state says when it applies.
  static std::vector<const Fact*> Facts() { return {}; }
  void AddNeeds(CaptureNeeds* needs) const {
    const char* point = loaded ? "load" : "save";
    needs->State("parameter.data", point);
    needs->State("buffer.data", point);
    needs->SavedContents();
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
  const std::vector<SavedModel> models =
      FindSavedModels(checkpoint.entries, definitions, checkpoint.live);
  for (const SavedModel& model : models) {
    // An average that was copied from the model a moment ago is nearly equal to
    // it, and would be judged as a damaged live state.
    if (IsAnothers(model, models)) continue;
    if (IsLiveState(model, definitions, checkpoint.live, before,
                    SteppedIn(facts))) {
      visit(model);
    }
  }
}

// A collector of what is saved and one of what is loaded. Saving and loading
// have records of different points, and states before a load are not those
// before a save.
template <typename Collector>
class BothWays : public SeveralObservers {
 public:
  template <typename Of>
  BothWays(Of saves, Of loads) {
    Add(std::make_unique<Collector>(kSaving, saves));
    Add(std::make_unique<Collector>(kLoading, loads));
  }
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
  // The base keeps the addresses alone: the flags themselves are made after it.
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

void Explain(const ProcessFacts& facts, const SavedCheckpoint& checkpoint,
             const SavedModel& model, Verdict* verdict) {
  MarkViolated(facts, checkpoint.call, verdict);
  // Checkpoints are counted by each process, so the label is the same in each
  // check of a run.
  verdict->label = "checkpoint " + std::to_string(checkpoint.number);
  // A file may hold a model several times (live, averaged): the prefix says
  // which is meant.
  if (!model.prefix.empty()) {
    verdict->finding.evidence.push_back("the model is saved under \"" +
                                        model.prefix + "\"");
  }
}

// Judges what is saved, or what is loaded.
// Each collector judges the rules of its own direction: `content` where it
// collects saves, `loaded` where it collects loads.
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
        if (rule.spec.loaded != of_.loads) continue;
        Verdict verdict = NewVerdict(facts, rule.index, model.root);
        // Had an old state been saved, it would have shown. A load could have
        // left out each of its tensors. In a save only what has changed since
        // the one before could show an old state.
        verdict.trials = static_cast<uint32_t>(
            of_.loads ? model.variables.size()
                      : ChangedParameters(model, facts.definitions(),
                                          checkpoint.live, before));
        verdict.varied = verdict.trials > 0;
        Judge(facts, checkpoint, model, &verdict);
      }
    });
  }

  void TellUnknown(const ProcessFacts& facts,
                   const SavedCheckpoint& checkpoint) const {
    for (const auto& rule : of_.judged->rules) {
      if (rule.spec.loaded != of_.loads) continue;
      Verdict verdict = NewVerdict(facts, rule.index, /*root=*/0);
      MarkUnknown(checkpoint.broken, &verdict);
      of_.judged->sink->OnVerdict(verdict);
    }
  }

  void Judge(const ProcessFacts& facts, const SavedCheckpoint& checkpoint,
             const SavedModel& model, Verdict* verdict) const {
    std::string unread = JudgeContent(facts, model, &verdict->finding);
    if (of_.loads) verdict->finding.expected = "what was loaded";
    // Entries that are not recorded may be tensors of this model that differ.
    if (checkpoint.left_out != 0 && unread.empty()) {
      unread = "the checkpoint has " + std::to_string(checkpoint.left_out) +
               " more entries than are recorded";
    }
    // A tensor that differs is a violation, whatever could not be read.
    if (!verdict->finding.variables.empty()) {
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
