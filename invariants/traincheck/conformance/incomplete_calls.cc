#include "invariants/traincheck/conformance/incomplete_calls.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"

namespace traincheck {

namespace {

// TrainCheck means a millisecond and counts in nanoseconds, so that it is
// nothing.
constexpr double kCloseToEnd = 0.001;

// Rows by time, from which rows disappear.
class Timeline {
 public:
  void Add(uint32_t row) { rows_.push_back(row); }

  void Sort(const std::vector<TableRow>& table) {
    std::stable_sort(rows_.begin(), rows_.end(), [&](uint32_t a, uint32_t b) {
      return table[a].time < table[b].time;
    });
  }

  // The earliest that are left, all of one time.
  std::vector<uint32_t> First(const std::vector<TableRow>& table,
                              const std::vector<bool>& gone) {
    // Both ends only move inwards, past rows that are gone, so that all looks
    // together are linear in the rows.
    while (from_ < rows_.size() && gone[rows_[from_]]) ++from_;
    std::vector<uint32_t> first;
    for (size_t i = from_; i < rows_.size(); ++i) {
      if (gone[rows_[i]]) continue;
      if (!first.empty() && table[rows_[i]].time != table[first[0]].time) break;
      first.push_back(rows_[i]);
    }
    return first;
  }

  // The last that is left; null: none.
  const TableRow* Last(const std::vector<TableRow>& table,
                       const std::vector<bool>& gone) {
    while (!rows_.empty() && gone[rows_.back()]) rows_.pop_back();
    return rows_.empty() ? nullptr : &table[rows_.back()];
  }

  void RemoveFrom(int64_t time, const std::vector<TableRow>& table,
                  std::vector<bool>* gone) {
    while (!rows_.empty() && table[rows_.back()].time >= time) {
      (*gone)[rows_.back()] = true;
      rows_.pop_back();
    }
  }

 private:
  std::vector<uint32_t> rows_;
  size_t from_ = 0;
};

class Remover {
 public:
  explicit Remover(TraceTable* table)
      : table_(*table), rows_(table->rows()), gone_(rows_.size(), false) {}

  // In three passes, as TrainCheck has them: index all lines, refuse ids with
  // too many, then settle the calls with one line in the order of the files.
  // Each settled call may take further lines away, which later ones then no
  // longer see.
  absl::Status Run() {
    for (uint32_t i = 0; i < rows_.size(); ++i) {
      processes_[rows_[i].pid].Add(i);
      threads_[rows_[i].in()].Add(i);
      if (rows_[i].call != nullptr) calls_[rows_[i].call].push_back(i);
    }
    for (auto& [pid, timeline] : processes_) timeline.Sort(rows_);
    for (auto& [thread, timeline] : threads_) timeline.Sort(rows_);
    for (uint32_t i = 0; i < rows_.size(); ++i) {
      if (rows_[i].call == nullptr) continue;
      // Before any row is taken out: the trace is refused whatever becomes of
      // the call.
      const size_t lines = calls_.at(rows_[i].call).size();
      if (lines > 2) {
        return Refuse(rows_[i], absl::StrCat("has ", lines, " lines"));
      }
    }
    for (uint32_t i = 0; i < rows_.size(); ++i) {
      // By the lines that the trace has: a call that loses one of them below is
      // not settled a second time.
      if (rows_[i].call == nullptr || calls_.at(rows_[i].call).size() == 2) {
        continue;
      }
      if (absl::Status status = Settle(i); !status.ok()) return status;
    }
    table_.Remove(gone_);
    return absl::OkStatus();
  }

 private:
  static absl::Status Refuse(const TableRow& row, const std::string& what) {
    return absl::FailedPreconditionError(
        absl::StrCat("the call ", *row.call, " of ", *row.function, " ", what));
  }

  // The first begin of a call among the earliest lines of the process: what
  // TrainCheck takes for its outermost call. Null: there is none.
  // Asked anew for each call that is settled, because rows may have gone since
  // the last time.
  const TableRow* Outermost(int64_t pid) {
    const TableRow* outermost = nullptr;
    for (const uint32_t row : processes_[pid].First(rows_, gone_)) {
      if (rows_[row].kind != TraceLineKind::kCallBegin) continue;
      if (outermost == nullptr) outermost = &rows_[row];
    }
    return outermost;
  }

  const TableRow* NormalEnd(const TableRow& begin) const {
    for (const uint32_t row : calls_.at(begin.call)) {
      if (!gone_[row] && rows_[row].kind == TraceLineKind::kCallEnd) {
        return &rows_[row];
      }
    }
    return nullptr;
  }

  // Of a call with this line only.
  absl::Status Settle(uint32_t number) {
    const TableRow& row = rows_[number];
    if (row.kind != TraceLineKind::kCallBegin) {
      return Refuse(row, "ends and never began");
    }
    // The outermost call itself stays open. If it has no end, or the thread's
    // last line is not at that end, the thread is taken to be cut off at this
    // call. Else the call alone is left out, if it is on another thread and did
    // not begin before the outermost one ended.
    const TableRow* outermost = Outermost(row.pid);
    if (outermost == nullptr) {
      return Refuse(row,
                    absl::StrCat("has no end, and the first line of process ",
                                 row.pid, " is not the begin of a call"));
    }
    if (outermost->call == row.call) return absl::OkStatus();
    const TableRow* end = NormalEnd(*outermost);
    const TableRow* last = threads_[row.in()].Last(rows_, gone_);
    const bool covered =
        end != nullptr && last != nullptr && end->time == last->time;
    if (!covered) {
      threads_[row.in()].RemoveFrom(row.time, rows_, &gone_);
      return absl::OkStatus();
    }
    if (row.thread == outermost->thread) {
      return Refuse(row, absl::StrCat("has no end, within ",
                                      *outermost->function, ", which has one"));
    }
    // Both as floating-point numbers, as TrainCheck compares them.
    if (static_cast<double>(row.time) <=
        static_cast<double>(end->time) - kCloseToEnd) {
      return Refuse(row, absl::StrCat("has no end, and ", *outermost->function,
                                      " ends later"));
    }
    gone_[number] = true;
    return absl::OkStatus();
  }

  TraceTable& table_;
  const std::vector<TableRow>& rows_;
  std::vector<bool> gone_;
  std::map<int64_t, Timeline> processes_;
  std::map<TableThread, Timeline> threads_;
  absl::flat_hash_map<const std::string*, std::vector<uint32_t>> calls_;
};

}  // namespace

absl::Status RemoveIncompleteCalls(TraceTable* table) {
  return Remover(table).Run();
}

}  // namespace traincheck
