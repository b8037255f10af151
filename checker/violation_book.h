// Turns the verdicts of a run into violations: joins the windows of a unit, the
// ranks that show the same, adds to a disagreement of ranks what the same step
// broke within them, and finds the incidents that they belong to.
//
// The book is the same at the end however verdicts of different units
// interleave; verdicts of one unit come in order.
//
// Threads: one object, one thread at a time.
#ifndef TRAINCHECK_CHECKER_VIOLATION_BOOK_H_
#define TRAINCHECK_CHECKER_VIOLATION_BOOK_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "checker/checker.h"
#include "checker/incidents/incidents.h"
#include "invariants/rules/relation.h"

namespace traincheck {

class ViolationBook {
 public:
  // "pid 17 on host a" of a process by its number, if its rank alone does not
  // say which one it is; else "".
  using NameOf = std::function<std::string(uint32_t process)>;

  ViolationBook(const std::string& run, NameOf name_of)
      : run_(run), name_of_(std::move(name_of)) {}
  ViolationBook(const ViolationBook&) = delete;
  ViolationBook& operator=(const ViolationBook&) = delete;

  // REQUIRES: `invariant` outlives the book.
  void Add(const Invariant& invariant, const Verdict& verdict);
  // The process is this rank. What it broke before anybody knew is the rank's.
  void Place(uint32_t process, int32_t rank);
  // The process ended in order after so many steps. What it did after the last
  // of them counts to it: no step of that number was made. REQUIRES: steps > 0.
  void EndProcess(uint32_t process, uint32_t attempt,
                  std::optional<int32_t> rank, uint64_t steps);
  // Every stretch has ended.
  void EndRun();
  // Violations new or changed since the last call, also by another that
  // explains them, by id of their rule.
  std::vector<Violation> TakeChanges();
  // All of them, as if they had changed.
  std::vector<Violation> All() const;

  // Rules by id, for entries that are restored.
  using Rules = std::map<std::string, const Invariant*>;
  void Fields(const Rules& rules, Archive& archive);

 private:
  // Attempt, rule, first window, ranks compared ("": within ranks).
  using Key = std::tuple<uint32_t, std::string, std::string, std::string>;

  // What one unit shows of a violation.
  struct Part {
    std::vector<int32_t> ranks;
    std::optional<uint32_t> process;  // nullopt: of several
    std::string label;                // of the first window
    // nullopt: not known.
    std::optional<int64_t> first_step;
    std::optional<int64_t> last_step;
    std::optional<int64_t> step_before;  // last_step before the newest window
    uint64_t count = 0;
    bool open = true;
    Finding finding;  // of the first window

    void Fields(Archive& archive);
  };
  using PartKey = std::pair<std::vector<int32_t>, uint64_t>;  // ranks, unit

  struct Entry {
    const Invariant* invariant = nullptr;
    uint32_t attempt = 0;
    bool across_ranks = false;
    std::map<PartKey, Part> parts;
    // In the order in which the book has met them; not saved.
    size_t number = 0;

    void Fields(Archive& archive);
  };

  // Where the windows of one unit under one rule are.
  struct UnitPlace {
    Key key;
    PartKey part;

    void Fields(Archive& archive);
  };
  // Attempt, rule, unit.
  using UnitKey = std::tuple<uint32_t, std::string, uint64_t>;

  void Violate(const Invariant& invariant, const Verdict& verdict);
  // The step of the first window is another, or is known only now.
  void MoveStart(const Verdict& verdict, const Key& key, Part* part);
  Part* Start(const Invariant& invariant, const Verdict& verdict,
              const UnitPlace& place);
  void Pass(const Verdict& verdict, const UnitPlace& place);
  void TouchDisagreements(uint32_t attempt, std::optional<int64_t> step);
  // The entry gets the next number.
  void Number(std::pair<const Key, Entry>* entry);
  // The steps of the entry's parts are among those that it is looked up by.
  void Widen(const Entry& entry, const Part& part);
  // Finds the incidents anew; violations that are in another one have changed.
  // REQUIRES: what has changed is in parts_.
  void Regroup();
  // Without its incident.
  Violation Render(const Key& key, const Entry& entry) const;
  void AddCompanions(const Entry& entry, std::optional<int64_t> step,
                     Violation* violation) const;
  // The last step that those made of whom the part is; nullopt: not known, or
  // some may make more.
  std::optional<int64_t> LastMade(const Entry& entry, const Part& part) const;

  const std::string run_;
  const NameOf name_of_;
  std::map<Key, Entry> entries_;
  std::map<UnitKey, UnitPlace, std::less<>> units_;
  // Disagreements of ranks by attempt and first step.
  std::multimap<std::pair<uint32_t, std::optional<int64_t>>, Key>
      disagreements_;
  std::set<Key> changed_;
  // Something that incidents are found by has changed.
  bool regroup_ = true;
  // By the numbers of entries from here on; none of it is saved. Entries stay
  // where they are.
  std::vector<const std::pair<const Key, Entry>*> numbered_;
  // As it was when it was asked for last.
  std::vector<Grouped> grouped_;
  // What incidents are found by, as it was rendered last: a run of thousands of
  // violations is not rendered anew for each new one. Without an id: it has to
  // be rendered.
  std::vector<IncidentPart> parts_;
  // Between these steps are all of the entry's parts that know theirs. A flat
  // table, which is looked through for each disagreement.
  struct Span {
    uint32_t attempt = 0;
    int64_t first = 0;
    int64_t last = -1;  // before the first one: of none
  };
  std::vector<Span> spans_;
  // With violations, and of a rank that is not known yet.
  std::set<uint32_t> unplaced_;
  // The last step that was made, of those that have ended in order.
  std::map<uint32_t, int64_t> last_of_process_;
  std::map<std::pair<uint32_t, int32_t>, int64_t> last_of_rank_;  // by attempt
};

}  // namespace traincheck

#endif  // TRAINCHECK_CHECKER_VIOLATION_BOOK_H_
