// What the agent says of its own sight, so that a rule that had no occasion in
// a process is told from one for which nobody could look.
//
// Inputs: scalars without an object, of which the first word of the name begins
// with "sight:".
//
//   sight:looks V         it looks at the facts of observed_facts.cc up to
//                         version V. What it says of its plan follows; again
//                         whenever the plan has changed.
//   sight:calls F         its plan names calls of F ("*": of everything)
//   sight:state K P       and state of this kind at this point
//   sight:statistics K P  likewise
//   sight:rows K P        likewise
//   sight:generators      and random generators
//   sight:limit L         from here on something escapes it: a row of Limits()
//
// A process that says nothing (of an earlier version) may have missed anything.
//
// Threads: one object, one thread at a time. A Sight is a plain value.
#ifndef TRAINCHECK_INVARIANTS_FACTS_SIGHT_H_
#define TRAINCHECK_INVARIANTS_FACTS_SIGHT_H_

#include <compare>
#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "invariants/facts/fact_tracker.h"
#include "invariants/trace/archive.h"
#include "invariants/trace/events.h"

namespace traincheck {

class Sight {
 public:
  static bool IsAboutSight(const std::string& scalar) {
    return scalar.rfind(kPrefix, 0) == 0;
  }

  void OnScalar(const ScalarEvent& event);
  void Fields(Archive& archive);

  // Up to which version; 0: it said nothing.
  uint32_t looks() const { return looks_; }
  // Did every plan of the process ask for it, by this name or role?
  bool PlansCalls(const std::string& name) const {
    return IsPlanned("calls *") || IsPlanned("calls " + name);
  }
  bool PlansState(const std::string& kind, const std::string& value,
                  const std::string& point) const {
    return IsPlanned(kind + " " + value + " " + point);
  }
  bool PlansGenerators() const { return IsPlanned("generators"); }

  // Why calls or state may have escaped it; "": none has.
  std::string LimitOfRecords() const;
  // Why it may not have looked at a fact of observed_facts.cc; "": it has.
  std::string LimitOf(const std::string& fact) const;

  auto operator<=>(const Sight&) const = default;

 private:
  static constexpr char kPrefix[] = "sight:";

  bool IsPlanned(const std::string& what) const {
    const auto found = planned_.find(what);
    return found != planned_.end() && found->second == periods_;
  }

  uint32_t periods_ = 0;  // plans so far
  uint32_t looks_ = 0;
  std::map<std::string, uint32_t> planned_;  // what -> in the first so many
  std::set<std::string> limits_;
};

// A gap may have swallowed a limit: who asks looks at gaps, too.
class SightTracker final : public FactTracker {
 public:
  using FactTracker::FactTracker;

  void OnScalar(const ScalarEvent& event) override { sight_.OnScalar(event); }
  void Fields(Archive& archive) override;

  const Sight& sight() const { return sight_; }

 private:
  Sight sight_;
};

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_FACTS_SIGHT_H_
