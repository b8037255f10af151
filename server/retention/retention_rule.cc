#include "server/retention/retention_rule.h"

#include <algorithm>
#include <map>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace traincheck::server {
namespace {

bool MayDrop(const RunUse& run) {
  // A run without bytes has lost its records already: to drop it again would
  // give no room back.
  return run.ended_unix_ns != 0 && !run.is_kept && run.stored_bytes > 0;
}

}  // namespace

// Goes over the runs once, oldest end first, with running sums: each run that
// is dropped brings the sums down before the next one is looked at.
std::vector<std::string> RunsToDrop(const std::vector<RunUse>& runs,
                                    const std::set<std::string>& learned,
                                    const RetentionLimits& limits,
                                    absl::Time now,
                                    const CheckedToItsEnd& is_checked) {
  uint64_t bytes = 0;
  std::map<std::string, uint64_t> of_owner;
  std::vector<const RunUse*> candidates;
  for (const RunUse& run : runs) {
    // All runs count, also those that must stay: the disk is as full with them.
    bytes += run.stored_bytes;
    of_owner[run.owner] += run.stored_bytes;
    if (MayDrop(run) && !learned.contains(run.id)) candidates.push_back(&run);
  }
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const RunUse* a, const RunUse* b) {
                     return a->ended_unix_ns < b->ended_unix_ns;
                   });
  std::vector<std::string> dropped;
  for (const RunUse* run : candidates) {
    const absl::Time ended = absl::FromUnixNanos(run->ended_unix_ns);
    const bool is_owners_too_much =
        !run->owner.empty() && of_owner[run->owner] > limits.owner_bytes;
    // What goes lowers the sums, so no more runs go than the limits ask for.
    if (now - ended <= limits.age && bytes <= limits.bytes &&
        !is_owners_too_much) {
      continue;
    }
    // Asked last: the answer may take a read of the store.
    if (run->is_checked && !is_checked(run->id)) continue;
    bytes -= run->stored_bytes;
    of_owner[run->owner] -= run->stored_bytes;
    dropped.push_back(run->id);
  }
  return dropped;
}

// For options that people write by hand: units may be those of disks (powers of
// ten) or of memory (powers of two), in capitals or not.
absl::StatusOr<uint64_t> ParseBytes(const std::string& text, uint64_t whole) {
  static const auto& units = *new std::map<std::string, double>{
      {"", 1},
      {"B", 1},
      {"K", 1e3},
      {"KB", 1e3},
      {"M", 1e6},
      {"MB", 1e6},
      {"G", 1e9},
      {"GB", 1e9},
      {"T", 1e12},
      {"TB", 1e12},
      {"KIB", 1024.0},
      {"MIB", 1024.0 * 1024},
      {"GIB", 1024.0 * 1024 * 1024},
      {"TIB", 1024.0 * 1024 * 1024 * 1024},
  };
  const size_t digits = std::min(text.size(), text.find_first_not_of(  //
                                                  "0123456789."));
  const auto unit = units.find(absl::AsciiStrToUpper(text.substr(digits)));
  double number = 0;
  const std::string last = text.substr(digits);
  if (last == "%" && absl::SimpleAtod(text.substr(0, digits), &number) &&
      number <= 100) {
    return static_cast<uint64_t>(static_cast<double>(whole) / 100 * number);
  }
  // The bound is just below 2^64, beyond which the conversion is undefined.
  if (unit == units.end() ||
      !absl::SimpleAtod(text.substr(0, digits), &number) ||
      number * unit->second >= 1.8e19) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", text, "\" is not a size: expected a number with an ",
                     "optional unit, as 500MB, 200GB, 1.5TB or 50%"));
  }
  return static_cast<uint64_t>(number * unit->second);
}

}  // namespace traincheck::server
