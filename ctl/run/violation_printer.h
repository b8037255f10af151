// Prints each incident of a run once, by the violation that leads it: alerts,
// and on demand advice. What follows from it is left to the verdict.
//
// Threads: Print may be called from any thread.
#ifndef TRAINCHECK_CTL_RUN_VIOLATION_PRINTER_H_
#define TRAINCHECK_CTL_RUN_VIOLATION_PRINTER_H_

#include <cstddef>
#include <functional>
#include <mutex>
#include <set>
#include <string>
#include <utility>

#include "proto/traincheck/v1/control.pb.h"

namespace traincheck::ctl {

class ViolationPrinter {
 public:
  ViolationPrinter(bool advice, std::function<void(const std::string&)> write)
      : advice_(advice), write_(std::move(write)) {}

  void Print(const v1::Violation& violation);

  // How many incidents that are alerts have been printed.
  size_t alerts();

 private:
  const bool advice_;  // is it printed, too?
  const std::function<void(const std::string&)> write_;
  std::mutex mutex_;
  std::set<std::string> printed_;  // ids; guarded by mutex_
  size_t alerts_ = 0;              // guarded by mutex_
};

}  // namespace traincheck::ctl

#endif  // TRAINCHECK_CTL_RUN_VIOLATION_PRINTER_H_
