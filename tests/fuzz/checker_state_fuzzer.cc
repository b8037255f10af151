// A saved state of a check with any bytes in its envelope: it is refused, or
// it gives a checker that goes on, and whose own state is taken again.
//
// Input: the state without its envelope.
#include <memory>
#include <string>
#include <vector>

#include "tests/engine/engine_harness.h"
#include "tests/fuzz/checker_state.h"
#include "tests/fuzz/fuzz_input.h"

namespace traincheck {
namespace {

constexpr uint32_t kProcesses = 2;

// What a rank records after the restart.
std::vector<std::vector<StoredBatch>> Rest() {
  TrainingOptions options;
  options.steps = 1;
  std::vector<std::vector<StoredBatch>> rest;
  for (uint32_t rank = 0; rank < kProcesses; ++rank) {
    rest.push_back(TrainRank(options, static_cast<int32_t>(rank)));
  }
  return rest;
}

void GoOn(Checker* checker) {
  static const auto* const kRest =
      new std::vector<std::vector<StoredBatch>>(Rest());
  for (uint32_t process = 0; process < kProcesses; ++process) {
    for (const StoredBatch& batch : (*kRest)[process]) {
      checker->Consume(process, batch);
    }
  }
  checker->EndProcess(0, ProcessEnd::kDied);
  checker->GiveUpRank(0, 1, "it never came");
  checker->EndRun();
  checker->TakeChanges();
  checker->Summary();
}

void Restore(const std::string& state) {
  const std::unique_ptr<Checker> checker = NewSmallChecker();
  const absl::Status status = checker->RestoreUntrusted(Sealed(state));
  if (!status.ok()) return Require(!status.message().empty());
  // What a restart saves, the next one takes, and it is the same.
  const std::string saved = checker->Save();
  const std::unique_ptr<Checker> again = NewSmallChecker();
  Require(again->RestoreUntrusted(saved).ok());
  Require(again->Save() == saved);
  GoOn(checker.get());
}

}  // namespace
}  // namespace traincheck

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  traincheck::FuzzInput input(data, size);
  traincheck::Restore(input.Rest());
  return 0;
}
