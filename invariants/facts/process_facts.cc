#include "invariants/facts/process_facts.h"

#include "invariants/facts/trackers.h"

namespace traincheck {

std::string NameOfProcess(uint32_t number, std::optional<int32_t> rank) {
  return rank ? "rank " + std::to_string(*rank)
              : "process " + std::to_string(number);
}

// The trackers get references to members of this object, which is why it cannot
// be copied or moved, and why those members stand before `trackers_`.
ProcessFacts::ProcessFacts(uint32_t number)
    : number_(number),
      reader_(this),
      ownership_(&reader_.definitions()),
      trackers_(std::make_unique<Trackers>(
          FactInputs{reader_.definitions(), ownership_, recorded_, gaps_})) {}

ProcessFacts::~ProcessFacts() = default;

void ProcessFacts::OnCallBegin(const Call& call) {
  // From below to above: clock, stage, trackers, observers. Each sees what
  // those before it know with this event.
  clock_.OnCallBegin(call);
  stage_.OnCallBegin(call, clock_.contexts());
  trackers_->ForEach([&](auto& tracker) { tracker.OnCallBegin(call); });
  // A loader's worker trains nothing. Trackers follow it all the same, and
  // rules see its states alone.
  if (is_worker()) return;
  for (ProcessObserver* observer : observers_) {
    observer->OnCallBegin(*this, call);
  }
}

void ProcessFacts::OnCallEnd(const Call& call, CallOutcome outcome,
                             uint8_t output_flags) {
  stage_.OnCallEnd(call, clock_.contexts(), outcome, output_flags);
  trackers_->ForEach([&](auto& tracker) { tracker.OnCallEnd(call); });
  // Observers see the end while clock and spans are still those of the call: it
  // belongs to the step that it ends.
  if (!is_worker()) {
    for (ProcessObserver* observer : observers_) {
      observer->OnCallEnd(*this, call, outcome);
    }
  }
  clock_.OnCallEnd(call);
  trackers_->ForEach([&](auto& tracker) { tracker.AfterCall(call, outcome); });
}

void ProcessFacts::OnState(const StateEvent& event) {
  trackers_->ForEach([&](auto& tracker) { tracker.OnState(event); });
  for (ProcessObserver* observer : observers_) {
    // A loader's worker trains nothing: relations see its states alone, as
    // those of a worker.
    if (is_worker()) {
      observer->OnWorkerState(*this, event);
    } else {
      observer->OnState(*this, event);
    }
  }
}

// Statistics, rows, scalars and contexts are of use as facts alone: no relation
// looks at them itself.
void ProcessFacts::OnStatistics(const StatisticsEvent& event) {
  trackers_->ForEach([&](auto& tracker) { tracker.OnStatistics(event); });
}

void ProcessFacts::OnRows(const RowsEvent& event) {
  trackers_->ForEach([&](auto& tracker) { tracker.OnRows(event); });
}

void ProcessFacts::OnScalar(const ScalarEvent& event) {
  trackers_->ForEach([&](auto& tracker) { tracker.OnScalar(event); });
}

void ProcessFacts::OnMark(const MarkEvent& event) {
  clock_.OnMark(event);
  stage_.OnMark(event, clock_.contexts());
  // Trackers read it, so it knows of the mark before they do.
  recorded_.OnMark(event);
  trackers_->ForEach([&](auto& tracker) { tracker.OnMark(event); });
  if (is_worker()) return;
  for (ProcessObserver* observer : observers_) observer->OnMark(*this, event);
}

void ProcessFacts::OnCollective(const CollectiveEvent& event) {
  if (is_worker()) return;
  for (ProcessObserver* observer : observers_) {
    observer->OnCollective(*this, event);
  }
}

void ProcessFacts::OnContext(const ContextEvent& event) {
  trackers_->ForEach([&](auto& tracker) { tracker.OnContext(event); });
}

void ProcessFacts::OnCheckpointEntry(const CheckpointEntryEvent& event) {
  if (is_worker()) return;
  for (ProcessObserver* observer : observers_) {
    observer->OnCheckpointEntry(*this, event);
  }
}

void ProcessFacts::OnPlace(const PlaceRecord& place) {
  // Comes when the process has joined its group, which may be long after its
  // first records.
  rank_ = place.rank;
  world_ = place.world_size;
}

void ProcessFacts::OnQuiet() {
  // A worker that waits for its trainer is quiet, too, which says nothing.
  if (is_worker()) return;
  for (ProcessObserver* observer : observers_) observer->OnQuiet(*this);
}

void ProcessFacts::OnGap(const std::string& reason) {
  gaps_.OnGap(reason);
  clock_.OnGap();
  stage_.OnGap();
  // Observers get no event of a gap: they compare gaps() at both ends of their
  // windows.
  trackers_->ForEach([](auto& tracker) { tracker.OnGap(); });
}

void ProcessFacts::OnDefinition(RecordType type, uint32_t id) {
  ownership_.OnDefinition(type);
  trackers_->ForEach([&](auto& tracker) { tracker.OnDefinition(type, id); });
  for (ProcessObserver* observer : observers_) {
    observer->OnDefinition(*this, type, id);
  }
}

void ProcessFacts::End(ProcessEnd end) {
  // Batches that waited for digests come before the end of their process.
  reader_.End();
  // Before the observers see the end: their verdicts may ask for it.
  was_lost_ = end == ProcessEnd::kLost;
  for (ProcessObserver* observer : observers_) observer->OnEnd(*this, end);
}

void ProcessFacts::Fields(Archive& archive) {
  // The reader comes first: calls that others save point into its definitions.
  archive(reader_, clock_, stage_);
  trackers_->ForEach([&](auto& tracker) { tracker.Fields(archive); });
  // The order is part of the format of snapshots (archive.h).
  archive(recorded_, attempt_, rank_, world_, was_lost_, gaps_);
  // It is derived from the definitions, and is not saved.
  if (archive.reading()) ownership_.OnRestored();
  for (ProcessObserver* observer : observers_) observer->Fields(archive);
}

const Autocast& ProcessFacts::autocast() const { return trackers_->autocast; }

const WrapperCalls& ProcessFacts::wrapper_calls() const {
  return trackers_->wrapper_calls;
}

const ModuleModes& ProcessFacts::module_modes() const {
  return trackers_->module_modes;
}

const TrainingModes& ProcessFacts::training_modes() const {
  return trackers_->training_modes;
}

const FrozenModes& ProcessFacts::frozen_modes() const {
  return trackers_->frozen_modes;
}

const AccumulatedMeans& ProcessFacts::accumulated_means() const {
  return trackers_->accumulated_means;
}

const Observations& ProcessFacts::observations() const {
  return trackers_->observations;
}

const Sight& ProcessFacts::sight() const { return trackers_->sight.sight(); }

const ClippedGradients& ProcessFacts::clipped_gradients() const {
  return trackers_->clipped_gradients;
}

const BlamedCalls& ProcessFacts::blamed_calls() const {
  return trackers_->blamed_calls;
}

const RandomDraws& ProcessFacts::random_draws() const {
  return trackers_->random_draws;
}

const LoaderPasses& ProcessFacts::loader_passes() const {
  return trackers_->loader_passes;
}

const GradScaling& ProcessFacts::grad_scaling() const {
  return trackers_->grad_scaling;
}

const RowChanges& ProcessFacts::row_changes() const {
  return trackers_->row_changes;
}

const OptimizerBooks& ProcessFacts::optimizer_books() const {
  return trackers_->optimizer_books;
}

const VariableState* ProcessFacts::Variable(uint32_t id) const {
  return trackers_->variables.Find(id);
}

const std::unordered_map<uint32_t, VariableState>& ProcessFacts::variables()
    const {
  return trackers_->variables.all();
}

bool ProcessFacts::IsWrittenByForwards(uint32_t variable) const {
  return trackers_->variables.IsWrittenByForwards(variable);
}

std::string ProcessFacts::gap_reason() const {
  return "records of " + Name() + " are missing (" + gaps_.reason() + ")";
}

std::string ProcessFacts::FunctionName(uint32_t id) const {
  const FunctionInfo* function = definitions().Function(id);
  return function ? function->name : "";
}

}  // namespace traincheck
