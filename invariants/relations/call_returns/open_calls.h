// The open calls of a process, as its threads have begun them: which of them
// wait, since when, and who else is to make them.
//
// Threads: one object, one thread at a time.
#ifndef TRAINCHECK_INVARIANTS_RELATIONS_CALL_RETURNS_OPEN_CALLS_H_
#define TRAINCHECK_INVARIANTS_RELATIONS_CALL_RETURNS_OPEN_CALLS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "invariants/facts/process_facts.h"
#include "invariants/relations/call_returns/known_times.h"
#include "invariants/relations/call_returns/late_calls.h"
#include "invariants/rules/rank_groups.h"

namespace traincheck {

struct OpenCall {
  uint64_t number = 0;
  bool waits = false;  // for other processes, as a rule
  // Of the others nothing more is kept.
  Call call;
  SharedCall shared;
  std::optional<int64_t> step;
  uint64_t since_us = 0;  // nothing was recorded on its thread
  bool timed = false;     // is that known?
  uint64_t gaps = 0;      // of the process by then
  std::set<size_t> late;  // rules by which it is

  void Fields(Archive& archive);
};

class OpenCalls {
 public:
  // The call as it is kept. A collective is not shared yet.
  OpenCall& Begin(const ProcessFacts& facts, const Call& call);
  // Its innermost call is this collective. Null: it is not, or of no group
  // that is known here.
  const SharedCall* SetCollective(const ProcessFacts& facts,
                                  const CollectiveEvent& event);
  void End(const ProcessFacts& facts, const Call& call);
  // Null: it is not the innermost one of its thread.
  OpenCall* Find(const Call& call);
  // The innermost calls that wait, of each thread, as far as nothing is missing
  // since they began and it is known when that was.
  std::vector<OpenCall*> Waiting(const ProcessFacts& facts);
  void OnMark(const ProcessFacts& facts, const MarkEvent& mark) {
    times_.OnMark(facts, mark);
  }

  void OnDefinition(RecordType type) {
    groups_.OnDefinition(type);
    if (type == RecordType::kProcessGroupDef) of_groups_.clear();
  }

  void Fields(Archive& archive);

 private:
  // Calls that all ranks of a training make in the same order; not once
  // records are missing, which may be some of them.
  SharedCall NextOf(const ProcessFacts& facts, const Call& call);
  // From now on nothing was recorded on its thread.
  void Wait(const ProcessFacts& facts, OpenCall* open) const;

  std::map<uint32_t, std::vector<OpenCall>> threads_;  // by ring
  std::map<uint64_t, uint64_t> begun_;                 // by kind
  KnownTimes times_;
  SortedGroups groups_;
  // The ranks of the training: one list for all calls. Not saved.
  std::shared_ptr<const std::vector<int32_t>> all_;
  // The next collective of each group, found anew only where a definition says
  // so: a group may be of a thousand ranks. Not part of what is saved.
  std::map<uint32_t, SharedCall> of_groups_;
};

// "torch.float32 [3]" of a collective; "": it does not tell it.
std::string BroughtBy(const ProcessFacts& facts, const OpenCall& open);

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_RELATIONS_CALL_RETURNS_OPEN_CALLS_H_
