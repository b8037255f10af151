#include "checker/zoom/zoom_reader.h"

#include <algorithm>

#include "checker/compare/value_words.h"
#include "invariants/trace/call_values.h"

namespace traincheck {
namespace {

// A gradient that is None is a known content; one that could not be read is
// not.
ZoomedValue::Kind KindOf(const StateEvent& event, bool is_grad) {
  if (is_grad) {
    if (event.Has(kGradIsNone)) return ZoomedValue::Kind::kNone;
    if (!event.Has(kHasGrad)) return ZoomedValue::Kind::kUnreadable;
    return event.Has(kGradIsZero) ? ZoomedValue::Kind::kZero
                                  : ZoomedValue::Kind::kOther;
  }
  if (!event.Has(kHasData)) return ZoomedValue::Kind::kUnreadable;
  return event.Has(kDataIsZero) ? ZoomedValue::Kind::kZero
                                : ZoomedValue::Kind::kOther;
}

// "input=float32 [2, 8] on cpu, p=0.5 -> float32 [2, 8] on cpu"
std::string CallWords(const Call& call, CallOutcome outcome,
                      const ProcessDefinitions& definitions) {
  std::string words;
  const ToldArguments arguments = ArgumentsOf(call, definitions);
  for (const CallArgument& argument : arguments.all) {
    words += (words.empty() ? "" : ", ") + argument.name + "=" +
             ValueWords(argument.value, definitions);
  }
  if (arguments.cut) words += ", ...";
  if (words.empty()) words = "arguments not recorded";
  if (outcome == CallOutcome::kRaised) return words + " -> an exception";
  const std::optional<CallValue> result = ResultOf(call, definitions);
  return result ? words + " -> " + ValueWords(*result, definitions) : words;
}

}  // namespace

std::optional<uint64_t> ZoomReader::Step() const {
  if (!is_at_work() || !whole_) return std::nullopt;
  return clock_.known_step();
}

void ZoomReader::OnCallEnd(const Call& call, CallOutcome outcome,
                           uint8_t /*output_flags*/) {
  // Before the clock sees the end: an optimizer's step belongs to the step that
  // it closes.
  const std::optional<uint64_t> step = Step();
  clock_.OnCallEnd(call);
  if (!step || !call.function ||
      subject_.functions.count(call.function->name) == 0) {
    return;
  }
  const std::string& function = call.function->name;
  auto& calls = found_.calls[function];
  const std::string words = CallWords(call, outcome, reader_.definitions());
  const auto known = calls.find(words);
  // Arguments of numbers may differ in each call of a long zoom.
  if (known == calls.end() &&
      calls.size() >= ZoomedProcess::kMaxDifferentCalls) {
    ++found_.more_calls[function];
    return;
  }
  ZoomedCalls& same = calls[words];
  if (same.count++ == 0) {
    same.first_step = *step;
    same.site = reader_.definitions().Site(call.site);
  }
  same.last_step = *step;
}

void ZoomReader::Keep(const StateEvent& event, bool is_grad, uint64_t step) {
  // The state at a step's end follows the mark that closes the step.
  if (event.point == StatePoint::kStepEnd && step > 0) --step;
  const ZoomedPlace place = {event.variable->FullName(), is_grad, event.point};
  ZoomedValue& value = found_.values[place][step];
  value = ZoomedValue();
  value.kind = KindOf(event, is_grad);
  value.digest = is_grad ? event.grad : event.data;
  (is_grad ? last_grad_ : last_data_) = &value;
}

void ZoomReader::OnState(const StateEvent& event) {
  // Statistics and rows follow the state that they tell more of, and name it by
  // variable and point. Only the last state is remembered: of one that was not
  // kept they are skipped.
  last_ = {event.variable_id, event.point};
  last_data_ = last_grad_ = nullptr;
  const std::optional<uint64_t> step = Step();
  if (!step || !event.variable ||
      subject_.variables.count(event.variable->FullName()) == 0) {
    return;
  }
  const bool has_grad = event.Has(kHasGrad) || event.Has(kGradIsNone);
  // A state without any content could not be read: it stands as an unreadable
  // value, so that people see that it was tried.
  if (event.Has(kHasData) || !has_grad) Keep(event, /*is_grad=*/false, *step);
  if (has_grad) Keep(event, /*is_grad=*/true, *step);
}

ZoomedValue* ZoomReader::Find(uint32_t variable, StatePoint point, uint8_t of) {
  if (last_ != std::pair(variable, point)) return nullptr;
  return of == kHasGrad ? last_grad_ : last_data_;
}

void ZoomReader::OnStatistics(const StatisticsEvent& event) {
  ZoomedValue* value = Find(event.variable_id, event.point, event.of);
  if (value == nullptr) return;
  value->statistics = {event.norm, event.absmax, event.nan_count,
                       event.inf_count};
}

void ZoomReader::OnRows(const RowsEvent& event) {
  ZoomedValue* value = Find(event.variable_id, event.point, event.of);
  // Only from the first row on: where records are missing there are none.
  if (value == nullptr || value->rows.size() != event.first_row) return;
  value->rows.insert(value->rows.end(), event.digests.begin(),
                     event.digests.end());
}

void ZoomReader::OnMark(const MarkEvent& mark) {
  clock_.OnMark(mark);
  if (mark.kind == MarkKind::kPlanApplied) {
    // Whatever is applied behind the zoom ends it: the agent goes back to the
    // plan before, or a newer plan has come.
    if (found_.began) found_.over = true;
    found_.began |= mark.value == plan_version_;
  } else if (mark.kind == MarkKind::kCaptureMode) {
    whole_ = mark.value == static_cast<uint64_t>(CaptureMode::kAll);
  } else if (mark.kind == MarkKind::kStepClosed && is_at_work() && whole_) {
    found_.steps.insert(mark.value);
  }
}

void ZoomReader::OnGap(const std::string& reason) {
  clock_.OnGap();
  // Statistics behind the hole may be those of a state within it.
  last_data_ = last_grad_ = nullptr;
  if (is_at_work() && found_.missing.empty()) found_.missing = reason;
}

}  // namespace traincheck
