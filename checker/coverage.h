// Which rules reached a verdict, and why others, or some of their windows,
// did not. What a rule said of an attempt says nothing of the next one: it has
// passed if it was decided in the run's newest attempt.
//
// Threads: one object, one thread at a time.
#ifndef TRAINCHECK_CHECKER_COVERAGE_H_
#define TRAINCHECK_CHECKER_COVERAGE_H_

#include <algorithm>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "checker/checker.h"
#include "checker/unknown_reason.h"
#include "invariants/rules/relation.h"

namespace traincheck {

class Coverage {
 public:
  // Why what a rule is about, of which no verdict has come, may have happened
  // unseen; "": it did not happen.
  using WhyUnseen = std::function<std::string(size_t rule)>;

  // Returns the number under which the rule is counted.
  size_t AddRule() {
    rules_.emplace_back();
    return rules_.size() - 1;
  }

  void Add(size_t rule, const Verdict& verdict) {
    State& state = rules_[rule];
    if (!verdict.again) state.windows.Add(verdict);
    if (verdict.outcome == Outcome::kUnknown) {
      if (state.unknown.Add(verdict)) unplaced_.insert(*verdict.process);
      return;
    }
    state.decided = true;
    if (verdict.process) {
      judged_.insert(*verdict.process);
    } else {
      attempts_compared_.insert(verdict.attempt);
    }
    state.decided_attempt = std::max(state.decided_attempt, verdict.attempt);
    state.violated |= verdict.outcome == Outcome::kViolated;
  }

  // The process is this rank: reasons that named the process name the rank.
  void Place(uint32_t process, int32_t rank) {
    if (unplaced_.erase(process) == 0) return;
    for (State& state : rules_) state.unknown.Place(process, rank);
  }
  // Its rank will not be known any more.
  void LeaveUnplaced(uint32_t process) {
    if (unplaced_.erase(process) == 0) return;
    for (State& state : rules_) state.unknown.LeaveUnplaced(process);
  }

  // `newest` as below. A violation stands, whatever the attempts behind it.
  Outcome OutcomeOf(size_t rule, uint32_t newest) const {
    const State& state = rules_[rule];
    if (state.violated) return Outcome::kViolated;
    return IsDecidedIn(newest, state) ? Outcome::kPass : Outcome::kUnknown;
  }
  // Why it, or some window of it, is unknown; "": it was decided everywhere, or
  // it is silent. `newest` as below.
  std::string ReasonOf(size_t rule, uint32_t newest) const {
    const State& state = rules_[rule];
    if (IsSilent(rule)) return "";
    if (IsDecidedIn(newest, state) && state.unknown.empty()) return "";
    return Words(state, newest);
  }

  // Has no window of it opened in any attempt?
  bool IsSilent(size_t rule) const {
    return !rules_[rule].decided && rules_[rule].unknown.empty();
  }

  // Was any rule decided in the process? What compares ranks counts for all of
  // the attempt.
  bool IsJudged(uint32_t process, uint32_t attempt) const {
    return judged_.count(process) > 0 || attempts_compared_.count(attempt) > 0;
  }

  // Of the newest attempt that had any.
  JudgedWindows WindowsOf(size_t rule) const {
    return rules_[rule].windows.counts;
  }

  // Fills in all but not_applied. `newest` is the newest attempt of the run:
  // windows of those before it ended with them.
  void Summarize(uint32_t newest, const WhyUnseen& why_unseen,
                 CheckSummary* summary) const {
    for (size_t rule = 0; rule < rules_.size(); ++rule) {
      const State& state = rules_[rule];
      const bool decided = OutcomeOf(rule, newest) != Outcome::kUnknown;
      ++summary->total;
      summary->decided += decided;
      summary->violated += state.violated;
      const bool silent = IsSilent(rule);
      const std::string reason =
          silent ? why_unseen(rule) : ReasonOf(rule, newest);
      summary->no_occasion += silent && reason.empty();
      if (reason.empty()) continue;
      ++(decided ? summary->partly_unknown : summary->unknown)[reason];
    }
  }

  // The rules themselves are not part of it.
  void Fields(Archive& archive) {
    const size_t rules = rules_.size();
    archive(rules_, judged_, attempts_compared_, unplaced_);
    if (rules_.size() != rules) archive.Fail("not as many rules");
    rules_.resize(rules);
  }

 private:
  struct Windows {
    JudgedWindows counts;
    uint32_t attempt = 0;

    void Add(const Verdict& verdict) {
      if (verdict.attempt < attempt) return;
      if (verdict.attempt > attempt) counts = {};
      attempt = verdict.attempt;
      const bool unknown = verdict.outcome == Outcome::kUnknown;
      ++(unknown ? counts.unknown : counts.decided);
    }
    void Fields(Archive& archive) {
      archive(counts.decided, counts.unknown, attempt);
    }
  };

  struct State {
    Windows windows;
    bool decided = false;
    bool violated = false;
    uint32_t decided_attempt = 0;  // the newest
    UnknownReason unknown;

    void Fields(Archive& archive) {
      archive(windows, decided, violated, decided_attempt, unknown);
    }
  };

  static bool IsDecidedIn(uint32_t newest, const State& state) {
    return state.decided && state.decided_attempt >= newest;
  }

  static std::string Words(const State& state, uint32_t newest) {
    if (state.decided && !IsDecidedIn(newest, state)) {
      const bool is_of_newest =
          !state.unknown.empty() && state.unknown.attempt() >= newest;
      return "attempt " + std::to_string(newest) + " was not judged: " +
             (is_of_newest ? state.unknown.Text()
                           : "what the rule is about did not occur");
    }
    const uint32_t attempt = state.unknown.attempt();
    if (attempt >= newest) return state.unknown.Text();
    return "attempt " + std::to_string(attempt) +
           " ended: " + state.unknown.Text();
  }

  std::vector<State> rules_;
  absl::flat_hash_set<uint32_t> judged_;  // processes
  std::set<uint32_t> attempts_compared_;
  // Processes that reasons name because their rank is not known yet.
  std::set<uint32_t> unplaced_;
};

}  // namespace traincheck

#endif  // TRAINCHECK_CHECKER_COVERAGE_H_
