#include "invariants/facts/optimizer_books.h"

#include <algorithm>
#include <cmath>

#include "invariants/trace/call_contexts.h"

namespace traincheck {

namespace {

void KeepOfGroup(uint32_t group, std::optional<double> value,
                 std::map<uint32_t, double>* by_group) {
  if (value) {
    (*by_group)[group] = *value;
  } else {
    by_group->erase(group);
  }
}

}  // namespace

void OptimizerBooks::OnCallBegin(const Call& call) {
  if (HasCategory(call, CallCategory::kBackward) && call.Is(kOutermost)) {
    Backward();
  }
  if (HasCategory(call, CallCategory::kZeroGrad)) ZeroGrad(call.object);
}

void OptimizerBooks::Backward() {
  ++backwards_;
  // In a step that was not sampled nobody sees gradients that are set to None
  // by hand before this backward.
  if (inputs().recorded.whole()) return;
  ++missed_backwards_;
  for (auto& [id, book] : books_) book.maybe_cleared = true;
}

// zero_grad of an optimizer, or of a model or wrapper whose parameters it
// holds.
void OptimizerBooks::ZeroGrad(uint32_t object) {
  // An optimizer without a book has made no step that left gradients behind.
  for (auto& [id, book] : books_) {
    if (inputs().ownership.Clears(object, id)) book.cleared = true;
  }
}

void OptimizerBooks::AfterCall(const Call& call, CallOutcome outcome) {
  if (!IsOptimizerStep(call)) return;
  Book& book = books_[call.object];
  book.backwards_before = backwards_;
  book.missed_before = missed_backwards_;
  // Records of what came after an end that is missing may be too.
  if (outcome != CallOutcome::kUnknown) {
    book.gaps_before = inputs().gaps.count();
  }
  // Clears count from one step to the next.
  book.cleared = book.maybe_cleared = false;
  CountRates(&book);
  // Once before each step is as it should be; a habit of more is reported
  // (ScheduleIsFast).
  if (book.schedule_moved) book.moved_often.Add(*book.schedule_moved > 1);
}

void OptimizerBooks::CountRates(Book* book) {
  const auto& rates = book->learning_rates;
  const bool some =
      std::any_of(rates.begin(), rates.end(),
                  [](const auto& one) { return one.second != 0; });
  // Rates that were 0 from the start are a choice, or a warm-up that has not
  // begun: only a rate that was there can have ended.
  book->had_rate |= some;
  // Without recorded rates the step neither lengthens the streak nor ends it.
  if (book->had_rate && !rates.empty()) book->without_rate.Add(!some);
}

void OptimizerBooks::OnState(const StateEvent& event) {
  if (event.point != StatePoint::kGradClear) return;
  const bool cleared = event.Has(kGradIsNone) || event.Has(kGradIsZero);
  // One that cannot be read may be zero.
  if (!cleared && !event.Has(kUnreadable)) return;
  // Not null: variables_ takes over an event first (trackers.h).
  const VariableState* variable = variables_.Find(event.variable_id);
  // A gradient that was absent at the last step was not cleared since then.
  const Tri had_grad = variable->has_grad_at_step();
  if (had_grad == Tri::kNo) return;
  ClearByState(event.variable_id, cleared && had_grad == Tri::kYes);
}

void OptimizerBooks::ClearByState(uint32_t variable, bool sure) {
  // All that an optimizer holds has such a record: nothing here may go over
  // what it holds.
  for (const uint32_t id : inputs().ownership.HoldersOf(variable)) {
    const auto found = books_.find(id);
    // An optimizer without a book has made no step that left gradients behind.
    if (found == books_.end() || found->second.cleared) continue;
    (sure ? found->second.cleared : found->second.maybe_cleared) = true;
    // A gradient that is gone is not scaled any more. GradScaling itself sees
    // calls of zero_grad alone.
    if (sure) scaling_.OnCleared(id);
  }
}

void OptimizerBooks::OnScalar(const ScalarEvent& event) {
  // What the agent records where a step begins is about the optimizer that
  // steps.
  if (event.point != StatePoint::kPreStep) return;
  Keep(event, &books_[event.object]);
  if (*event.name == "weight_decay") spares_.erase(event.object);
}

void OptimizerBooks::Keep(const ScalarEvent& event, Book* book) {
  // NaN says that it is not known any more.
  const std::optional<double> value =
      std::isnan(event.value) ? std::nullopt : std::optional(event.value);
  const std::string& name = *event.name;
  if (name == "grads_replaced") book->grads_replaced = value;
  if (name == "counter_bits") book->counter_bits = value;
  if (name == "ties_lost") book->ties_lost = value;
  if (name == "schedule_idle") book->schedule_idle = value;
  if (name == "schedule_moved") book->schedule_moved = value;
  if (name == "lr") KeepOfGroup(event.group, value, &book->learning_rates);
  if (name == "weight_decay") {
    KeepOfGroup(event.group, value, &book->weight_decays);
  }
}

void OptimizerBooks::OnGap() {
  spares_.clear();
  // Rates are recorded when they change: a change may be what is missing.
  for (auto& [id, book] : books_) {
    book.learning_rates.clear();
    book.weight_decays.clear();
    book.schedule_idle.reset();
    book.schedule_moved.reset();
    book.counter_bits.reset();
    book.grads_replaced.reset();
    book.moved_often.OnGap();
    book.without_rate.OnGap();
  }
}

void OptimizerBooks::OnDefinition(RecordType type, uint32_t id) {
  // As Ownership, which follows the same definitions.
  if (type == RecordType::kHoldDef || type == RecordType::kVariableDef) {
    spares_.clear();
  }
}

// Asked for each scale of a normalisation in each step: what an optimizer holds
// is gone over once.
bool OptimizerBooks::SparesVectors(uint32_t optimizer, uint32_t root) const {
  const auto [spared, is_new] = spares_.try_emplace(optimizer);
  if (is_new) spared->second = RootsOfSparedVectors(optimizer);
  return spared->second.count(root) > 0;
}

std::set<uint32_t> OptimizerBooks::RootsOfSparedVectors(
    uint32_t optimizer) const {
  std::set<uint32_t> roots;
  const std::map<uint32_t, double>& decays = WeightDecays(optimizer);
  const bool some =
      std::any_of(decays.begin(), decays.end(),
                  [](const auto& one) { return one.second != 0; });
  const Optimizer* found = inputs().ownership.Find(optimizer);
  if (!some || !found) return roots;
  for (const HeldVariable& held : found->held) {
    const auto decay = decays.find(held.group);
    if (decay == decays.end() || decay->second != 0) continue;
    const VariableInfo* info = inputs().definitions.Variable(held.variable);
    if (info && info->shape.size() == 1 && info->shape[0] > 1) {
      roots.insert(info->root);
    }
  }
  return roots;
}

const OptimizerBooks::Book& OptimizerBooks::Find(uint32_t optimizer) const {
  static const auto* const kEmpty = new Book();
  // One that has not stepped yet counts from the begin of the process, with all
  // records that are missing since then.
  const auto found = books_.find(optimizer);
  return found == books_.end() ? *kEmpty : found->second;
}

std::optional<double> OptimizerBooks::LearningRate(uint32_t optimizer,
                                                   uint32_t group) const {
  const std::map<uint32_t, double>& rates = Find(optimizer).learning_rates;
  const auto rate = rates.find(group);
  if (rate == rates.end()) return std::nullopt;
  return rate->second;
}

std::optional<Tri> OptimizerBooks::WithoutRateFor(uint32_t optimizer,
                                                  uint64_t steps) const {
  const Book& book = Find(optimizer);
  if (!book.had_rate || book.learning_rates.empty()) return std::nullopt;
  return IsAsLong(book.without_rate, steps);
}

std::optional<double> OptimizerBooks::CounterBits(uint32_t optimizer) const {
  return Find(optimizer).counter_bits;
}

std::optional<double> OptimizerBooks::TiesLost(uint32_t optimizer) const {
  return Find(optimizer).ties_lost;
}

std::optional<double> OptimizerBooks::ScheduleIdle(uint32_t optimizer) const {
  return Find(optimizer).schedule_idle;
}

std::optional<Tri> OptimizerBooks::FastScheduleFor(uint32_t optimizer,
                                                   uint64_t steps) const {
  const Book& book = Find(optimizer);
  if (!book.schedule_moved) return std::nullopt;
  return IsAsLong(book.moved_often, steps);
}

Tri OptimizerBooks::IsAsLong(const Streak& streak, uint64_t steps) {
  // Missing records cannot make a streak that was seen shorter.
  if (streak.length >= steps) return Tri::kYes;
  // A streak that missing records cut off may be longer than what is known of
  // it.
  return streak.whole ? Tri::kNo : Tri::kUnknown;
}

bool OptimizerBooks::HasGapSince(uint32_t optimizer) const {
  return inputs().gaps.count() != Find(optimizer).gaps_before;
}

std::optional<uint64_t> OptimizerBooks::BackwardsSince(
    uint32_t optimizer) const {
  if (HasGapSince(optimizer)) return std::nullopt;
  return backwards_ - Find(optimizer).backwards_before;
}

Tri OptimizerBooks::ClearedSince(uint32_t optimizer) const {
  if (HasGapSince(optimizer)) return Tri::kUnknown;
  const Book& book = Find(optimizer);
  // Gradients that are other tensors than at the last step were cleared in
  // between, even if nothing recorded how.
  if (book.cleared || book.grads_replaced == 1) return Tri::kYes;
  return book.maybe_cleared ? Tri::kUnknown : Tri::kNo;
}

bool OptimizerBooks::MissedBackwardSince(uint32_t optimizer) const {
  return HasGapSince(optimizer) ||
         missed_backwards_ != Find(optimizer).missed_before;
}

void OptimizerBooks::Fields(Archive& archive) {
  archive(books_, backwards_, missed_backwards_);
  if (archive.reading()) spares_.clear();
}

void OptimizerBooks::Streak::Fields(Archive& archive) {
  archive(length, whole);
}

void OptimizerBooks::Book::Fields(Archive& archive) {
  archive(backwards_before, cleared, maybe_cleared, missed_before, gaps_before,
          learning_rates, weight_decays, had_rate, without_rate, grads_replaced,
          counter_bits, ties_lost, schedule_idle, schedule_moved, moved_often);
}

}  // namespace traincheck
