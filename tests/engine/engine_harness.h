// Learns from and checks synthetic training runs.
#ifndef TRAINCHECK_TESTS_ENGINE_ENGINE_HARNESS_H_
#define TRAINCHECK_TESTS_ENGINE_ENGINE_HARNESS_H_

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "checker/checker.h"
#include "inference/inference.h"
#include "invariants/testing/synthetic_training.h"

namespace traincheck {

struct Reference {
  std::string run;
  std::string experiment;
  TrainingOptions options;
};

InferenceResult Learn(const std::vector<Reference>& references,
                      const InferenceOptions& options = {});

// A CNN under DDP with Adam and a loader, and an MLP under DDP with SGD and
// none.
std::vector<Reference> TwoReferences();
// What is learned from these two.
const InferenceResult& Learned();
// Parts of the texts of its rules.
inline constexpr char kUpdates[] =
    "changes at least one of the optimizer's parameters";
inline constexpr char kGradients[] = "non-zero gradient";
inline constexpr char kWrapper[] = "it goes through its wrapper";
inline constexpr char kEqualGradients[] = "equal gradients of parameters";
inline constexpr char kEqualAfterStep[] =
    "equal parameters when an optimizer step "
    "ends";
inline constexpr char kCleared[] = "the optimizer's gradients are cleared";

// A healthy training of a third kind.
TrainingOptions Target();

struct Checked {
  std::map<std::string, Violation> violations;  // by id, as they ended
  CheckSummary summary;
};

// Which process's batch comes next; the batches of one process keep their
// order.
using Order = std::vector<uint32_t>;

// Rank after rank where `order` is empty.
Checked Check(const InferenceResult& learned, const std::string& experiment,
              const TrainingOptions& options, const Order& order = {});

// Violations as text, for comparison.
std::string Print(const Checked& checked);
const Violation* FindViolation(const Checked& checked,
                               const std::string& text_part);

}  // namespace traincheck

#endif  // TRAINCHECK_TESTS_ENGINE_ENGINE_HARNESS_H_
