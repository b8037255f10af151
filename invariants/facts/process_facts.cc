#include "invariants/facts/process_facts.h"

#include <algorithm>
#include <cmath>

namespace traincheck {

void ProcessFacts::OnCallBegin(const Call& call) {
  clock_.OnCallBegin(call);
  wrapper_calls_.OnCallBegin(call);
  random_draws_.OnCallBegin(call);
  grad_scaling_.OnCallBegin(call, recorded_);
  stage_.OnCallBegin(call, clock_.contexts());
  if (IsOptimizerStep(call)) BeginStep(call);
  if (HasCategory(call, CallCategory::kBackward) && call.Is(kOutermost)) {
    ++backwards_;
    loader_passes_.OnBackward(call.ring);
    if (!recorded_.whole()) MissBackward();
  }
  if (HasCategory(call, CallCategory::kZeroGrad)) Clear(call);
  if (is_worker()) return;
  for (ProcessObserver* observer : observers_) {
    observer->OnCallBegin(*this, call);
  }
}

void ProcessFacts::OnCallEnd(const Call& call, CallOutcome outcome,
                             uint8_t output_flags) {
  grad_scaling_.OnCallEnd(call, definitions());
  stage_.OnCallEnd(call, clock_.contexts(), outcome, output_flags);
  if (!is_worker()) {
    for (ProcessObserver* observer : observers_) {
      observer->OnCallEnd(*this, call, outcome);
    }
  }
  clock_.OnCallEnd(call);
  wrapper_calls_.OnCallEnd(call);
  if (IsOptimizerStep(call)) EndStep(call, outcome);
}

void ProcessFacts::OnState(const StateEvent& event) {
  VariableState& variable = variables_[event.variable_id];
  const bool was_written = variable.forward_writes();
  variable.Apply(event);
  if (event.variable->kind == VariableKind::kBuffer && !was_written &&
      variable.forward_writes()) {
    written_by_forwards_.insert(event.variable->ClassRole());
  }
  random_draws_.OnState(event);
  loader_passes_.OnState(event);
  if (event.point == StatePoint::kGradClear &&
      variable.has_grad_at_step() != Tri::kNo &&
      (event.Has(kGradIsNone) || event.Has(kGradIsZero))) {
    ClearByState(event.variable_id, variable.has_grad_at_step() == Tri::kYes);
  }
  for (ProcessObserver* observer : observers_) {
    if (is_worker()) {
      observer->OnWorkerState(*this, event);
    } else {
      observer->OnState(*this, event);
    }
  }
}

void ProcessFacts::OnStatistics(const StatisticsEvent& event) {
  const auto variable = variables_.find(event.variable_id);
  if (variable != variables_.end()) variable->second.Apply(event);
}

void ProcessFacts::OnRows(const RowsEvent& event) {
  rows_[event.variable_id].OnRows(event);
}

void ProcessFacts::OnScalar(const ScalarEvent& event) {
  grad_scaling_.OnScalar(event);
  if (event.point != StatePoint::kPreStep || *event.name != "lr") return;
  std::map<uint32_t, double>& rates = optimizers_[event.object].learning_rates;
  if (std::isnan(event.value)) {
    rates.erase(event.group);
  } else {
    rates[event.group] = event.value;
  }
}

void ProcessFacts::OnMark(const MarkEvent& event) {
  clock_.OnMark(event);
  stage_.OnMark(event, clock_.contexts());
  recorded_.OnMark(event);
  loader_passes_.OnMark(event, recorded_.whole());
  if (event.kind == MarkKind::kCaptureMode && !recorded_.whole()) {
    for (auto& [id, variable] : variables_) variable.Forget();
  }
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
  autocast_.OnContext(event, definitions());
}

void ProcessFacts::OnCheckpointEntry(const CheckpointEntryEvent& event) {
  if (is_worker()) return;
  for (ProcessObserver* observer : observers_) {
    observer->OnCheckpointEntry(*this, event);
  }
}

void ProcessFacts::OnPlace(const PlaceRecord& place) {
  rank_ = place.rank;
  world_ = place.world_size;
}

void ProcessFacts::OnGap(const std::string& reason) {
  ++gaps_;
  gap_reason_ = reason;
  clock_.OnGap();
  stage_.OnGap();
  autocast_.OnGap();
  wrapper_calls_.OnGap();
  random_draws_.OnGap();
  loader_passes_.OnGap();
  grad_scaling_.OnGap();
  rows_.clear();
  for (auto& [id, variable] : variables_) variable.Forget();
  // Rates are written when they change: a change may be what is missing.
  for (auto& [id, facts] : optimizers_) facts.learning_rates.clear();
}

void ProcessFacts::OnDefinition(RecordType type, uint32_t id) {
  ownership_.OnDefinition(type);
  wrapper_calls_.OnDefinition(type, id, definitions());
  grad_scaling_.OnDefinition(type, id, definitions());
  for (ProcessObserver* observer : observers_) {
    observer->OnDefinition(*this, type, id);
  }
}

void ProcessFacts::End(ProcessEnd end) {
  for (ProcessObserver* observer : observers_) observer->OnEnd(*this, end);
}

void ProcessFacts::Fields(Archive& archive) {
  archive(reader_, clock_, stage_, autocast_, wrapper_calls_, random_draws_,
          loader_passes_, grad_scaling_, rows_, written_by_forwards_,
          variables_, optimizers_, backwards_, missed_backwards_, recorded_,
          attempt_, rank_, world_, gaps_, gap_reason_);
  if (archive.reading()) ownership_.OnRestored();
  for (ProcessObserver* observer : observers_) observer->Fields(archive);
}

void ProcessFacts::BeginStep(const Call& step) {
  const Optimizer* optimizer = ownership_.Find(step.object);
  if (!optimizer) return;
  for (const HeldVariable& held : optimizer->held) {
    variables_[held.variable].BeginStep();
    const auto rows = rows_.find(held.variable);
    if (rows != rows_.end()) rows->second.BeginStep();
  }
}

void ProcessFacts::EndStep(const Call& step, CallOutcome outcome) {
  OptimizerBooks& facts = optimizers_[step.object];
  facts.backwards_before = backwards_;
  facts.missed_before = missed_backwards_;
  // Records of what came after an end that is missing may be too.
  if (outcome != CallOutcome::kUnknown) facts.gaps_before = gaps_;
  facts.cleared = facts.maybe_cleared = false;
  // A variable that nobody holds got its gradient for nobody: every step ends
  // its wait.
  for (auto& [id, variable] : variables_) {
    if (!ownership_.IsHeld(id)) variable.EndStep();
  }
  const Optimizer* optimizer = ownership_.Find(step.object);
  if (!optimizer) return;
  for (const HeldVariable& held : optimizer->held) {
    variables_[held.variable].EndStep();
  }
}

void ProcessFacts::Clear(const Call& zero_grad) {
  for (const auto& [key, held] : definitions().holds()) {
    const Optimizer* optimizer = ownership_.Find(key.first);
    if (key.first == zero_grad.object ||
        (optimizer && optimizer->modules.count(zero_grad.object))) {
      grad_scaling_.OnCleared(key.first);
    }
  }
  for (auto& [id, facts] : optimizers_) {
    const Optimizer* optimizer = ownership_.Find(id);
    if (id == zero_grad.object ||
        (optimizer && optimizer->modules.count(zero_grad.object))) {
      facts.cleared = true;
    }
  }
}

void ProcessFacts::ClearByState(uint32_t variable, bool sure) {
  for (auto& [id, facts] : optimizers_) {
    const Optimizer* optimizer = ownership_.Find(id);
    if (facts.cleared || !optimizer) continue;
    const bool holds = std::any_of(
        optimizer->held.begin(), optimizer->held.end(),
        [&](const HeldVariable& held) { return held.variable == variable; });
    (sure ? facts.cleared : facts.maybe_cleared) |= holds;
    if (sure && holds) grad_scaling_.OnCleared(id);
  }
}

void ProcessFacts::MissBackward() {
  ++missed_backwards_;
  for (auto& [id, facts] : optimizers_) facts.maybe_cleared = true;
}

const VariableState* ProcessFacts::Variable(uint32_t id) const {
  const auto found = variables_.find(id);
  return found == variables_.end() ? nullptr : &found->second;
}

const RowChanges* ProcessFacts::Rows(uint32_t variable) const {
  const auto found = rows_.find(variable);
  return found == rows_.end() ? nullptr : &found->second;
}

bool ProcessFacts::IsWrittenByForwards(uint32_t variable) const {
  const VariableInfo* info = definitions().Variable(variable);
  return info && info->kind == VariableKind::kBuffer &&
         written_by_forwards_.count(info->ClassRole()) != 0;
}

std::optional<double> ProcessFacts::LearningRate(uint32_t optimizer,
                                                 uint32_t group) const {
  const auto found = optimizers_.find(optimizer);
  if (found == optimizers_.end()) return std::nullopt;
  const auto lr = found->second.learning_rates.find(group);
  if (lr == found->second.learning_rates.end()) return std::nullopt;
  return lr->second;
}

bool ProcessFacts::HasGapSince(uint32_t optimizer) const {
  const auto found = optimizers_.find(optimizer);
  return gaps_ != (found == optimizers_.end() ? 0 : found->second.gaps_before);
}

std::optional<uint64_t> ProcessFacts::BackwardsSince(uint32_t optimizer) const {
  if (HasGapSince(optimizer)) return std::nullopt;
  const auto found = optimizers_.find(optimizer);
  return backwards_ -
         (found == optimizers_.end() ? 0 : found->second.backwards_before);
}

Tri ProcessFacts::ClearedSince(uint32_t optimizer) const {
  if (HasGapSince(optimizer)) return Tri::kUnknown;
  const auto found = optimizers_.find(optimizer);
  if (found == optimizers_.end()) return Tri::kNo;
  if (found->second.cleared) return Tri::kYes;
  return found->second.maybe_cleared ? Tri::kUnknown : Tri::kNo;
}

bool ProcessFacts::MissedBackwardSince(uint32_t optimizer) const {
  if (HasGapSince(optimizer)) return true;
  const auto found = optimizers_.find(optimizer);
  return missed_backwards_ !=
         (found == optimizers_.end() ? 0 : found->second.missed_before);
}

std::string ProcessFacts::gap_reason() const {
  return "records of " + Name() + " are missing (" + gap_reason_ + ")";
}

std::string ProcessFacts::Name() const {
  return rank_ ? "rank " + std::to_string(*rank_)
               : "process " + std::to_string(number_);
}

std::string ProcessFacts::FunctionName(uint32_t id) const {
  const FunctionInfo* function = definitions().Function(id);
  return function ? function->name : "";
}

}  // namespace traincheck
