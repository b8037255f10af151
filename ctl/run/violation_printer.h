// Prints each violation of a run once, on stderr.
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
  explicit ViolationPrinter(std::function<void(const std::string&)> write)
      : write_(std::move(write)) {}

  void Print(const v1::Violation& violation);

  // How many violations have been printed.
  size_t printed();

 private:
  const std::function<void(const std::string&)> write_;
  std::mutex mutex_;
  std::set<std::string> printed_;  // ids; guarded by mutex_
};

}  // namespace traincheck::ctl

#endif  // TRAINCHECK_CTL_RUN_VIOLATION_PRINTER_H_
