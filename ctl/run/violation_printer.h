// Prints each incident of a run once, by the violation that leads it: alerts,
// and on demand advice. What follows from it is left to the verdict, what is
// silenced to `violations list --all`.
//
// Threads: Print may be called from any thread.
#ifndef TRAINCHECK_CTL_RUN_VIOLATION_PRINTER_H_
#define TRAINCHECK_CTL_RUN_VIOLATION_PRINTER_H_

#include <cstddef>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <utility>

#include "proto/traincheck/v1/control.pb.h"

namespace traincheck::ctl {

class ViolationPrinter {
 public:
  using Alarm = std::function<void(const v1::Violation& lead)>;

  // `alarm`: called with each incident that is an alert, once, also if another
  // violation turns out to lead it.
  ViolationPrinter(bool advice, std::function<void(const std::string&)> write,
                   Alarm alarm)
      : advice_(advice), write_(std::move(write)), alarm_(std::move(alarm)) {}

  void Print(const v1::Violation& violation);

  // How many incidents that are alerts there were.
  size_t alerts();

 private:
  const bool advice_;  // is it printed, too?
  const std::function<void(const std::string&)> write_;
  // Was an incident that this violation leads now told under another lead?
  bool IsKnown(const std::string& lead) const;

  const Alarm alarm_;
  std::mutex mutex_;
  // All guarded by mutex_; violations by id.
  std::map<std::string, std::string> incidents_;  // as it was said last
  std::set<std::string> printed_;
  std::set<std::string> alerted_;  // leads
  size_t alerts_ = 0;
};

}  // namespace traincheck::ctl

#endif  // TRAINCHECK_CTL_RUN_VIOLATION_PRINTER_H_
