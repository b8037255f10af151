#include "ctl/run/violation_printer.h"

#include "ctl/render/incident.h"
#include "ctl/render/violation.h"

namespace traincheck::ctl {

void ViolationPrinter::Print(const v1::Violation& violation) {
  if (!Leads(violation)) return;
  const bool advice = !IsOfAlert(violation);
  if (advice && !advice_) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!printed_.insert(violation.id()).second) return;
  if (!advice) ++alerts_;
  write_(ViolationBlock(violation));
}

size_t ViolationPrinter::alerts() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return alerts_;
}

}  // namespace traincheck::ctl
