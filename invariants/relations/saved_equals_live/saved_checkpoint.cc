#include "invariants/relations/saved_equals_live/saved_checkpoint.h"

#include "invariants/rules/words.h"

namespace traincheck {

void SavedCheckpoints::OnCheckpointEntry(const ProcessFacts& facts,
                                         const CheckpointEntryEvent& event) {
  if (event.point != points_.entries || !event.call) return;
  const auto [found, added] =
      open_.try_emplace({event.call->ring, event.call->number});
  SavedCheckpoint& checkpoint = found->second;
  // A checkpoint begins with its first entry: a call that saves nothing that is
  // recorded is not counted.
  if (added) {
    checkpoint.call = *event.call;
    checkpoint.number = ++saved_;
    checkpoint.gaps = facts.gaps();
  }
  checkpoint.left_out += event.left_out;
  // An entry with left_out stands for all further ones and has no key.
  if (event.left_out != 0) return;
  checkpoint.entries.push_back(
      {*event.key, event.dtype, event.shape, event.digest, event.variable});
}

void SavedCheckpoints::OnState(const ProcessFacts& facts,
                               const StateEvent& event) {
  if (event.point != points_.states || !event.call) return;
  const auto open = open_.find({event.call->ring, event.call->number});
  // A variable whose digest is missing is left out of `live`, and so counts as
  // unread.
  if (open == open_.end() || !event.Has(kHasData)) return;
  open->second.live[event.variable_id] = event.data;
}

void SavedCheckpoints::OnCallEnd(const ProcessFacts& facts, const Call& call,
                                 CallOutcome outcome) {
  const auto open = open_.find({call.ring, call.number});
  if (open == open_.end()) return;
  SavedCheckpoint checkpoint = std::move(open->second);
  open_.erase(open);
  // A call that raised left the file, or the model, incomplete in any case:
  // what it held says nothing.
  if (outcome == CallOutcome::kRaised) return;
  if (checkpoint.gaps != facts.gaps()) checkpoint.broken = facts.gap_reason();
  // Judged against what was live at the saves before it, and only then part of
  // that.
  OnCheckpoint(facts, checkpoint, before_);
  for (const auto& [variable, digest] : checkpoint.live) {
    before_[variable] = digest;
  }
}

void SavedCheckpoints::OnEnd(const ProcessFacts& facts, ProcessEnd end) {
  for (auto& [place, checkpoint] : open_) {
    checkpoint.broken = WhoseEndWords(facts, end);
    OnCheckpoint(facts, checkpoint, before_);
  }
  open_.clear();
}

void SavedCheckpoints::Fields(Archive& archive) {
  archive(open_, before_, saved_);
}

void SavedCheckpoint::Fields(Archive& archive) {
  archive(call, number, gaps, left_out, entries, live);
}

}  // namespace traincheck
