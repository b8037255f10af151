#include "invariants/relations/saved_equals_live/saved_whole.h"

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/json_reader.h"
#include "invariants/relations/saved_equals_live/missing_parameters.h"
#include "invariants/relations/saved_equals_live/optimizer_states.h"
#include "invariants/relations/saved_equals_live/saved_checkpoint.h"
#include "invariants/rules/process_relation.h"
#include "invariants/rules/verdicts.h"
#include "invariants/rules/words.h"

namespace traincheck {

namespace {

struct WholeSpec {
  bool modules = false;  // else keys

  static absl::StatusOr<WholeSpec> Parse(const nlohmann::json& parameters,
                                         const std::string& path) {
    JsonReader reader(parameters, path);
    const std::string what = reader.String("what");
    return reader.Finish(WholeSpec{what == "modules"});
  }
  std::string Describe() const {
    return modules
               ? "A checkpoint is complete: whole modules, and every trained "
                 "parameter if the optimizer's state is saved, too."
               : "A checkpoint of a model holds every parameter of it.";
  }
  static std::vector<const Fact*> Facts() { return {}; }
  static void AddNeeds(CaptureNeeds* needs) {
    needs->State("parameter.data", "save");
    needs->State("buffer.data", "save");
    needs->SavedContents();
  }
};
using Judged = JudgedRules<SpecRule<WholeSpec>>;

// What was saved of a model since the last step.
struct Pending {
  SavedPart part;
  Call call;  // the first
  uint64_t number = 0;
  std::optional<int64_t> step;
  uint64_t gaps = 0;
  std::string prefix;
  bool optimizer = false;  // a state of one is there
  uint64_t left_out = 0;
  uint64_t changed = 0;  // parameters, since the save before

  void Fields(Archive& archive) {
    archive(part, call, number, step, gaps, prefix, optimizer, left_out,
            changed);
  }
};

// Collects what is saved of each model in the pause between two steps, over all
// files, and judges it at the step that ends the pause.
class WholeOfProcess : public SavedCheckpoints {
 public:
  explicit WholeOfProcess(const Judged* judged)
      : SavedCheckpoints(kSaving), judged_(*judged) {}

  void OnCallBegin(const ProcessFacts& facts, const Call& call) override {
    // A step ends the pause: what is saved from here on is the state of another
    // moment.
    if (IsOptimizerStep(call)) JudgeAll(facts, /*cut_short=*/"");
  }
  void OnEnd(const ProcessFacts& facts, ProcessEnd end) override {
    // The base goes first: it hands over the saves that are still open as
    // broken ones.
    SavedCheckpoints::OnEnd(facts, end);
    JudgeAll(facts, end == ProcessEnd::kClean ? "" : WhoseEndWords(facts, end));
  }
  void Fields(Archive& archive) override {
    SavedCheckpoints::Fields(archive);
    archive(pending_);
  }

 private:
  void OnCheckpoint(const ProcessFacts& facts,
                    const SavedCheckpoint& checkpoint,
                    const Digests& before) override {
    if (!checkpoint.broken.empty()) return TellUnknown(facts, checkpoint);
    const ProcessDefinitions& definitions = facts.definitions();
    for (const SavedModel& model :
         FindSavedModels(checkpoint.entries, definitions, checkpoint.live)) {
      if (!IsLiveState(model, definitions, checkpoint.live, before,
                       SteppedIn(facts))) {
        continue;
      }
      Pending& pending = PendingOf(facts, checkpoint, model);
      for (const SavedVariable& saved : model.variables) {
        pending.part.saved.insert(saved.variable);
      }
      pending.changed +=
          ChangedParameters(model, definitions, checkpoint.live, before);
      pending.left_out += checkpoint.left_out;
    }
    // The optimizer's state is often a file of its own.
    const bool optimizer =
        !FindOptimizerStates(checkpoint.entries).states.empty();
    // For all models of the pause: keys of another file may be anything, but an
    // equal tensor is the parameter.
    for (auto& [root, pending] : pending_) {
      pending.optimizer |= optimizer;
      for (const SavedEntry& entry : checkpoint.entries) {
        if (entry.digest) pending.part.digests.insert(*entry.digest);
      }
    }
  }

  Pending& PendingOf(const ProcessFacts& facts,
                     const SavedCheckpoint& checkpoint,
                     const SavedModel& model) {
    const auto [found, added] = pending_.try_emplace(model.root);
    Pending& pending = found->second;
    // The first file says when and of what the checkpoint is. No step lies
    // between the files of one pause, so the live state is the same for all.
    if (added) {
      pending.part.root = model.root;
      pending.part.live = checkpoint.live;
      pending.call = checkpoint.call;
      pending.number = checkpoint.number;
      pending.step = facts.clock().known_step();
      pending.gaps = checkpoint.gaps;
      pending.prefix = model.prefix;
    }
    return pending;
  }

  // Which models it would have held is not known, so one verdict a rule stands
  // for all.
  void TellUnknown(const ProcessFacts& facts,
                   const SavedCheckpoint& checkpoint) const {
    for (const auto& rule : judged_.rules) {
      Verdict verdict = NewVerdict(facts, rule.index, /*root=*/0);
      MarkUnknown(checkpoint.broken, &verdict);
      judged_.sink->OnVerdict(verdict);
    }
  }

  void JudgeAll(const ProcessFacts& facts, const std::string& cut_short) {
    for (const auto& [root, pending] : pending_) {
      for (const auto& rule : judged_.rules) {
        Judge(facts, pending, rule, cut_short);
      }
    }
    // A model that is not saved in the next pause has no window there.
    pending_.clear();
  }

  void Judge(const ProcessFacts& facts, const Pending& pending,
             const SpecRule<WholeSpec>& rule,
             const std::string& cut_short) const {
    Verdict verdict = NewVerdict(facts, rule.index, pending.part.root);
    verdict.step = pending.step;
    // Had a parameter been left out, it would have shown.
    verdict.trials = static_cast<uint32_t>(pending.changed);
    verdict.varied = verdict.trials > 0;
    const std::vector<uint32_t> missing =
        Missing(pending, rule.spec, facts.definitions());
    // Missing records and an early end matter only where something is not
    // there: a checkpoint that is whole stays whole.
    if (!missing.empty()) {
      const std::string reason = WhyTheRestMayBeThere(facts, pending);
      if (!reason.empty()) {
        MarkUnknown(reason, &verdict);
      } else if (!cut_short.empty()) {
        MarkUnknown(cut_short, &verdict);
      } else {
        Explain(facts, pending, missing, &verdict);
      }
    }
    judged_.sink->OnVerdict(verdict);
  }

  static std::vector<uint32_t> Missing(const Pending& pending,
                                       const WholeSpec& spec,
                                       const ProcessDefinitions& definitions) {
    std::vector<uint32_t> missing =
        MissingParameters(pending.part, definitions);
    if (!spec.modules) return missing;
    std::vector<uint32_t> torn =
        MissingInModules(pending.part, missing, definitions);
    if (!pending.optimizer) return torn;
    // With an optimizer's state the file is one to go on from, and a trained
    // parameter that is missing would begin anew.
    const std::vector<uint32_t> trained =
        MissingOfOptimizers(missing, definitions);
    // Both lists may name a parameter.
    std::set<uint32_t> all(torn.begin(), torn.end());
    all.insert(trained.begin(), trained.end());
    return {all.begin(), all.end()};
  }

  // "": what is missing is missing for certain.
  static std::string WhyTheRestMayBeThere(const ProcessFacts& facts,
                                          const Pending& pending) {
    if (pending.gaps != facts.gaps()) return facts.gap_reason();
    if (pending.left_out == 0) return "";
    return "the checkpoint has " + std::to_string(pending.left_out) +
           " more entries than are recorded";
  }

  static void Explain(const ProcessFacts& facts, const Pending& pending,
                      const std::vector<uint32_t>& missing, Verdict* verdict) {
    MarkViolated(facts, pending.call, verdict);
    verdict->label = "checkpoint " + std::to_string(pending.number);
    Finding& finding = verdict->finding;
    finding.variables = FullNames(facts.definitions(), missing);
    finding.expected = "these parameters in the checkpoint, too";
    finding.seen = std::to_string(missing.size()) +
                   " missing: " + ListWords(finding.variables, 3);
    if (!pending.prefix.empty()) {
      finding.evidence.push_back("the model is saved under \"" +
                                 pending.prefix + "\"");
    }
    if (pending.optimizer) {
      finding.evidence.push_back("the state of an optimizer is saved with it");
    }
  }

  const Judged& judged_;
  std::map<uint32_t, Pending> pending_;  // by root
};

}  // namespace

const Relation* SavedWhole() {
  static const auto* const kRelation =
      new ProcessRelation<WholeSpec, WholeOfProcess>("SavedEqualsLive",
                                                     nullptr);
  return kRelation;
}

}  // namespace traincheck
