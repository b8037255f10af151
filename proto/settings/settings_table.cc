#include "proto/settings/settings_table.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <vector>

namespace traincheck {
namespace {

using Kind = SettingKind;

// What the daemon takes as a run's id (agent/capture/run_name.h).
constexpr size_t kMaxRunBytes = 128;
// Nine digits fit into 32 bits, eighteen into 64.
constexpr size_t kMaxWholeDigits = 9;
constexpr size_t kMaxByteDigits = 18;

constexpr AgentSetting kSettings[] = {
    {"SERVER", Kind::kAddress, "", "your daemon's socket on this host",
     "the daemon: `HOST:PORT` or `unix:PATH`", true},
    {"TLS_CA", Kind::kText, "", "none",
     "file with the certificate of the authority that has signed the daemon's: "
     "needed for every daemon [beyond this host](security.md)",
     true},
    {"TOKEN_FILE", Kind::kText, "", "that of your daemon on this host",
     "file of mode 0600 with the [token](security.md) that the daemon knows "
     "this user by; read anew at each connection",
     true},
    {"RUN", Kind::kRun, "",
     "Slurm job and step, Kubernetes job, torchelastic run id, MPI namespace, "
     "else what the ranks agree on",
     "run id, equal on all ranks", true},
    {"EXPERIMENT", Kind::kText, "",
     "script's path in its repository, the module after -m, or the notebook",
     "what is trained", true},
    {"COLLECT", Kind::kChoice, "0 1 full", "0",
     "1: a reference run, to learn from; full: with all functions of the "
     "catalogue",
     true},
    {"CHECK", Kind::kText, "", "none", "the set to check against", true},
    {"BUILTIN", Kind::kFlag, "", "1",
     "0: `run` and `env` leave the [built-in rules](built-in-rules.md) out",
     true},
    {"PLAN", Kind::kText, "",
     "a reference run records all arguments, others none",
     "file with the [capture plan](capture-plan.md): which arguments and "
     "results are recorded",
     true},
    {"BUDGET", Kind::kPercent, "", "2%; none for a reference run",
     "largest share of the step time, in percent, or `off`: "
     "[capture plans](capture-plan.md)",
     true},
    {"WRAP", Kind::kText, "", "none",
     "functions of your own to record: `module:function,module:Class.method`",
     true},
    {"SPOOL_DIR", Kind::kText, "",
     "a folder of yours in `$SLURM_TMPDIR`, `$TMPDIR` or `/tmp`",
     "where records go [while the daemon is "
     "away](operations.md#records-that-wait-for-the-daemon)",
     true},
    {"SPOOL_LIMIT", Kind::kBytes, "", "1G",
     "bytes that all your trainings on a node may spool in that folder; unless "
     "it is set, 128M where the folder lies in memory (tmpfs); 5% of the disk "
     "always stays free",
     true},
    {"GRACE", Kind::kWholeSeconds, "", "30",
     "seconds to go on trying after the end of a process", true},
    {"EXIT_WAIT", Kind::kSeconds, "", "2",
     "seconds that a process waits at its exit until its records are safe",
     true},
    {"LOG", Kind::kChoice, "off error warning info debug", "warning",
     "what is said on stderr", true},
    {"STOP_AFTER", Kind::kSteps, "", "none",
     "the training ends in order when so many steps have closed: "
     "[preflight](operations.md#before-a-long-training)",
     false},
    {"PROBE", Kind::kText, "", "none",
     "file that the outcome of "
     "[probed backwards](operations.md#hand-made-backwards) is added to",
     false},
    {"GPU", Kind::kFlag, "", "1",
     "0: tensors in the memory of GPUs are not read ([GPUs](gpu.md))", true},
    {"DISABLE", Kind::kFlag, "", "0", "1: the agent does nothing", true},
    {"CONFIG", Kind::kText, "", "none", "the file with these settings", false},
    {"AGENT_DIR", Kind::kText, "", "that of the preloaded library",
     "folder of the agent's files", false},
};

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

bool IsRunCharacter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || IsDigit(c) ||
         std::string_view("._:-").find(c) != std::string_view::npos;
}

bool IsWhole(std::string_view value, size_t max_digits) {
  return !value.empty() && value.size() <= max_digits &&
         std::all_of(value.begin(), value.end(), IsDigit);
}

bool IsSeconds(std::string_view value) {
  const size_t point = value.find('.');
  const std::string_view whole = value.substr(0, point);
  if (point == std::string_view::npos) return IsWhole(whole, kMaxWholeDigits);
  return IsWhole(whole, kMaxWholeDigits) &&
         IsWhole(value.substr(point + 1), kMaxWholeDigits);
}

// 0, 2.5, .5, 100 or off.
bool IsPercent(std::string_view value) {
  if (value == "off") return true;
  const size_t point = std::min(value.find('.'), value.size());
  const std::string_view whole = value.substr(0, point);
  const std::string_view rest = value.substr(std::min(point + 1, value.size()));
  if (whole.empty() && rest.empty()) return false;
  if (!whole.empty() && !IsWhole(whole, 3)) return false;
  if (!rest.empty() && !IsWhole(rest, kMaxWholeDigits)) return false;
  const bool no_fraction = rest.find_first_not_of('0') == rest.npos;
  return whole.size() < 3 || whole[0] == '0' || (whole == "100" && no_fraction);
}

// A number that fits into 64 bits with its unit.
bool IsBytes(std::string_view value) {
  if (value.empty()) return false;
  const size_t unit = std::string_view("KMG").find(value.back());
  int shift = 0;
  if (unit != std::string_view::npos) {
    shift = 10 * (static_cast<int>(unit) + 1);
    value.remove_suffix(1);
  }
  if (!IsWhole(value, kMaxByteDigits)) return false;
  // So many digits fit into 64 bits: nothing wraps before it is compared.
  unsigned long long number = 0;
  for (const char digit : value) {
    number = number * 10 + static_cast<unsigned>(digit - '0');
  }
  return number <= std::numeric_limits<unsigned long long>::max() >> shift;
}

// Five digits at most, as the caller has checked.
bool IsPort(std::string_view value) {
  unsigned port = 0;
  for (const char digit : value) {
    port = port * 10 + static_cast<unsigned>(digit - '0');
  }
  return port <= 65535;
}

bool IsAddress(std::string_view value) {
  if (value.substr(0, 5) == "unix:") return value.size() > 5;
  // The last one: those of an IPv6 address stand before it, in brackets.
  const size_t colon = value.rfind(':');
  return colon != std::string_view::npos && colon > 0 &&
         IsWhole(value.substr(colon + 1), 5) && IsPort(value.substr(colon + 1));
}

bool IsRun(std::string_view value) {
  return value.size() <= kMaxRunBytes &&
         std::all_of(value.begin(), value.end(), IsRunCharacter);
}

std::vector<std::string_view> Words(std::string_view text) {
  std::vector<std::string_view> words;
  while (!text.empty()) {
    const size_t end = std::min(text.find(' '), text.size());
    words.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return words;
}

// Letters to insert, delete or replace between the two. `row` holds the
// distances between the letters of `a` so far and each beginning of `b`. In
// place of base/nearest.h, which the training process does not link.
size_t Distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j < row.size(); ++j) row[j] = j;
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0]++;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, diagonal + 1, row[j] + 1});
    }
  }
  return row.back();
}

}  // namespace

std::span<const AgentSetting> AllSettings() { return kSettings; }

const AgentSetting* FindSetting(std::string_view name) {
  const auto* const found = std::find_if(
      std::begin(kSettings), std::end(kSettings),
      [&](const AgentSetting& setting) { return setting.name == name; });
  return found == std::end(kSettings) ? nullptr : found;
}

std::string_view NearestSetting(std::string_view name) {
  // A name may be as long as an environment: what is behind does not count.
  name = name.substr(0, kMaxRunBytes);
  const auto* const nearest =
      std::min_element(std::begin(kSettings), std::end(kSettings),
                       [&](const AgentSetting& a, const AgentSetting& b) {
                         return Distance(name, a.name) < Distance(name, b.name);
                       });
  return nearest->name;
}

std::string AllowedValues(const AgentSetting& setting) {
  switch (setting.kind) {
    case Kind::kText:
      return "a text";
    case Kind::kFlag:
      return "0 or 1";
    case Kind::kChoice: {
      std::string words;
      for (const std::string_view word : Words(setting.choices)) {
        words += words.empty() ? "" : ", ";
        words += word;
      }
      return "one of " + words;
    }
    case Kind::kSeconds:
      return "a number of seconds";
    case Kind::kWholeSeconds:
      return "a whole number of seconds";
    case Kind::kSteps:
      return "a whole number of steps";
    case Kind::kPercent:
      return "a percentage of 0 to 100, or off";
    case Kind::kBytes:
      return "a number of bytes, or one with K, M or G";
    case Kind::kAddress:
      return "HOST:PORT or unix:PATH";
    case Kind::kRun:
      return "at most 128 letters, digits and . _ : -";
  }
  return "";
}

bool IsAllowed(const AgentSetting& setting, std::string_view value) {
  if (value.empty()) return true;
  switch (setting.kind) {
    case Kind::kText:
      return true;
    case Kind::kFlag:
      return value == "0" || value == "1";
    case Kind::kChoice: {
      const auto words = Words(setting.choices);
      return std::find(words.begin(), words.end(), value) != words.end();
    }
    case Kind::kSeconds:
      return IsSeconds(value);
    case Kind::kWholeSeconds:
      return IsWhole(value, kMaxWholeDigits);
    case Kind::kSteps:
      return IsWhole(value, kMaxWholeDigits) &&
             value.find_first_not_of('0') != value.npos;
    case Kind::kPercent:
      return IsPercent(value);
    case Kind::kBytes:
      return IsBytes(value);
    case Kind::kAddress:
      return IsAddress(value);
    case Kind::kRun:
      return IsRun(value);
  }
  return false;
}

}  // namespace traincheck
