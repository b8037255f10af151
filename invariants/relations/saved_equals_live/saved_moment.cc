#include "invariants/relations/saved_equals_live/saved_moment.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "base/json_reader.h"
#include "invariants/relations/saved_equals_live/save_content.h"
#include "invariants/relations/saved_equals_live/saved_calls.h"
#include "invariants/relations/saved_equals_live/saved_checkpoint.h"
#include "invariants/rules/process_relation.h"
#include "invariants/rules/verdicts.h"
#include "invariants/rules/words.h"

namespace traincheck {

namespace {

struct MomentSpec {
  static absl::StatusOr<MomentSpec> Parse(const nlohmann::json& parameters,
                                          const std::string& path) {
    JsonReader reader(parameters, path);
    reader.String("what");
    return reader.Finish(MomentSpec{});
  }
  std::string Describe() const {
    return "A checkpoint holds the current state, not that of the previous "
           "checkpoint.";
  }
  static std::vector<const Fact*> Facts() { return {}; }
  void AddNeeds(CaptureNeeds* needs) const {
    needs->State("parameter.data", "save");
    needs->SavedContents();
  }
};
using Judged = JudgedRules<SpecRule<MomentSpec>>;

// After so many repeats in a row, each of which should have been new, no habit
// of the program explains them. One alone may be a best state that is saved
// again.
constexpr uint32_t kRepeats = 2;
// For programs that save something else each time: only the last kinds of saves
// are kept.
constexpr size_t kMostKept = 64;

using Steps = std::map<uint32_t, uint64_t>;  // by the optimizer

// The last save of its like.
struct Kept {
  uint64_t digests = 0;
  Digests live;
  Steps steps;
  uint64_t gaps = 0;
  uint64_t number = 0;   // of the checkpoint
  uint64_t pause = 0;    // steps of all optimizers before it
  uint32_t repeats = 0;  // in a row, of which each should have been new

  void Fields(Archive& archive) {
    archive(digests, live, steps, gaps, number, pause, repeats);
  }
};

// The trainable parameters of those optimizers that stepped in between.
struct Trained {
  uint64_t elements = 0;
  size_t read = 0;
  std::set<uint64_t> moved;  // what they are now
  size_t moves = 0;

  bool MostMoved() const { return moves > 0 && 2 * moves >= read; }
};

class MomentOfProcess : public SavedCheckpoints {
 public:
  explicit MomentOfProcess(const Judged* judged)
      : SavedCheckpoints(kSaving), judged_(*judged) {}

  void OnCallBegin(const ProcessFacts& facts, const Call& call) override {
    if (IsOptimizerStep(call)) {
      // A state that was asked for in a pause without a save is meant for
      // something else, and so may any later one be.
      collects_otherwise_ |= collected_ && !saved_in_pause_;
      collected_ = false;
      saved_in_pause_ = false;
      ++steps_[call.object];
      ++pause_;
    } else if (IsOfCategory(call, "state_dict")) {
      collected_ |= IsTrained(facts, call.object);
    }
  }

  void OnCallEnd(const ProcessFacts& facts, const Call& call,
                 CallOutcome outcome) override {
    SavedCheckpoints::OnCallEnd(facts, call, outcome);
    // A copy of the model (an average, a target network) took the state that
    // was asked for.
    if (IsOfCategory(call, "load_state_dict")) Taken();
  }

  void Fields(Archive& archive) override {
    SavedCheckpoints::Fields(archive);
    archive(steps_, pause_, collected_, saved_in_pause_, collects_otherwise_,
            kept_);
  }

 private:
  void OnCheckpoint(const ProcessFacts& facts,
                    const SavedCheckpoint& checkpoint,
                    const Digests& before) override {
    if (!checkpoint.broken.empty()) {
      return Tell(facts, checkpoint.broken, nullptr, nullptr);
    }
    // Whatever it holds: the program saves here, so a state that it asks for
    // here is for a save.
    saved_in_pause_ = true;
    const SaveContent content = ContentOf(checkpoint);
    const auto found = kept_.find(content.like);
    uint32_t repeats = 0;
    bool repeated = false;
    if (found != kept_.end()) {
      const Kept& last = found->second;
      repeated = last.digests == content.digests;
      repeats = Judge(facts, checkpoint, content, last);
    }
    // This save has taken what was collected, unless it repeats an old state
    // alone.
    if (!repeated || HoldsAny(DigestsOf(checkpoint.live), checkpoint)) Taken();
    // The next save of its kind is compared with this one, also where this one
    // was not judged.
    Keep(content.like, {content.digests, checkpoint.live, steps_, facts.gaps(),
                        checkpoint.number, pause_, repeats});
  }

  // Returns how many in a row should have been new, with this one.
  uint32_t Judge(const ProcessFacts& facts, const SavedCheckpoint& checkpoint,
                 const SaveContent& content, const Kept& last) const {
    const bool repeated = last.digests == content.digests;
    const Trained trained = TrainedSince(facts, checkpoint, last);
    // Nothing was trained, or the file is too small to hold it (a log, an
    // optimizer's settings).
    if (trained.elements == 0 || content.floating_elements < trained.elements) {
      return 0;
    }
    if (!repeated) {
      // Only what has moved could have been repeated.
      if (trained.MostMoved()) Tell(facts, "", nullptr, nullptr);
      return 0;
    }
    // A repeated state is meant, unless the program asked for the live one for
    // this save, and for nothing else.
    if (!collected_ || collects_otherwise_ ||
        HoldsAny(trained.moved, checkpoint)) {
      return 0;
    }
    const std::string unknown =
        WhyNotSure(facts, checkpoint, content, last, trained);
    if (!unknown.empty()) {
      Tell(facts, unknown, nullptr, nullptr);
      return 0;
    }
    // Too little has moved for a new state to look new: this save neither adds
    // to the row nor ends it.
    if (!trained.MostMoved()) return last.repeats;
    if (last.repeats + 1 >= kRepeats) Tell(facts, "", &checkpoint, &last);
    return last.repeats + 1;
  }

  static std::string WhyNotSure(const ProcessFacts& facts,
                                const SavedCheckpoint& checkpoint,
                                const SaveContent& content, const Kept& last,
                                const Trained& trained) {
    if (last.gaps != facts.gaps()) return facts.gap_reason();
    if (checkpoint.left_out != 0) {
      return "the checkpoint has " + std::to_string(checkpoint.left_out) +
             " more entries than are recorded";
    }
    if (content.unread) {
      return "tensors of the checkpoint could not be read on " + facts.Name();
    }
    if (trained.read == 0) {
      return "parameters could not be read on " + facts.Name();
    }
    return "";
  }

  // What a new state would differ by: the trainable parameters of the
  // optimizers that have stepped since the last save of this kind.
  Trained TrainedSince(const ProcessFacts& facts,
                       const SavedCheckpoint& checkpoint,
                       const Kept& last) const {
    Trained trained;
    const ProcessDefinitions& definitions = facts.definitions();
    std::set<uint64_t> storages;  // tied ones count once
    for (const auto& [key, variables] : definitions.holds()) {
      const auto now = steps_.find(key.first);
      const auto then = last.steps.find(key.first);
      // An optimizer that made no step since left its parameters as they were.
      if (now == steps_.end() ||
          (then != last.steps.end() && then->second == now->second)) {
        continue;
      }
      for (const uint32_t variable : variables) {
        const VariableInfo* info = definitions.Variable(variable);
        if (!info || info->kind != VariableKind::kParameter ||
            !info->trainable ||
            (info->alias_group != 0 &&
             !storages.insert(info->alias_group).second)) {
          continue;
        }
        trained.elements += Elements(info->shape);
        Compare(variable, checkpoint.live, last.live, &trained);
      }
    }
    return trained;
  }

  static void Compare(uint32_t variable, const Digests& live,
                      const Digests& before, Trained* trained) {
    const auto now = live.find(variable);
    const auto then = before.find(variable);
    // A parameter that was not read at one of the two saves neither moved nor
    // stood still.
    if (now == live.end() || then == before.end()) return;
    ++trained->read;
    if (now->second == then->second) return;
    ++trained->moves;
    trained->moved.insert(now->second);
  }

  static std::set<uint64_t> DigestsOf(const Digests& live) {
    std::set<uint64_t> digests;
    for (const auto& [variable, digest] : live) digests.insert(digest);
    return digests;
  }

  // Does it hold a tensor that is live, or one of these? Single numbers are
  // left out: counts of steps are equal in many states.
  static bool HoldsAny(const std::set<uint64_t>& digests,
                       const SavedCheckpoint& checkpoint) {
    return std::any_of(checkpoint.entries.begin(), checkpoint.entries.end(),
                       [&](const SavedEntry& entry) {
                         return entry.variable != 0 ||
                                (entry.digest && !entry.shape.empty() &&
                                 digests.count(*entry.digest) != 0);
                       });
  }

  // Is it a model, or a part of one, that some optimizer has stepped? A
  // teacher's or an average's state is not what training changes.
  bool IsTrained(const ProcessFacts& facts, uint32_t object) const {
    const uint32_t root = RootModuleOf(facts.definitions(), object);
    return root != 0 &&
           std::any_of(steps_.begin(), steps_.end(), [&](const auto& stepped) {
             const Optimizer* optimizer = facts.ownership().Find(stepped.first);
             return optimizer && optimizer->modules.count(root) != 0;
           });
  }

  // Something has taken the state that was collected in this pause: a save that
  // comes now has to collect one anew.
  void Taken() {
    collected_ = false;
    for (auto& [like, kept] : kept_) {
      // A row of repeats in this pause is explained by the other taker.
      if (kept.pause == pause_) kept.repeats = 0;
    }
  }

  // The oldest goes: a kind of save that comes again was kept again by then.
  void Keep(uint64_t like, Kept kept) {
    kept_[like] = std::move(kept);
    if (kept_.size() <= kMostKept) return;
    kept_.erase(std::min_element(kept_.begin(), kept_.end(),
                                 [](const auto& a, const auto& b) {
                                   return a.second.number < b.second.number;
                                 }));
  }

  // Reports a pass where neither a reason nor a repeated save is given.
  void Tell(const ProcessFacts& facts, const std::string& unknown,
            const SavedCheckpoint* repeats, const Kept* last) const {
    for (const auto& rule : judged_.rules) {
      Verdict verdict = NewVerdict(facts, rule.index, /*object=*/0);
      if (!unknown.empty()) MarkUnknown(unknown, &verdict);
      if (repeats != nullptr) Explain(facts, *repeats, *last, &verdict);
      judged_.sink->OnVerdict(verdict);
    }
  }

  static void Explain(const ProcessFacts& facts,
                      const SavedCheckpoint& checkpoint, const Kept& last,
                      Verdict* verdict) {
    MarkViolated(facts, checkpoint.call, verdict);
    verdict->label = "checkpoint " + std::to_string(checkpoint.number);
    verdict->finding.expected = "the state as it is now";
    verdict->finding.seen = "every tensor is as in checkpoint " +
                            std::to_string(last.number) +
                            ", though the parameters have changed since";
  }

  const Judged& judged_;
  Steps steps_;
  uint64_t pause_ = 0;  // steps of all optimizers
  // Since the last step: was the state of a model asked for, and not taken by
  // another save? Was anything saved?
  bool collected_ = false;
  bool saved_in_pause_ = false;
  // For a best state or an average, where nothing is saved.
  bool collects_otherwise_ = false;
  std::map<uint64_t, Kept> kept_;  // by what it is like
};

}  // namespace

const Relation* SavedMoment() {
  static const auto* const kRelation =
      new ProcessRelation<MomentSpec, MomentOfProcess>("SavedEqualsLive",
                                                       nullptr);
  return kRelation;
}

}  // namespace traincheck
