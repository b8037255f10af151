#include "agent/relay/options.h"

#include <limits>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace traincheck::agent {
namespace {

// A variable that is set to nothing counts as not set.
std::string Value(const GetEnv& get_env, const char* name,
                  const std::string& fallback) {
  const char* value = get_env(name);
  return value == nullptr || *value == '\0' ? fallback : value;
}

// "512M" -> bytes.
bool ParseBytes(absl::string_view text, uint64_t* bytes) {
  int shift = 0;
  if (!text.empty()) {
    const size_t unit = absl::string_view("KMG").find(text.back());
    if (unit != absl::string_view::npos) {
      shift = 10 * (static_cast<int>(unit) + 1);
      text.remove_suffix(1);
    }
  }
  uint64_t number = 0;
  // It has to fit with its unit: bits that are shifted out would be lost
  // without a word.
  if (!absl::SimpleAtoi(text, &number) ||
      number > std::numeric_limits<uint64_t>::max() >> shift) {
    return false;
  }
  *bytes = number << shift;
  return true;
}

}  // namespace

// The environment is that of the training, with the settings of its file added
// by the agent (relay_process.cc).
absl::StatusOr<RelayOptions> ParseOptions(const GetEnv& get_env, uint32_t uid) {
  RelayOptions options;
  options.server = Value(get_env, "TRAINCHECK_SERVER", options.server);
  options.files = ClientFilesOf(get_env);
  options.spool_places = SpoolPlaces(get_env, uid);
  options.log_level = Value(get_env, "TRAINCHECK_LOG", options.log_level);

  const std::string set_limit = Value(get_env, "TRAINCHECK_SPOOL_LIMIT", "");
  options.spool_limit_is_set = !set_limit.empty();
  const std::string limit = set_limit.empty() ? "1G" : set_limit;
  // An agent has checked its settings; a user who sends a spool by hand has
  // not.
  if (!ParseBytes(limit, &options.spool_limit_bytes)) {
    return absl::InvalidArgumentError(
        absl::StrCat("TRAINCHECK_SPOOL_LIMIT is \"", limit,
                     "\": write a number of bytes, or one with K, M or G"));
  }
  const std::string grace = Value(get_env, "TRAINCHECK_GRACE", "30");
  uint32_t grace_seconds = 0;
  if (!absl::SimpleAtoi(grace, &grace_seconds)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "TRAINCHECK_GRACE is \"", grace, "\": write a number of seconds"));
  }
  options.grace = std::chrono::seconds(grace_seconds);
  const std::string start = Value(get_env, "TRAINCHECK_RELAY_START", "1");
  if (!absl::SimpleAtoi(start, &options.start)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "TRAINCHECK_RELAY_START is \"", start, "\": write a number"));
  }
  return options;
}

}  // namespace traincheck::agent
