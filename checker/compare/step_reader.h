// Turns the stored batches of one process into what it recorded step by step.
// Keeps the steps that closed and were not taken yet: with batches of several
// steps some, else one.
//
// Threads: one object, one thread at a time.
#ifndef TRAINCHECK_CHECKER_COMPARE_STEP_READER_H_
#define TRAINCHECK_CHECKER_COMPARE_STEP_READER_H_

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "checker/compare/names.h"
#include "checker/compare/step_content.h"
#include "invariants/trace/clock.h"
#include "invariants/trace/events.h"
#include "invariants/trace/process_reader.h"
#include "invariants/trace/stored_batch.h"

namespace traincheck {

class StepReader : private EventVisitor {
 public:
  struct Options {
    // A loader's worker makes as many calls as it is let to.
    bool calls = true;
  };

  // `names` must outlive the reader.
  StepReader(Names* names, const Options& options)
      : names_(*names), options_(options), reader_(this) {}

  // The next batch in the order of the store.
  void Consume(const StoredBatch& batch) { reader_.Consume(batch); }
  // No more batches will come: what is open closes.
  void End();

  bool HasStep() const { return !closed_.empty(); }
  // REQUIRES: HasStep. Pointers in it are of definitions().
  StepContent Take();

  const ProcessDefinitions& definitions() const {
    return reader_.definitions();
  }
  // Steps that closed, as far as it is known.
  uint64_t steps() const { return steps_; }
  // False: records are missing behind which the number of the step is not known
  // yet.
  bool knows_steps() const { return clock_.synced(); }

 private:
  void OnCallBegin(const Call& call) override;
  void OnCallEnd(const Call& call, CallOutcome outcome,
                 uint8_t output_flags) override;
  void OnState(const StateEvent& event) override;
  void OnScalar(const ScalarEvent& event) override;
  void OnMark(const MarkEvent& event) override;
  void OnCollective(const CollectiveEvent& event) override;
  void OnContext(const ContextEvent& event) override;
  void OnCheckpointEntry(const CheckpointEntryEvent& event) override;
  void OnPlace(const PlaceRecord&) override {}
  void OnGap(const std::string& reason) override;
  void OnDefinition(RecordType type, uint32_t id) override;

  // Begins the step that the clock is in, unless it is open.
  void FollowClock();
  void BeginStep(uint64_t step);
  void CloseStep();
  // Is what comes now kept?
  bool keeps() const { return open_.missing.empty(); }
  Moment Now(const Call* call);
  // The same of what names no call: of the last one that began.
  Moment Here() { return {phase_, position_++, site_}; }
  bool IsAsBegun(const StateEvent& event);
  void AddNote(RecordedNote note, const Call* call);
  NameId VariableName(uint32_t id, const VariableInfo& variable);
  NameId Callee(const Call& call);
  std::string ObjectLabel(uint32_t id) const;
  void DefineHolds(uint32_t optimizer);
  void OnFunctionMark(const MarkEvent& mark);

  Names& names_;
  const Options options_;
  ProcessReader reader_;
  Clock clock_;
  std::deque<StepContent> closed_;
  StepContent open_;
  uint64_t steps_ = 0;
  bool whole_ = true;        // is everything of the plan recorded now?
  bool has_modes_ = false;   // has it ever said?
  bool phase_ends_ = false;  // with the next call
  uint32_t phase_ = 0;
  uint32_t position_ = 0;
  uint32_t site_ = 0;           // of the last call that began
  std::set<uint32_t> updated_;  // variables that were stepped in open_
  struct OpenCall {
    uint64_t step_serial = 0;  // of the step in which it began
    size_t index = 0;          // in that step's calls
  };
  // By ring and number.
  std::map<std::pair<uint32_t, uint64_t>, OpenCall> open_calls_;
  uint64_t step_serial_ = 0;
  std::shared_ptr<const std::set<NameId>> functions_;
  std::set<uint32_t> optimizers_;  // of which it was said what they hold
  std::unordered_map<uint32_t, NameId> variable_names_;
  std::map<std::pair<uint32_t, uint32_t>, NameId> callees_;
};

}  // namespace traincheck

#endif  // TRAINCHECK_CHECKER_COMPARE_STEP_READER_H_
