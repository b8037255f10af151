// The block that `run` prints when all is over.
#ifndef TRAINCHECK_CTL_RUN_VERDICT_H_
#define TRAINCHECK_CTL_RUN_VERDICT_H_

#include <string>
#include <vector>

#include "ctl/run/drain.h"
#include "proto/traincheck/v1/control.pb.h"

namespace traincheck::ctl {

struct VerdictInput {
  std::string run;
  // What it was checked against (ParseSelection). Empty: the run was recorded
  // only.
  std::string check_set;
  DrainResult drain;
  std::vector<v1::Violation> violations;
  // WhyLeftAside.
  std::string left_aside;
  // LeftOutTexts.
  std::vector<std::string> left_out;
  // "traincheckctl" with what it needs to reach the same server.
  std::string ctl = "traincheckctl";
};

// Lines that begin with "traincheck: ", the first with "NOTHING CHECKED" where
// a set was to be checked against and none of its invariants was decided.
std::string VerdictText(const VerdictInput& input);

}  // namespace traincheck::ctl

#endif  // TRAINCHECK_CTL_RUN_VERDICT_H_
