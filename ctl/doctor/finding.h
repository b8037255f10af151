// What one check of `doctor` found.
#ifndef TRAINCHECK_CTL_DOCTOR_FINDING_H_
#define TRAINCHECK_CTL_DOCTOR_FINDING_H_

#include <string>
#include <vector>

namespace traincheck::ctl {

enum class Health {
  kOk,
  kWarn,  // works, with a limit that the text names
  kFail,  // trainings would not be recorded
};

struct Finding {
  std::string check;
  Health health = Health::kOk;
  std::string text;
  std::string advice;  // what to do; "" if there is nothing to do
};

// An aligned line a finding, its advice below.
std::string FindingsText(const std::vector<Finding>& findings);
// [{check, state ("ok"|"warn"|"fail"), text, advice}]
std::string FindingsJson(const std::vector<Finding>& findings);

}  // namespace traincheck::ctl

#endif  // TRAINCHECK_CTL_DOCTOR_FINDING_H_
