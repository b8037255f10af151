#include "server/sets/human_text.h"

#include "absl/strings/str_cat.h"
#include "base/printable_text.h"

namespace traincheck::server {

absl::Status CheckHumanText(const char* what, const std::string& text) {
  if (text.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(what, " is empty"));
  }
  if (text.size() > kMaxHumanTextBytes) {
    return absl::InvalidArgumentError(absl::StrCat(what, " has ", text.size(),
                                                   " bytes, the limit is ",
                                                   kMaxHumanTextBytes));
  }
  // It is shown in terminals and logs of others, which control characters could
  // make say anything.
  if (!IsPrintable(text)) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, " has characters that cannot be printed"));
  }
  return absl::OkStatus();
}

}  // namespace traincheck::server
