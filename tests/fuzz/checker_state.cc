#include "tests/fuzz/checker_state.h"

#include "checker/snapshot.h"
#include "tests/fuzz/small_set.h"

namespace traincheck {
namespace {

// As checker/snapshot.h has it.
constexpr size_t kFingerprintAt = 8;
constexpr size_t kFingerprintBytes = 16;
constexpr size_t kStateAt = 40;

}  // namespace

std::unique_ptr<Checker> NewSmallChecker() {
  return std::make_unique<Checker>("run", "experiment", SmallSet());
}

std::string StateOf(const Checker& checker) {
  return checker.Save().substr(kStateAt);
}

std::string Sealed(const std::string& state) {
  static const auto* const kFingerprint = new std::string(
      NewSmallChecker()->Save().substr(kFingerprintAt, kFingerprintBytes));
  return Seal(*kFingerprint, state);
}

}  // namespace traincheck
