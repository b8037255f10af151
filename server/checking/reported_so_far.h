// What the checks of one run have reported so far. A check that begins anew
// goes over the same records again and passes through earlier states of what is
// known; until it has judged all that was judged before, it reports only what
// is new.
//
// Threads: one object, one thread at a time.
#ifndef TRAINCHECK_SERVER_CHECKING_REPORTED_SO_FAR_H_
#define TRAINCHECK_SERVER_CHECKING_REPORTED_SO_FAR_H_

#include <cstdint>
#include <map>
#include <set>

#include "server/checking/run_check.h"
#include "server/runs/registry.h"
#include "server/store/stored.pb.h"

namespace traincheck::server {

class ReportedSoFar {
 public:
  ReportedSoFar() = default;
  explicit ReportedSoFar(const stored::Check& check);
  void Store(stored::Check* check) const;

  // All that `check` has judged is reported as well.
  void Add(const RunView& run, const RunCheck& check);
  void Clear() { *this = ReportedSoFar(); }

  bool empty() const { return batches_.empty(); }
  // Has `check` judged all that was reported? Whatever was read must be read
  // again. Where the earlier checks had not waited for a process, because it
  // seemed to have ended or had never come, this one must have its records
  // beyond the step that the others had reached, or its end. Processes that are
  // left out now are read no more.
  bool ReachedBy(const RunView& run, const RunCheck& check) const;

 private:
  bool IsBehind(const RunView::Process& process, const RunCheck& check) const;

  BatchCursors batches_;
  std::map<uint32_t, uint64_t> steps_;  // by attempt
  std::set<uint32_t> ended_;            // processes
};

}  // namespace traincheck::server

#endif  // TRAINCHECK_SERVER_CHECKING_REPORTED_SO_FAR_H_
