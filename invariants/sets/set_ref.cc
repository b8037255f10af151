#include "invariants/sets/set_ref.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/printable_text.h"

namespace traincheck {
namespace {

constexpr size_t kMaxShownBytes = 128;

}  // namespace

absl::StatusOr<SetRef> ParseSetRef(const std::string& text) {
  const size_t at = text.rfind('@');
  if (at == std::string::npos) return SetRef{text};
  SetRef set{text.substr(0, at)};
  if (!absl::SimpleAtoi(text.substr(at + 1), &set.version) ||
      set.version == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", EscapeUnprintable(text.substr(0, kMaxShownBytes)),
                     "\" is not a set: write NAME for its newest version, or "
                     "NAME@VERSION with a version from 1 on"));
  }
  return set;
}

}  // namespace traincheck
