#include "invariants/rules/state_block.h"

#include "invariants/facts/variable_state.h"
#include "invariants/rules/words.h"

namespace traincheck {

namespace {

// Forwards of training: where one of a wrapper begins, the states of its
// replicas are compared.
bool IsTrainingForward(const Call& call) {
  return HasCategory(call, CallCategory::kForward) && call.Is(kGradEnabled) &&
         !call.Is(kInsideBackward) && call.object != 0;
}

BlockEntry EntryOf(const StateEvent& event, const VariableState& state) {
  BlockEntry entry;
  entry.variable = event.variable_id;
  if (event.Has(kUnreadable)) return entry;
  // From the facts, not the event: they have a digest for gradients that are
  // None or zero, too.
  if (event.Has(kHasData)) entry.data = state.data();
  if (event.Has(kHasGrad) || event.Has(kGradIsNone) || event.Has(kGradIsZero)) {
    entry.grad = state.grad();
  }
  entry.data_writer = state.data_writer();
  entry.grad_writer = state.grad_writer();
  return entry;
}

}  // namespace

const ReplicaGroupInfo* GroupOfWrapper(const ProcessFacts& facts,
                                       uint32_t object, uint32_t* ordinal) {
  *ordinal = 0;
  for (const auto& [id, group] : facts.definitions().groups()) {
    if (group.wrapper == object) return &group;
    ++*ordinal;
  }
  return nullptr;
}

void StateBlocks::OpenStep(const ProcessFacts& facts, const Call& call) {
  StateBlock block;
  block.ring = call.ring;
  block.call = call.number;
  block.object = call.object;
  // By the optimizer's own count: ranks whose training steps differ still make
  // the same steps of one optimizer.
  block.index = facts.clock().OptimizerSteps(call.object);
  block.step = facts.clock().known_step();
  // Both points of a step are recorded within its call.
  Open open{facts.gaps(), facts.recorded().now(), {block, block}};
  open.blocks[0].point = StatePoint::kPreStep;
  open.blocks[1].point = StatePoint::kPostStep;
  open_.push_back(std::move(open));
}

void StateBlocks::OpenForward(const ProcessFacts& facts, const Call& call) {
  StateBlock block;
  if (!GroupOfWrapper(facts, call.object, &block.ordinal)) return;
  block.point = StatePoint::kForwardBegin;
  block.ring = call.ring;
  block.call = call.number;
  block.object = call.object;
  block.step = facts.clock().known_step();
  // DDP broadcasts buffers in the first of a step's forwards at any rate; in
  // those that follow a forward under no_sync it does not.
  const uint64_t step = facts.clock().step();
  const auto [last, added] = forwards_.emplace(call.object, step);
  if (!added && last->second == step) return;
  last->second = step;
  // A wrapper has one such block in a step, so the step counts them.
  block.index = block.step;

  open_.push_back(
      Open{facts.gaps(), facts.recorded().now(), {std::move(block)}});
}

void StateBlocks::OnCallBegin(const ProcessFacts& facts, const Call& call) {
  if (IsOptimizerStep(call)) {
    OpenStep(facts, call);
  } else if (IsTrainingForward(call)) {
    OpenForward(facts, call);
  }
}

void StateBlocks::Fields(Archive& archive) {
  archive(open_, forwards_);
  for (const Open& open : open_) {
    if (open.blocks.empty()) archive.Fail("a call has no state blocks");
  }
  if (!archive.ok()) open_.clear();
}

// The block that a state record belongs to. From the inside, because calls of
// optimizers and of wrappers may enclose each other.
StateBlocks::Open* StateBlocks::Innermost(uint32_t ring, StatePoint point,
                                          uint32_t object) {
  for (auto open = open_.rbegin(); open != open_.rend(); ++open) {
    for (StateBlock& block : open->blocks) {
      if (block.ring != ring || block.point != point) continue;
      if (object == 0 || block.object == object) return &*open;
    }
  }
  return nullptr;
}

void StateBlocks::OnState(const ProcessFacts& facts, const StateEvent& event) {
  if (!event.call) return;
  uint32_t object = 0;
  if (event.point == StatePoint::kForwardBegin) {
    const ReplicaGroupInfo* group =
        facts.ownership().GroupOf(event.variable_id);
    // It is recorded as the forward of the inner model begins, and belongs to
    // the block of the wrapper around it.
    if (!group || group->wrapper == 0) return;
    object = group->wrapper;
  } else if (event.point == StatePoint::kPreStep ||
             event.point == StatePoint::kPostStep) {
    object = event.call->object;
  } else {
    return;
  }
  Open* open = Innermost(event.call->ring, event.point, object);
  const VariableState* state = facts.Variable(event.variable_id);
  if (!open || !state) return;
  for (StateBlock& block : open->blocks) {
    if (block.point == event.point) {
      block.entries.push_back(EntryOf(event, *state));
    }
  }
}

void StateBlocks::OnCallEnd(const ProcessFacts& facts, const Call& call,
                            CallOutcome outcome) {
  // From the inside: the call that ends is most often the last one that was
  // opened.
  for (size_t i = open_.size(); i-- > 0;) {
    const StateBlock& first = open_[i].blocks.front();
    if (first.ring != call.ring || first.call != call.number) continue;
    Open open = std::move(open_[i]);
    open_.erase(open_.begin() + static_cast<ptrdiff_t>(i));
    Close(facts,
          outcome == CallOutcome::kReturned ? "" : "the call did not return",
          std::move(open));
    return;
  }
}

// A process that died within a step has recorded a part of its states: other
// ranks are not compared with that.
void StateBlocks::OnEnd(const ProcessFacts& facts, ProcessEnd end) {
  std::vector<Open> open;
  open.swap(open_);
  for (Open& one : open) {
    Close(facts, WhoseEndWords(facts, end), std::move(one));
  }
}

void StateBlocks::Close(const ProcessFacts& facts, const std::string& broken,
                        Open open) {
  for (StateBlock& block : open.blocks) {
    // What an optimizer holds may be recorded as late as within its first step,
    // so its ordinal is looked up at the end of the call.
    const Optimizer* optimizer = facts.ownership().Find(block.object);
    if (optimizer) block.ordinal = optimizer->ordinal;
    block.broken = broken;
    if (!facts.recorded().WholeSince(open.recorded, block.ring, block.call)) {
      block.broken = facts.not_sampled();
      if (block.entries.empty()) AddUnrecorded(facts, &block);
    }
    // Missing records come last and so outweigh the other reasons.
    if (open.gaps != facts.gaps()) block.broken = facts.gap_reason();
    OnBlock(facts, block);
  }
}

// Rules make their windows from the entries. Without any this rank's part of
// the comparison would be missing, and the reason with it.
void StateBlocks::AddUnrecorded(const ProcessFacts& facts, StateBlock* block) {
  const auto add = [block](uint32_t variable) {
    BlockEntry entry;
    entry.variable = variable;
    block->entries.push_back(entry);
  };
  if (const Optimizer* optimizer = facts.ownership().Find(block->object)) {
    for (const HeldVariable& held : optimizer->held) add(held.variable);
    return;
  }
  uint32_t ordinal = 0;
  if (const auto* group = GroupOfWrapper(facts, block->object, &ordinal)) {
    for (const uint32_t variable : group->variables) add(variable);
  }
}

void BlockEntry::Fields(Archive& archive) {
  archive(variable, data, grad, data_writer, grad_writer);
}

void StateBlock::Fields(Archive& archive) {
  archive(point, ring, call, object, ordinal, index, step, entries, broken);
}

void StateBlocks::Open::Fields(Archive& archive) {
  archive(gaps, recorded, blocks);
}

}  // namespace traincheck
