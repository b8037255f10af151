#include "invariants/traincheck/conformance/call_index.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"

namespace traincheck {

namespace {

// TrainCheck lets a call without an end last so much longer than the last line
// of its thread, and compares floating-point numbers then.
constexpr double kPastTheEnd = 0.001;

absl::Status Stops(const std::string& id, const std::string& what) {
  return absl::FailedPreconditionError(
      absl::StrCat("the call ", id, " ", what));
}

bool Earlier(const TableRow* a, const TableRow* b) { return a->time < b->time; }

}  // namespace

bool CallSpan::StrictlyHas(int64_t time) const {
  if (time <= from_) return false;
  if (!open_) return time < to_;
  return static_cast<double>(time) < static_cast<double>(to_) + kPastTheEnd;
}

bool CallSpan::Has(int64_t time) const {
  if (time < from_) return false;
  if (!open_) return time <= to_;
  return static_cast<double>(time) <= static_cast<double>(to_) + kPastTheEnd;
}

CallIndex::CallIndex(const TraceTable* table) : table_(*table) {
  for (const TableRow& row : table_.rows()) {
    const auto [last, first] = last_time_.try_emplace(row.in(), row.time);
    if (!first) last->second = std::max(last->second, row.time);
    if (row.call == nullptr) continue;
    calls_[row.call].id = row.call;
  }
  // No call is added any more: they stay where they are.
  for (const TableRow& row : table_.rows()) {
    if (row.call == nullptr) continue;
    TableCall& call = calls_.at(row.call);
    // The lines of one id may name two functions: each of them finds the call,
    // once.
    const bool listed = std::any_of(
        call.rows.begin(), call.rows.end(),
        [&row](const TableRow* r) { return r->function == row.function; });
    if (!listed) by_function_[*row.function].push_back(&call);
    call.rows.push_back(&row);
    by_thread_[row.in()].push_back(&row);
    if (row.kind != TraceLineKind::kCallBegin) continue;
    begins_[{row.in(), row.function}].push_back(&row);
    first_begin_.try_emplace(row.in(), &row);
  }
  // By time and, within one time, as the files have them: the searches below
  // bisect by time.
  for (auto& [thread, rows] : by_thread_) {
    std::stable_sort(rows.begin(), rows.end(), Earlier);
  }
  for (auto& [where, rows] : begins_) {
    std::stable_sort(rows.begin(), rows.end(), Earlier);
  }
}

const std::vector<TableCall*>& CallIndex::Of(absl::string_view function) const {
  static const auto* const kNone = new std::vector<TableCall*>;
  const auto found = by_function_.find(function);
  return found == by_function_.end() ? *kNone : found->second;
}

// An id has two lines at most here (RemoveIncompleteCalls), which may be two
// begins or two ends.
absl::StatusOr<CallEnds> CallIndex::Ends(const TableCall& call) const {
  CallEnds ends;
  for (const TableRow* row : call.rows) {
    const bool begin = row->kind == TraceLineKind::kCallBegin;
    const TableRow*& place = begin ? ends.begin : ends.end;
    if (place != nullptr) {
      return Stops(*call.id, begin ? "begins twice" : "ends twice");
    }
    place = row;
  }
  if (ends.begin == nullptr) return Stops(*call.id, "never begins");
  // Only the outermost call of its thread may be open, as the trace may be cut
  // off within it.
  if (ends.end == nullptr &&
      first_begin_.at(ends.begin->in())->call != call.id) {
    return Stops(*call.id, "has no end and is not the outermost of its thread");
  }
  return ends;
}

absl::StatusOr<CallEnds> CallIndex::Event(const TableCall& call) const {
  absl::StatusOr<CallEnds> ends = Ends(call);
  if (!ends.ok() || ends->complete()) return ends;
  // TrainCheck reads these columns of a call that has not returned, and stops
  // if no line of the trace has them.
  const bool recorded = table_.Has("args") && table_.Has("kwargs") &&
                        (!ends->raised() || table_.Has("exception"));
  if (recorded) return ends;
  return Stops(*call.id, ends->raised()
                             ? "raises, and what with is not recorded"
                             : "has no end, and no arguments are recorded");
}

// TrainCheck looks at all calls within a call before it looks for one of them,
// and stops at the first that is not whole. So this is asked about the whole
// span, whatever function is looked for.
absl::Status CallIndex::LookWithin(const CallEnds& ends) const {
  const CallSpan span(ends, LastTime(ends.begin->in()));
  const Rows& rows = by_thread_.at(ends.begin->in());
  // The lines of the thread between both ends, by call. A call of which one
  // line lies outside overlaps this one without being within it: TrainCheck
  // stops there.
  absl::flat_hash_map<const std::string*, Rows> within;
  for (auto row = std::upper_bound(
           rows.begin(), rows.end(), span.from(),
           [](int64_t time, const TableRow*r) { return time < r->time; });
       row != rows.end() && span.StrictlyHas((*row)->time); ++row) {
    within[(*row)->call].push_back(*row);
  }
  for (auto& [id, lines] : within) {
    if (lines.size() != 2) {
      return Stops(*id, absl::StrCat("has only one of its lines within a call "
                                     "of ",
                                     *ends.begin->function));
    }
    // As the files have them: rows stand in one array.
    std::sort(lines.begin(), lines.end());
    if (lines[0]->kind != TraceLineKind::kCallBegin ||
        lines[1]->kind == TraceLineKind::kCallBegin) {
      return Stops(*id, "does not begin before it ends");
    }
    const absl::StatusOr<CallEnds> event = Event(calls_.at(id));
    if (!event.ok()) return event.status();
  }
  return absl::OkStatus();
}

absl::Status CallIndex::CheckWithin(const TableCall& call,
                                    const CallEnds& ends) {
  // LookWithin reads every line of the thread within the call, and each line of
  // the invariant file asks for the same calls.
  const auto [known, added] = looked_within_.try_emplace(&call);
  if (added) known->second = LookWithin(ends);
  return known->second;
}

std::vector<const TableCall*> CallIndex::Within(
    const CallEnds& ends, absl::string_view function) const {
  std::vector<const TableCall*> calls;
  const std::vector<TableCall*>& of = Of(function);
  if (of.empty()) return calls;
  // Any of its lines has the name as the table has it.
  const std::string* name = nullptr;
  for (const TableRow* row : of.front()->rows) {
    if (*row->function == function) name = row->function;
  }
  // Begins are enough: CheckWithin has shown that what begins within ends
  // within.
  const auto begins = begins_.find({ends.begin->in(), name});
  if (begins == begins_.end()) return calls;
  const CallSpan span(ends, LastTime(ends.begin->in()));
  for (auto row = std::upper_bound(
           begins->second.begin(), begins->second.end(), span.from(),
           [](int64_t time, const TableRow*r) { return time < r->time; });
       row != begins->second.end() && span.StrictlyHas((*row)->time); ++row) {
    calls.push_back(&calls_.at((*row)->call));
  }
  // TrainCheck's order, by id: HasChildCall stops at the first call that fits
  // and at the first that ends TrainCheck.
  std::sort(
      calls.begin(), calls.end(),
      [](const TableCall* a, const TableCall* b) { return *a->id < *b->id; });
  return calls;
}

int64_t CallIndex::LastTime(const TableThread& thread) const {
  return last_time_.at(thread);
}

}  // namespace traincheck
