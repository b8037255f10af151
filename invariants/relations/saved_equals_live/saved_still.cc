#include "invariants/relations/saved_equals_live/saved_still.h"

#include <map>
#include <set>
#include <utility>

#include "base/json_reader.h"
#include "invariants/relations/saved_equals_live/saved_calls.h"
#include "invariants/relations/saved_equals_live/saved_checkpoint.h"
#include "invariants/rules/process_relation.h"
#include "invariants/rules/verdicts.h"
#include "invariants/rules/words.h"

namespace traincheck {

namespace {

struct StillSpec {
  static absl::StatusOr<StillSpec> Parse(const nlohmann::json& parameters,
                                         const std::string& path) {
    JsonReader reader(parameters, path);
    reader.String("what");
    return reader.Finish(StillSpec{});
  }
  std::string Describe() const {
    return "What another thread saves does not change between its state_dict "
           "and the end of the save.";
  }
  static std::vector<const Fact*> Facts() { return {}; }
  void AddNeeds(CaptureNeeds* needs) const { needs->SavedContents(); }
};
using Judged = JudgedRules<SpecRule<StillSpec>>;

// Begins and ends of steps, by the optimizer: one that is open counts as well.
using StepEdges = std::map<uint32_t, uint64_t>;

struct SaveMoment {
  StepEdges edges;
  uint64_t gaps = 0;
  uint32_t site = 0;  // of the state_dict; 0: a save began

  void Fields(Archive& archive) { archive(edges, gaps, site); }
};

// The live parameters of one model that a checkpoint holds, and who changes
// them.
struct LiveModel {
  std::set<uint32_t> variables;
  std::set<uint32_t> optimizers;
};
using LiveModels = std::map<uint32_t, LiveModel>;  // by root

class StillOfProcess : public SavedCheckpoints {
 public:
  explicit StillOfProcess(const Judged* judged)
      : SavedCheckpoints(kSaving), judged_(*judged) {}

  void OnCallBegin(const ProcessFacts& facts, const Call& call) override {
    if (IsOptimizerStep(call)) {
      ++edges_[call.object];
      stepping_rings_.insert(call.ring);
    } else if (IsOfCategory(call, "save")) {
      // Noted for each save, because only later it shows whether another thread
      // steps.
      begun_[{call.ring, call.number}] = {edges_, facts.gaps(), 0};
    } else if (IsOfCategory(call, "state_dict")) {
      const uint32_t root = RootModuleOf(facts.definitions(), call.object);
      if (root != 0) given_[root] = {edges_, facts.gaps(), call.site};
    }
  }

  void OnCallEnd(const ProcessFacts& facts, const Call& call,
                 CallOutcome outcome) override {
    if (IsOptimizerStep(call)) ++edges_[call.object];
    SavedCheckpoints::OnCallEnd(facts, call, outcome);
    // Behind the judgement, which asks when the save began.
    begun_.erase({call.ring, call.number});
  }

  void OnCheckpointEntry(const ProcessFacts& facts,
                         const CheckpointEntryEvent& event) override {
    SavedCheckpoints::OnCheckpointEntry(facts, event);
    // The state that was collected went into another model, and not into a
    // save.
    if (event.point != StatePoint::kLoadStateDict) return;
    const VariableInfo* live = facts.definitions().Variable(event.variable);
    if (live) given_.erase(live->root);
  }

  void Fields(Archive& archive) override {
    SavedCheckpoints::Fields(archive);
    archive(edges_, stepping_rings_, begun_, given_);
  }

 private:
  void OnCheckpoint(const ProcessFacts& facts,
                    const SavedCheckpoint& checkpoint,
                    const Digests& before) override {
    const LiveModels models = LiveModelsIn(facts.definitions(), checkpoint);
    if (IsOnAnotherThread(checkpoint.call)) {
      for (const auto& [root, model] : models) {
        if (!model.optimizers.empty()) Judge(facts, checkpoint, root, model);
      }
    }
    // This save has taken what was collected: the next one begins with a
    // state_dict of its own.
    for (const auto& [root, model] : models) given_.erase(root);
  }

  bool IsOnAnotherThread(const Call& save) const {
    // On the thread that steps a save and a step cannot overlap. With several
    // such threads parameters move by design.
    return stepping_rings_.size() == 1 && *stepping_rings_.begin() != save.ring;
  }

  LiveModels LiveModelsIn(const ProcessDefinitions& definitions,
                          const SavedCheckpoint& checkpoint) const {
    LiveModels models;
    for (const SavedEntry& entry : checkpoint.entries) {
      const VariableInfo* live = definitions.Variable(entry.variable);
      // Copies lie in storage of their own and have no variable: they do not
      // move.
      if (live) models[live->root].variables.insert(entry.variable);
    }
    for (const auto& [key, variables] : definitions.holds()) {
      // An optimizer that never stepped changes nothing, however much it holds.
      if (!edges_.count(key.first)) continue;
      for (const uint32_t variable : variables) {
        const VariableInfo* info = definitions.Variable(variable);
        const auto model = info ? models.find(info->root) : models.end();
        if (model != models.end() && model->second.variables.count(variable)) {
          model->second.optimizers.insert(key.first);
        }
      }
    }
    return models;
  }

  // A state_dict gives references and not copies, so what is saved may move
  // from then on, and not only from the begin of the save.
  SaveMoment Collected(const SavedCheckpoint& checkpoint, uint32_t root) const {
    const auto given = given_.find(root);
    if (given != given_.end()) return given->second;
    const auto begun = begun_.find({checkpoint.call.ring,  //
                                    checkpoint.call.number});
    // The begin was not recorded: nothing is known of the time before it.
    return begun != begun_.end() ? begun->second
                                 : SaveMoment{edges_, checkpoint.gaps, 0};
  }

  uint64_t StepsSince(const SaveMoment& moment, const LiveModel& model) const {
    uint64_t edges = 0;
    for (const uint32_t optimizer : model.optimizers) {
      const auto then = moment.edges.find(optimizer);
      edges += edges_.at(optimizer) -
               (then == moment.edges.end() ? 0 : then->second);
    }
    // Two edges are a step. An odd number means one that was open at one end of
    // the span and changed parameters in it.
    return (edges + 1) / 2;
  }

  // One verdict for each model and rule. A step that was seen is a violation
  // even if the rest of the save is not known.
  void Judge(const ProcessFacts& facts, const SavedCheckpoint& checkpoint,
             uint32_t root, const LiveModel& model) const {
    const SaveMoment moment = Collected(checkpoint, root);
    const uint64_t steps = StepsSince(moment, model);
    for (const auto& rule : judged_.rules) {
      Verdict verdict = NewVerdict(facts, rule.index, root);
      if (moment.gaps != facts.gaps()) {
        // The state may have been collected anew.
        MarkUnknown(facts.gap_reason(), &verdict);
      } else if (steps > 0) {
        Explain(facts, checkpoint, moment, &verdict);
        verdict.finding.variables =
            FullNames(facts.definitions(),
                      {model.variables.begin(), model.variables.end()});
        verdict.finding.seen =
            "optimizer steps that changed it: " + std::to_string(steps);
      } else if (!checkpoint.broken.empty()) {
        MarkUnknown(checkpoint.broken, &verdict);
      }
      judged_.sink->OnVerdict(verdict);
    }
  }

  static void Explain(const ProcessFacts& facts,
                      const SavedCheckpoint& checkpoint,
                      const SaveMoment& moment, Verdict* verdict) {
    MarkViolated(facts, checkpoint.call, verdict);
    verdict->label = "checkpoint " + std::to_string(checkpoint.number);
    verdict->finding.expected = "no optimizer step until the save has ended";
    if (moment.site == 0) return;
    verdict->finding.evidence.push_back("the state was collected at " +
                                        facts.definitions().Site(moment.site));
  }

  const Judged& judged_;
  StepEdges edges_;
  std::set<uint32_t> stepping_rings_;
  std::map<std::pair<uint32_t, uint64_t>, SaveMoment> begun_;  // saves
  std::map<uint32_t, SaveMoment> given_;  // by root; state_dicts
};

}  // namespace

const Relation* SavedStill() {
  static const auto* const kRelation =
      new ProcessRelation<StillSpec, StillOfProcess>("SavedEqualsLive",
                                                     nullptr);
  return kRelation;
}

}  // namespace traincheck
