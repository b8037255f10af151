#include "invariants/rules/capture_needs.h"

#include <set>

namespace traincheck {

bool IsAlwaysRecorded(const std::string& category) {
  // skeleton_test compares this with catalogue.py.
  static const auto* const kCategories =
      new std::set<std::string>{"backward",        "checkpoint",
                                "context",         "destroy_process_group",
                                "device_mesh",     "fetch",
                                "forward",         "init_process_group",
                                "load_state_dict", "loader_iter",
                                "loader_next",     "new_group",
                                "optimizer_init",  "optimizer_step",
                                "state_dict",      "train_mode",
                                "zero_grad"};
  return kCategories->count(category) > 0;
}

void CaptureNeeds::CallsOfCategory(const std::string& category) {
  // A plan names functions, and which of them are of the category only the
  // agent knows.
  all_calls_ |= !IsAlwaysRecorded(category);
}

void CaptureNeeds::Gradients() {
  // Wherever a gradient may be written or cleared. A point that is left out
  // would let a gradient that is left over look like a new one.
  for (const char* point :
       {"backward_end", "pre_clip", "post_clip", "pre_step", "grad_clear"}) {
    State("parameter.grad", point);
  }
}

}  // namespace traincheck
