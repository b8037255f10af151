#include "ctl/text/run_id.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "ctl/text/utc_time.h"

namespace traincheck::ctl {
namespace {

// With the time and the random part, 29 characters, an id stays below
// kMaxIdLength.
constexpr size_t kMaxNameLength = 64;
constexpr size_t kMaxIdLength = 128;
// 300 tasks of an array job that begin in one second draw two equal numbers
// once in a billion times. With 16 bits they did every second time.
constexpr int kRandomBits = 48;

bool Allowed(char c) {
  return absl::ascii_isalnum(c) ||
         (c != '\0' && std::strchr("._:-", c) != nullptr);
}

std::string BaseName(const std::string& path) {
  return path.substr(path.find_last_of('/') + 1);
}

}  // namespace

std::string ProgramName(const std::vector<std::string>& command) {
  // The script is what users know their training by. Launchers such as
  // torchrun, and their options, stand before it.
  for (const std::string& word : command) {
    const std::string base = BaseName(word);
    if (base.size() > 3 && absl::EndsWith(base, ".py")) {
      return base.substr(0, base.size() - 3);
    }
  }
  for (size_t i = 0; i + 1 < command.size(); ++i) {
    if (command[i] == "-m") return command[i + 1];
  }
  return command.empty() ? "run" : BaseName(command[0]);
}

// The random part sets runs apart that begin in one second, as those of an
// array job do.
std::string NewRunId(const std::string& name, uint64_t now_unix_ns,
                     uint64_t random) {
  std::string safe = name.substr(0, kMaxNameLength);
  std::replace_if(
      safe.begin(), safe.end(), [](char c) { return !Allowed(c); }, '_');
  // As CheckRunId wants it; a script may be called _train.py.
  if (safe.empty() || !absl::ascii_isalnum(safe[0])) safe = "run" + safe;
  return absl::StrFormat("%s-%s-%012x", safe, CompactTime(now_unix_ns),
                         random & ((uint64_t{1} << kRandomBits) - 1));
}

absl::Status CheckRunId(const std::string& id) {
  if (!id.empty() && id.size() <= kMaxIdLength && absl::ascii_isalnum(id[0]) &&
      std::all_of(id.begin(), id.end(), Allowed)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("\"", id, "\" is not a run id: use 1 to ", kMaxIdLength,
                   " letters, digits and . _ : -, a letter or digit first"));
}

}  // namespace traincheck::ctl
