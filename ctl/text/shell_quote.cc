#include "ctl/text/shell_quote.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/ascii.h"
#include "absl/strings/str_replace.h"

namespace traincheck::ctl {

std::string ShellQuote(const std::string& text) {
  // Commands in messages are easier to read without quotes.
  const bool plain =
      !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
        return absl::ascii_isalnum(c) || std::strchr("-_./:,@%+", c) != nullptr;
      });
  // strchr finds the byte 0 at the end of its set, so it passes as plain above.
  if (plain && text.find('\0') == std::string::npos) return text;
  return "'" + absl::StrReplaceAll(text, {{"'", "'\\''"}}) + "'";
}

}  // namespace traincheck::ctl
