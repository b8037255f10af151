// What may have happened unseen in a run, looked at once for all rules that
// ask. Hundreds of ranks mostly saw the same: each way of seeing is asked once.
//
// Threads: plain values.
#ifndef TRAINCHECK_INVARIANTS_RULES_UNSEEN_IN_RUN_H_
#define TRAINCHECK_INVARIANTS_RULES_UNSEEN_IN_RUN_H_

#include <string>
#include <vector>

#include "invariants/rules/capture_needs.h"
#include "invariants/rules/process_brief.h"

namespace traincheck {

class UnseenInRun {
 public:
  // `missing_rank`: why a rank of the attempt recorded nothing at all; "": each
  // has a process. `trainings`: see RunReader::NewestTrainings; what their
  // sights point to must outlive this object.
  UnseenInRun(std::string missing_rank, std::vector<ProcessBrief> trainings);
  UnseenInRun(const UnseenInRun&) = delete;
  UnseenInRun& operator=(const UnseenInRun&) = delete;

  // Why what a rule with these needs is about may have happened unseen; "": it
  // did not happen.
  std::string Why(const CaptureNeeds& needs) const;

  const std::vector<ProcessBrief>& trainings() const { return trainings_; }

 private:
  const std::string missing_rank_;
  const std::vector<ProcessBrief> trainings_;
  // The first of each way of seeing.
  std::vector<const ProcessBrief*> different_;
};

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_RULES_UNSEEN_IN_RUN_H_
