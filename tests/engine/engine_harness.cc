#include "tests/engine/engine_harness.h"

#include <sstream>

namespace traincheck {

namespace {

template <typename List>
std::string Join(const List& list) {
  std::ostringstream out;
  for (const auto& item : list) out << " [" << item << "]";
  return out.str();
}

void Keep(std::vector<Violation> changes, Checked* checked) {
  for (Violation& violation : changes) {
    checked->violations[violation.id] = std::move(violation);
  }
}

}  // namespace

InferenceResult Learn(const std::vector<Reference>& references,
                      const InferenceOptions& options) {
  Inference inference(options);
  for (const Reference& reference : references) {
    inference.BeginRun({reference.run, reference.experiment, ""});
    for (int32_t rank = 0; rank < reference.options.ranks; ++rank) {
      const auto process = static_cast<uint32_t>(rank);
      for (const StoredBatch& batch : TrainRank(reference.options, rank)) {
        inference.Consume(process, batch);
      }
      inference.EndProcess(process, ProcessEnd::kClean);
    }
    inference.EndRun();
  }
  return inference.Finish(nullptr);
}

std::vector<Reference> TwoReferences() {
  TrainingOptions cnn;
  cnn.model = "Cnn";
  cnn.steps = 12;
  TrainingOptions mlp;
  mlp.model = "Mlp";
  mlp.layer = "torch.nn.modules.linear.Linear";
  mlp.optimizer = "torch.optim.sgd.SGD";
  mlp.loader = false;
  mlp.steps = 12;
  mlp.seed = 2;
  return {{"run-1", "cnn", cnn}, {"run-2", "mlp", mlp}};
}

const InferenceResult& Learned() {
  static const auto* const kLearned =
      new InferenceResult(Learn(TwoReferences()));
  return *kLearned;
}

TrainingOptions Target() {
  TrainingOptions options;
  options.model = "Transformer";
  options.layer = "torch.nn.modules.activation.MultiheadAttention";
  options.optimizer = "torch.optim.adamw.AdamW";
  options.seed = 9;
  return options;
}

Checked Check(const InferenceResult& learned, const std::string& experiment,
              const TrainingOptions& options, const Order& order) {
  InvariantSet set;
  set.name = "set";
  set.invariants = learned.invariants;
  Checker checker("run", experiment, set);
  Checked checked;
  std::vector<std::vector<StoredBatch>> batches;
  for (int32_t rank = 0; rank < options.ranks; ++rank) {
    batches.push_back(TrainRank(options, rank));
  }
  std::vector<size_t> next(batches.size());
  const auto feed = [&](uint32_t process) {
    if (next[process] == batches[process].size()) return;
    checker.Consume(process, batches[process][next[process]++]);
    if (next[process] == batches[process].size()) {
      checker.EndProcess(process, ProcessEnd::kClean);
    }
    Keep(checker.TakeChanges(), &checked);
  };
  for (uint32_t process : order) feed(process);
  for (uint32_t process = 0; process < batches.size(); ++process) {
    while (next[process] < batches[process].size()) feed(process);
  }
  checker.EndRun();
  Keep(checker.TakeChanges(), &checked);
  checked.summary = checker.Summary();
  return checked;
}

std::string Print(const Checked& checked) {
  std::ostringstream out;
  for (const auto& [id, violation] : checked.violations) {
    out << id << " " << violation.relation << " " << violation.text
        << "\n  steps " << violation.first_step.value_or(-1) << "-"
        << violation.last_step.value_or(-1) << " count " << violation.count
        << " ranks" << Join(violation.ranks) << "\n  apis"
        << Join(violation.apis) << "\n  variables" << Join(violation.variables)
        << "\n  sites" << Join(violation.sites) << "\n  expected "
        << violation.expected << "\n  seen " << violation.seen << "\n  evidence"
        << Join(violation.evidence) << (violation.open ? " open" : "") << "\n";
  }
  const CheckSummary& summary = checked.summary;
  out << "total " << summary.total << " decided " << summary.decided
      << " violated " << summary.violated << " not applied "
      << summary.not_applied << "\n";
  for (const auto& [reason, count] : summary.unknown) {
    out << "unknown " << count << ": " << reason << "\n";
  }
  return out.str();
}

const Violation* FindViolation(const Checked& checked,
                               const std::string& text_part) {
  for (const auto& [id, violation] : checked.violations) {
    if (violation.text.find(text_part) != std::string::npos) {
      return &violation;
    }
  }
  return nullptr;
}

}  // namespace traincheck
