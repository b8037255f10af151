#include "invariants/relations/event_contain/contain_kept.h"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "invariants/relations/event_contain/contain_rules.h"
#include "invariants/rules/state_block.h"
#include "invariants/rules/words.h"

namespace traincheck {

namespace {

// What one optimizer holds, as its last step left it.
struct Left {
  std::map<uint32_t, uint64_t> data;  // by variable
  uint64_t gaps = 0;

  void Fields(Archive& archive) { archive(data, gaps); }
};

class KeptBetweenSteps : public StateBlocks {
 public:
  explicit KeptBetweenSteps(const ContainJudged* judged)
      : sink_(judged->sink), index_(&judged->rules) {}

  void OnDefinition(const ProcessFacts& facts, RecordType type,
                    uint32_t id) override {
    if (type == RecordType::kFunctionDef) index_.Forget(id);
  }

  void OnCallBegin(const ProcessFacts& facts, const Call& call) override {
    // Blocks name the optimizer and not the function: which rules are about its
    // step shows by the call.
    if (IsOptimizerStep(call)) steps_[call.object] = call;
    StateBlocks::OnCallBegin(facts, call);
  }

  void Fields(Archive& archive) override {
    StateBlocks::Fields(archive);
    archive(steps_, left_);
  }

 private:
  // The span runs from one post_step to the next pre_step, so a step is judged
  // at its first block and remembered at its second.
  void OnBlock(const ProcessFacts& facts, const StateBlock& block) override {
    if (block.point == StatePoint::kPreStep) return Judge(facts, block);
    if (block.point != StatePoint::kPostStep) return;
    Left& left = left_[block.object];
    // Made anew even where nothing was recorded: what an earlier step left says
    // nothing of this span.
    left = {{}, facts.gaps()};
    for (const BlockEntry& entry : block.entries) {
      if (entry.data) left.data[entry.variable] = *entry.data;
    }
  }

  void Judge(const ProcessFacts& facts, const StateBlock& block) {
    const auto step = steps_.find(block.object);
    const auto left = left_.find(block.object);
    // Before the first step there is no span.
    if (step == steps_.end() || left == left_.end()) return;
    // Compared once for all rules on the step.
    std::vector<std::string> changed;
    size_t compared = 0;
    for (const BlockEntry& entry : block.entries) {
      const auto before = left->second.data.find(entry.variable);
      // What cannot be compared shows below: fewer were compared than there
      // are.
      if (!entry.data || before == left->second.data.end()) continue;
      ++compared;
      const VariableInfo* info = facts.definitions().Variable(entry.variable);
      if (info && before->second != *entry.data) {
        changed.push_back(info->FullName());
      }
    }
    // What the optimizer holds is not known, so there is nothing to compare.
    if (block.entries.empty() && left->second.data.empty()) return;
    for (const ContainRule* rule : index_.Find(step->second).windows) {
      Verdict verdict = NewVerdict(facts, *rule, block.object);
      verdict.step = block.step;
      // A step may be among what is missing, so even a change is no violation.
      if (left->second.gaps != facts.gaps()) {
        MarkUnknown(facts.gap_reason(), &verdict);
      } else if (!changed.empty()) {
        std::sort(changed.begin(), changed.end());
        MarkViolated(facts, step->second, *rule, &verdict);
        verdict.finding.variables = changed;
        verdict.finding.seen =
            std::to_string(changed.size()) +
            " changed since its last step: " + ListWords(changed, 3);
      } else if (!block.broken.empty() || compared < block.entries.size()) {
        MarkUnknown(block.broken.empty() ? "a parameter was not recorded"
                                         : block.broken,
                    &verdict);
      }
      sink_->OnVerdict(verdict);
    }
  }

  RuleSink* const sink_;
  FunctionIndex index_;
  std::map<uint32_t, Call> steps_;  // the last one, by optimizer
  std::map<uint32_t, Left> left_;   // by optimizer
};

}  // namespace

const Relation* ContainKept() {
  static const auto* const kForm = new ContainForm<KeptBetweenSteps>(
      "EventContain", /*make_generator=*/nullptr);
  return kForm;
}

}  // namespace traincheck
