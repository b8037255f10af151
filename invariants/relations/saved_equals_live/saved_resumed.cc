#include "invariants/relations/saved_equals_live/saved_resumed.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "base/json_reader.h"
#include "invariants/relations/saved_equals_live/optimizer_states.h"
#include "invariants/relations/saved_equals_live/saved_calls.h"
#include "invariants/relations/saved_equals_live/saved_checkpoint.h"
#include "invariants/rules/process_relation.h"
#include "invariants/rules/verdicts.h"
#include "invariants/rules/words.h"

namespace traincheck {

namespace {

struct ResumedSpec {
  static absl::StatusOr<ResumedSpec> Parse(const nlohmann::json& parameters,
                                           const std::string& path) {
    JsonReader reader(parameters, path);
    reader.String("what");
    return reader.Finish(ResumedSpec{});
  }
  std::string Describe() const {
    return "When a training is resumed, an optimizer's state that was read is "
           "loaded into the optimizer before it steps.";
  }
  static std::vector<const Fact*> Facts() { return {}; }
  void AddNeeds(CaptureNeeds* needs) const { needs->SavedContents(); }
};
using Judged = JudgedRules<SpecRule<ResumedSpec>>;

// What one load gave.
struct ReadFile {
  Call call;
  uint64_t number = 0;
  uint64_t gaps = 0;
  uint64_t left_out = 0;
  OptimizerStates content;

  void Fields(Archive& archive) {
    archive(call, number, gaps, left_out, content);
  }
};

// For programs that go on reading files and never step: only the last files are
// kept.
constexpr size_t kMostFiles = 64;

constexpr std::string_view kOptimizers = "torch.optim.";

constexpr CheckpointPoints kReading = {StatePoint::kLoad, StatePoint::kNone};

// Was most of the state given to an optimizer? Not any tensor of it: a tensor
// of zeros may be in several states.
bool IsAmong(const std::set<uint64_t>& state, const std::set<uint64_t>& given) {
  const auto found = static_cast<size_t>(
      std::count_if(state.begin(), state.end(),
                    [&](uint64_t digest) { return given.count(digest) != 0; }));
  return 2 * found >= state.size();
}

class ResumedOfProcess : public SavedCheckpoints {
 public:
  explicit ResumedOfProcess(const Judged* judged)
      : SavedCheckpoints(kReading), judged_(*judged) {}

  void OnCallBegin(const ProcessFacts& facts, const Call& call) override {
    if (!IsOptimizerStep(call)) return;
    // The second step of an optimizer: the program has begun to train, and what
    // it left of the files until now is left for good.
    if (judged_optimizers_.count(call.object)) {
      files_.clear();
      took_.clear();
      taken_keys_.clear();
      given_.clear();
      judged_optimizers_.clear();
    }
    if (!files_.empty()) Judge(facts, call);
    // Each optimizer has one window behind a file: its first step.
    judged_optimizers_.insert(call.object);
  }

  void OnCallEnd(const ProcessFacts& facts, const Call& call,
                 CallOutcome outcome) override {
    SavedCheckpoints::OnCallEnd(facts, call, outcome);
    if (outcome == CallOutcome::kRaised ||
        !IsOfCategory(call, "load_state_dict")) {
      return;
    }
    // An optimizer that has no number yet is noted as 0: some optimizer took a
    // state, and nobody knows which (HasTakenState).
    if (call.object != 0 || IsOfOptimizer(facts, call)) {
      took_.insert(call.object);
    }
    // A part that takes its state (an encoder) counts for its model.
    const uint32_t root = RootModuleOf(facts.definitions(), call.object);
    if (root != 0) took_.insert(root);
  }

  void OnCheckpointEntry(const ProcessFacts& facts,
                         const CheckpointEntryEvent& event) override {
    SavedCheckpoints::OnCheckpointEntry(facts, event);
    if (event.point != StatePoint::kLoadStateDict || !event.call) return;
    if (IsOfOptimizer(facts, *event.call)) {
      if (event.digest) given_.insert(*event.digest);
    } else if (event.call->object == 0 && event.digest) {
      taken_keys_.insert(*event.key);
    }
  }

  // A load that is open at the end is followed by no step, so it has no window
  // that could be unknown.
  void OnEnd(const ProcessFacts& facts, ProcessEnd end) override {}

  void Fields(Archive& archive) override {
    SavedCheckpoints::Fields(archive);
    archive(files_, took_, taken_keys_, given_, judged_optimizers_);
  }

 private:
  static bool IsOptimizer(const ProcessFacts& facts, uint32_t object) {
    const ObjectInfo* info = facts.definitions().Object(object);
    return info && info->kind == ObjectKind::kOptimizer;
  }

  // The optimizer itself may not be known yet.
  static bool IsOfOptimizer(const ProcessFacts& facts, const Call& call) {
    return IsOptimizer(facts, call.object) ||
           (call.function && call.function->name.compare(0, kOptimizers.size(),
                                                         kOptimizers) == 0);
  }

  void OnCheckpoint(const ProcessFacts& facts,
                    const SavedCheckpoint& checkpoint,
                    const Digests& before) override {
    // Other functions that load fill in tensors that they are given, which may
    // be those of the optimizer itself.
    if (facts.FunctionName(checkpoint.call.function_id) !=
        "torch.serialization.load") {
      return;
    }
    OptimizerStates content = FindOptimizerStates(checkpoint.entries);
    if (content.states.empty()) return;
    if (files_.size() == kMostFiles) files_.erase(files_.begin());
    files_.push_back({checkpoint.call, checkpoint.number, checkpoint.gaps,
                      checkpoint.left_out, std::move(content)});
    // A further file opens a window for each optimizer once more.
    judged_optimizers_.clear();
  }

  void Judge(const ProcessFacts& facts, const Call& step) const {
    const Optimizer* optimizer = facts.ownership().Find(step.object);
    if (!optimizer || !HasTakenModel(facts, *optimizer)) return;
    if (HasTakenState(facts, *optimizer)) return Tell(facts, step, nullptr, "");
    for (const ReadFile& file : files_) {
      // The first file that was left is told: a step has one verdict a rule.
      if (!IsLeft(file)) continue;
      return Tell(facts, step, &file, WhyNotSure(facts, file));
    }
  }

  bool HasTakenModel(const ProcessFacts& facts,
                     const Optimizer& optimizer) const {
    const bool known = std::any_of(
        optimizer.modules.begin(), optimizer.modules.end(),
        [this](uint32_t module) { return took_.count(module) != 0; });
    return known || AreNamed(facts, optimizer.held);
  }

  // A model is known from its first call on. A state that it took earlier shows
  // only by its keys, which end with the names of its parameters.
  bool AreNamed(const ProcessFacts& facts,
                const std::vector<HeldVariable>& held) const {
    std::set<std::string_view> names;
    for (const HeldVariable& one : held) {
      const VariableInfo* info = facts.definitions().Variable(one.variable);
      if (info) names.insert(info->name);
    }
    return std::any_of(
        taken_keys_.begin(), taken_keys_.end(),
        [&](const std::string& key) { return EndsWithOne(key, names); });
  }

  static bool EndsWithOne(std::string_view key,
                          const std::set<std::string_view>& names) {
    while (names.count(key) == 0) {
      const size_t dot = key.find('.');
      if (dot == std::string_view::npos) return false;
      key.remove_prefix(dot + 1);
    }
    return true;
  }

  // Has the optimizer taken a state, or one that wraps it or is wrapped by it?
  // These hold the same parameters.
  bool HasTakenState(const ProcessFacts& facts,
                     const Optimizer& optimizer) const {
    // 0: one of which it is not known which it was.
    if (took_.count(optimizer.object) || took_.count(0)) return true;
    std::set<uint32_t> held;
    for (const HeldVariable& one : optimizer.held) held.insert(one.variable);
    for (const auto& [key, variables] : facts.definitions().holds()) {
      if (!took_.count(key.first)) continue;
      for (const uint32_t variable : variables) {
        if (held.count(variable)) return true;
      }
    }
    return false;
  }

  // Was it read to resume, and does it hold a state that no optimizer took?
  bool IsLeft(const ReadFile& file) const {
    const auto taken = std::count_if(
        file.content.states.begin(), file.content.states.end(),
        [this](const auto& state) { return IsAmong(state, given_); });
    const bool all = static_cast<size_t>(taken) == file.content.states.size();
    // See the header: without either sign the file may have been read for its
    // weights alone.
    return !all && (!file.content.holds_weights || taken > 0);
  }

  std::string WhyNotSure(const ProcessFacts& facts,
                         const ReadFile& file) const {
    if (file.gaps != facts.gaps()) return facts.gap_reason();
    if (file.left_out != 0) {
      return "what was read has " + std::to_string(file.left_out) +
             " more entries than are recorded";
    }
    const bool others_took = std::any_of(
        took_.begin(), took_.end(),
        [&](uint32_t object) { return IsOptimizer(facts, object); });
    // The state that others took may have been that of this file.
    if (others_took && given_.empty()) return facts.not_sampled();
    return "";
  }

  // Reports a pass where `file` is null.
  void Tell(const ProcessFacts& facts, const Call& step, const ReadFile* file,
            const std::string& unknown) const {
    for (const auto& rule : judged_.rules) {
      Verdict verdict = NewVerdict(facts, rule.index, step.object);
      if (!unknown.empty()) {
        MarkUnknown(unknown, &verdict);
      } else if (file != nullptr) {
        Explain(facts, step, *file, &verdict);
      }
      judged_.sink->OnVerdict(verdict);
    }
  }

  static void Explain(const ProcessFacts& facts, const Call& step,
                      const ReadFile& file, Verdict* verdict) {
    MarkViolated(facts, file.call, verdict);
    verdict->label = "load " + std::to_string(file.number);
    const ObjectInfo* optimizer = facts.definitions().Object(step.object);
    const std::string name = optimizer ? optimizer->class_name : "an optimizer";
    Finding& finding = verdict->finding;
    finding.expected =
        "load_state_dict of the optimizer with what was read, before it steps";
    finding.seen = name + " stepped without a state; its model had loaded one";
    finding.evidence.push_back(file.content.holds_weights
                                   ? "another optimizer took its state of it"
                                   : "what was read holds no weights");
  }

  const Judged& judged_;
  // Since an optimizer stepped twice.
  std::vector<ReadFile> files_;
  std::set<uint32_t> took_;           // objects that took a state
  std::set<std::string> taken_keys_;  // by modules that were not known then
  std::set<uint64_t> given_;          // digests, to optimizers
  std::set<uint32_t> judged_optimizers_;
};

}  // namespace

const Relation* SavedResumed() {
  static const auto* const kRelation =
      new ProcessRelation<ResumedSpec, ResumedOfProcess>("SavedEqualsLive",
                                                         nullptr);
  return kRelation;
}

}  // namespace traincheck
