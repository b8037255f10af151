#include "ctl/run/violation_printer.h"

#include "ctl/render/violation.h"

namespace traincheck::ctl {

void ViolationPrinter::Print(const v1::Violation& violation) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (printed_.insert(violation.id()).second) write_(ViolationBlock(violation));
}

size_t ViolationPrinter::printed() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return printed_.size();
}

}  // namespace traincheck::ctl
