#include "invariants/relations/call_returns/open_calls.h"

#include <algorithm>
#include <numeric>

#include "base/hash.h"
#include "invariants/rules/rank_groups.h"
#include "invariants/rules/tensor_words.h"
#include "invariants/rules/words.h"
#include "invariants/trace/call_contexts.h"
#include "invariants/trace/call_values.h"

namespace traincheck {

namespace {

// The world size comes from a record, so a process could name any number, and
// the list of ranks has that many entries. A larger world shares no calls of
// training.
constexpr int32_t kMostRanks = 1 << 16;

bool IsCollective(const Call& call) {
  return HasCategory(call, CallCategory::kCollective);
}

// Does every rank of a training make it, as often as the others?
bool IsOfTraining(const Call& call) {
  if (HasCategory(call, CallCategory::kBackward)) return call.Is(kOutermost);
  if (IsOptimizerStep(call)) return true;
  // Ranks need not evaluate alike, and a forward inside a backward is a
  // recomputation, none of the training's own.
  return IsRootForward(call) && call.Is(kGradEnabled) &&
         !call.Is(kInsideBackward);
}

// Calls that block on other ranks or on workers of a loader. Other calls
// compute, and take as long as they take.
bool Waits(const Call& call) {
  return IsCollective(call) || IsOfTraining(call) ||
         HasCategory(call, CallCategory::kLoaderNext);
}

}  // namespace

OpenCall& OpenCalls::Begin(const ProcessFacts& facts, const Call& call) {
  std::vector<OpenCall>& thread = threads_[call.ring];
  OpenCall open;
  open.number = call.number;
  open.waits = Waits(call);
  // Most calls do not wait: copies of their arguments would be most of the
  // cost.
  if (open.waits) {
    open.call = call;
    open.step = facts.clock().known_step();
    Wait(facts, &open);
  }
  if (IsOfTraining(call)) open.shared = NextOf(facts, call);
  thread.push_back(std::move(open));
  return thread.back();
}

SharedCall OpenCalls::NextOf(const ProcessFacts& facts, const Call& call) {
  SharedCall shared;
  if (!facts.rank() || facts.world() < 2 || facts.world() > kMostRanks ||
      facts.gaps() > 0) {
    return shared;
  }
  // A hash that is the same on every rank and in each check, unlike the number
  // of the function.
  shared.kind = StableHash(call.function->category.text());
  // Counted by the process itself, so that ranks agree on it in whatever order
  // their batches come.
  shared.number = begun_[shared.kind]++;
  const auto world = static_cast<size_t>(facts.world());
  if (!all_ || all_->size() != world) {
    std::vector<int32_t> ranks(world);
    std::iota(ranks.begin(), ranks.end(), 0);
    all_ = std::make_shared<const std::vector<int32_t>>(std::move(ranks));
  }
  shared.ranks = all_;
  return shared;
}

void OpenCalls::End(const ProcessFacts& facts, const Call& call) {
  std::vector<OpenCall>& thread = threads_[call.ring];
  if (!Find(call)) return;
  thread.pop_back();
  // The call around it is the innermost one again, and its time begins anew.
  if (!thread.empty() && thread.back().waits) Wait(facts, &thread.back());
}

OpenCall* OpenCalls::Find(const Call& call) {
  const auto found = threads_.find(call.ring);
  if (found == threads_.end() || found->second.empty()) return nullptr;
  OpenCall& innermost = found->second.back();
  return innermost.number == call.number ? &innermost : nullptr;
}

// Starts the time of a call anew: at its begin, and each time that a call
// inside it has ended, because the thread has shown that it goes on.
void OpenCalls::Wait(const ProcessFacts& facts, OpenCall* open) const {
  open->since_us = facts.now_us();
  open->timed = times_.Of(facts, open->call.ring);
  open->gaps = facts.gaps();
}

// The innermost call is what a thread waits in: those around it only wait for
// it, and would each be told of once more.
std::vector<OpenCall*> OpenCalls::Waiting(const ProcessFacts& facts) {
  std::vector<OpenCall*> waiting;
  for (auto& [ring, thread] : threads_) {
    if (thread.empty()) continue;
    OpenCall& innermost = thread.back();
    if (innermost.waits && innermost.timed && innermost.gaps == facts.gaps()) {
      waiting.push_back(&innermost);
    }
  }
  return waiting;
}

const SharedCall* OpenCalls::SetCollective(const ProcessFacts& facts,
                                           const CollectiveEvent& event) {
  OpenCall* open = event.call ? Find(*event.call) : nullptr;
  if (!open || !event.info || event.info->ranks.size() < 2) return nullptr;
  const SortedGroups::Group* sorted = groups_.Of(facts, event.group);
  if (!sorted) return nullptr;
  // Made once for each group (kind 0: not yet), because hashing a thousand
  // ranks at each collective would be most of the cost.
  SharedCall& group = of_groups_[event.group];
  if (group.kind == 0) {
    group.ranks = sorted->ranks;
    // By its members and its place among groups of the same members: the ids of
    // groups differ from rank to rank.
    group.kind = StableHash(RankWords(*group.ranks) + "#" +
                            std::to_string(sorted->ordinal));
    group.collective = true;
  }
  open->shared = group;
  open->shared.number = event.sequence;
  return &open->shared;
}

std::string BroughtBy(const ProcessFacts& facts, const OpenCall& open) {
  if (!IsCollective(open.call)) return "";
  const ToldArguments told = ArgumentsOf(open.call, facts.definitions());
  for (const CallArgument& argument : told.all) {
    const auto* tensor = argument.value.Get<TensorValue>();
    if (tensor) return TensorWords(*tensor);
  }
  return "";
}

void OpenCall::Fields(Archive& archive) {
  archive(number, waits, call, shared, step, since_us, timed, gaps, late);
}

void OpenCalls::Fields(Archive& archive) { archive(threads_, begun_, times_); }

}  // namespace traincheck
