#include "checker/snapshot.h"

#include "base/hash.h"

namespace traincheck {

namespace {

// Raised with every change of what is saved, so that a state of another
// version is left aside. snapshot_test notices.
constexpr char kFormat = 33;
constexpr std::string_view kMagic = "tccheck";
constexpr size_t kFingerprintBytes = 16;
constexpr size_t kHashBytes = 16;

}  // namespace

// The hash shows damage, not intent: whoever can write a state can hash it as
// well. What is restored is therefore checked once more as it is read.
std::string Seal(const std::string& fingerprint, const std::string& state) {
  std::string bytes(kMagic);
  bytes += kFormat;
  bytes += fingerprint;
  bytes += HashText(state);
  bytes += state;
  return bytes;
}

absl::StatusOr<std::string_view> Unseal(const std::string& fingerprint,
                                        std::string_view bytes) {
  const size_t head =
      kMagic.size() + sizeof(kFormat) + kFingerprintBytes + kHashBytes;
  if (bytes.size() < head || bytes.substr(0, kMagic.size()) != kMagic) {
    return absl::DataLossError("it is not a snapshot of a check");
  }
  bytes.remove_prefix(kMagic.size());
  // In this order, so that a healthy state of another version or set is called
  // that, and not damaged.
  if (bytes[0] != kFormat) {
    return absl::FailedPreconditionError("it is of another version");
  }
  bytes.remove_prefix(sizeof(kFormat));
  if (bytes.substr(0, kFingerprintBytes) != fingerprint) {
    return absl::FailedPreconditionError("it is of another run or set");
  }
  bytes.remove_prefix(kFingerprintBytes);
  const std::string_view hash = bytes.substr(0, kHashBytes);
  bytes.remove_prefix(kHashBytes);
  if (hash != HashText(std::string(bytes))) {
    return absl::DataLossError("it is damaged");
  }
  return bytes;
}

}  // namespace traincheck
