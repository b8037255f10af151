#include "ctl/run/violation_printer.h"

#include <algorithm>

#include "ctl/render/grade.h"
#include "ctl/render/incident.h"
#include "ctl/render/violation.h"

namespace traincheck::ctl {

void ViolationPrinter::Print(const v1::Violation& violation) {
  // The watch prints on its own thread while the training goes on, and the main
  // thread prints at the end. The lock also keeps a block together.
  const std::lock_guard<std::mutex> lock(mutex_);
  // Also if it is not printed: IsKnown asks where an earlier lead belongs.
  incidents_[violation.id()] = violation.incident();
  if (!Leads(violation) || IsSilenced(violation)) return;
  const bool alert = IsOfAlert(violation);
  if (!alert && !advice_) return;
  if (printed_.insert(violation.id()).second) {
    write_(ViolationBlock(violation));
  }
  // Apart from printed_: an incident that was printed as advice may become an
  // alert.
  if (!alert || !alerted_.insert(violation.id()).second) return;
  if (IsKnown(violation.id())) return;
  ++alerts_;
  alarm_(violation);
}

// The server may find another lead for an incident later. People are then shown
// the new block, and the command for alerts is not started a second time.
bool ViolationPrinter::IsKnown(const std::string& lead) const {
  return std::any_of(
      alerted_.begin(), alerted_.end(), [&](const std::string& id) {
        const auto now = incidents_.find(id);
        return id != lead && now != incidents_.end() && now->second == lead;
      });
}

size_t ViolationPrinter::alerts() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return alerts_;
}

}  // namespace traincheck::ctl
