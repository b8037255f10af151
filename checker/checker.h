// Checks one run against one set, incrementally: batches go in process by
// process in the order in which the store holds them, violations come out.
// A live check, a check after a restart and a check of a stored run are this
// same code; the verdicts do not depend on how the processes' batches
// interleave.
//
// Threads: one object, one thread at a time.
#ifndef TRAINCHECK_CHECKER_CHECKER_H_
#define TRAINCHECK_CHECKER_CHECKER_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "checker/group_ranks.h"
#include "checker/incidents/ladder.h"
#include "invariants/rules/invariant.h"
#include "invariants/rules/relation.h"
#include "invariants/rules/rule_notes.h"
#include "invariants/trace/stored_batch.h"

namespace traincheck {

// The incident of a violation (incidents/incidents.h), by ids of violations.
struct Grouped {
  std::string incident;  // the violation that leads it; its own: this one
  // The one that it follows from; the lead's is the lead. "": nothing shows
  // that it follows from any.
  std::string cause;
  bool alerts = false;  // some violation of the incident is an alert

  bool operator==(const Grouped&) const = default;
};

// One invariant violated by one unit of a run (an optimizer of a rank, a
// replica group), however often: everything that people are shown. The id is a
// hash of run, attempt, invariant, first window and, for rules across ranks,
// the ranks compared, so that finding it again changes nothing. A rule within a
// rank that several ranks violate from the same step on is one violation, whose
// ranks grow.
struct Violation {
  std::string id;
  std::string run;
  uint32_t attempt = 0;
  std::string invariant_id;
  std::string relation;
  std::string text;
  std::optional<int64_t> first_step;
  std::optional<int64_t> last_step;
  uint64_t count = 0;  // windows violated
  std::vector<int32_t> ranks;
  std::vector<std::string> apis;
  std::vector<std::string> variables;
  std::vector<std::string> subjects;  // of its findings; nobody is shown them
  std::vector<std::string> sites;     // "file:line", most telling first
  // Through which the first of these was reached first, innermost first:
  // "file:line in function".
  std::vector<std::string> callers;
  bool open = true;  // false: the run ended or the rule holds again
  std::string expected;
  std::string seen;
  std::vector<std::string> evidence;
  RuleNotes notes;
  // "Since step 5 the forward pass bypasses DistributedDataParallel"
  std::string headline;
  // Why it is believed: "built-in rule", "learned rule; reference runs kept it
  // in 640 windows".
  std::string basis;
  Place place;
  bool learned = false;  // from reference runs, or read from a file
  Grouped grouped;
};

struct CheckSummary {
  uint32_t total = 0;  // invariants of the set that apply to this run
  // Violated at least once, or passed in the run's newest attempt.
  uint32_t decided = 0;
  uint32_t violated = 0;
  uint32_t not_applied = 0;  // scope of another experiment
  // What they are about did not happen, as far as everything was recorded.
  uint32_t no_occasion = 0;
  // Processes that train, of the newest attempt, in which nothing was decided
  // ("rank 3").
  std::vector<std::string> unchecked_processes;
  // Reason -> invariants that reached no verdict at all.
  std::map<std::string, uint32_t> unknown;
  // Reason -> invariants that did, but not in every window.
  std::map<std::string, uint32_t> partly_unknown;
};

// Windows of a rule in one attempt.
struct JudgedWindows {
  uint64_t decided = 0;
  uint64_t unknown = 0;
};

// What became of an invariant that applies to the run.
struct InvariantVerdict {
  const Invariant* invariant = nullptr;  // of the checker
  // kPass: in every window that was decided; kUnknown: in none of the newest
  // attempt.
  Outcome outcome = Outcome::kUnknown;
  // Why it, or some window of it, is unknown; "": it was decided everywhere.
  std::string reason;
  JudgedWindows windows;
  // kUnknown: what it is about did not happen, as far as everything was
  // recorded.
  bool no_occasion = false;
};

// What becomes of processes that have ended.
enum class EndedProcesses {
  kLetGo,  // some hundred bytes are kept of each
  // Everything is kept. For tests: letting go changes nothing that is found.
  kKept,
};

class Checker {
 public:
  Checker(const std::string& run, const std::string& experiment,
          const InvariantSet& set,
          EndedProcesses ended = EndedProcesses::kLetGo);
  ~Checker();
  Checker(const Checker&) = delete;
  Checker& operator=(const Checker&) = delete;

  // The next batch of process number `process` (its number in the run).
  // Positions that are missing between two batches of a ring make the windows
  // concerned unknown.
  void Consume(uint32_t process, const StoredBatch& batch);

  // Once, before anything else is said of the process: of which attempt of the
  // run it is. Processes of different attempts are never compared. Without it
  // the attempt is the one that its launcher named.
  void SetAttempt(uint32_t process, uint32_t attempt);

  // No more batches of this process will come: it is let go, and what is said
  // of it all the same is not looked at.
  void EndProcess(uint32_t process, ProcessEnd end);

  // No more processes will come: judges or gives up every open window.
  void EndRun();

  // Nothing will come of this rank, of which no process came, for this reason
  // ("never announced itself"). Windows that wait for it are unknown.
  void GiveUpRank(uint32_t attempt, int32_t rank, const std::string& reason);

  // Number of the open step of a process, of one that has ended the last; 0
  // before its first batch.
  uint64_t StepOf(uint32_t process) const;
  // The ranks with which a process shares a replica group, its own among them:
  // one list for all processes of the same ranks.
  SharedRanks GroupRanksOf(uint32_t process);

  // Violations that are new or changed since the last call.
  std::vector<Violation> TakeChanges();
  // All that were found, also those that TakeChanges has given.
  std::vector<Violation> Violations() const;

  CheckSummary Summary() const;
  // By id of the invariant.
  std::vector<InvariantVerdict> Verdicts() const;

  // The whole state. A checker of the same run, experiment and set restored
  // from it goes on to the same verdicts, violations and summary.
  std::string Save() const;
  // Takes over a state. An error says why the bytes do not fit (of another
  // version or set, damaged): then this object is of no more use. REQUIRES:
  // nothing was consumed yet.
  [[nodiscard]] absl::Status RestoreUntrusted(std::string_view bytes);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace traincheck

#endif  // TRAINCHECK_CHECKER_CHECKER_H_
