#include "server/jobs/request_check.h"

#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "invariants/relations/registry.h"
#include "server/jobs/limits.h"
#include "server/sets/set_catalog.h"

namespace traincheck::server {
namespace {

// `option` as the user writes it.
absl::Status CheckCount(const char* option, int count, int limit) {
  if (count <= limit) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat(option, " has ", count, " entries, the limit is ", limit));
}

// A name that is empty comes of a comma too many and may stand for a run that
// was meant.
absl::Status CheckRunNames(const v1::InferRequest& request) {
  if (request.runs().empty()) {
    return absl::InvalidArgumentError(
        "no run to learn from was named: name runs with --from RUN[,RUN...]");
  }
  for (int i = 0; i < request.runs_size(); ++i) {
    if (!request.runs(i).empty()) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("--from: name ", i + 1, " of ", request.runs_size(),
                     " is empty: remove the comma or name the run"));
  }
  return absl::OkStatus();
}

// An unknown name is an error and does not learn less: a typing mistake would
// give a set without the rules that were meant.
absl::Status CheckRelations(const v1::InferRequest& request) {
  for (const std::string& name : request.relations()) {
    if (FindRelation(name) != nullptr) continue;
    std::string known;
    for (const Relation* relation : Relations()) {
      absl::StrAppend(&known, known.empty() ? "" : ", ", relation->name());
    }
    return absl::InvalidArgumentError(
        absl::StrCat("--relations: \"", name,
                     "\" is not a relation of this version; it has ", known));
  }
  return absl::OkStatus();
}

absl::Status CheckOptions(const v1::InferOptions& options) {
  absl::Status counts;
  // Update keeps the first error, so the client is sent the first option that
  // has too many.
  counts.Update(CheckCount("--include-functions",
                           options.include_functions_size(), kMaxPatterns));
  counts.Update(CheckCount("--exclude-functions",
                           options.exclude_functions_size(), kMaxPatterns));
  counts.Update(CheckCount("--include-variables",
                           options.include_variables_size(), kMaxPatterns));
  counts.Update(CheckCount("--exclude-variables",
                           options.exclude_variables_size(), kMaxPatterns));
  if (!counts.ok()) return counts;
  if (options.has_min_programs() && options.min_programs() == 0) {
    return absl::InvalidArgumentError("--min-programs is 0: write 1 or more");
  }
  const double chance = options.max_chance();
  // Written so that NaN is refused as well.
  if (options.has_max_chance() && !(chance > 0 && chance <= 1)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--max-chance is ", chance, ": write a number above 0 and at most 1"));
  }
  return absl::OkStatus();
}

}  // namespace

// Counts first: what follows goes over each entry.
absl::Status CheckRequest(const v1::InferRequest& request) {
  absl::Status count = CheckCount("--from", request.runs_size(), kMaxRunsInJob);
  count.Update(
      CheckCount("--relations", request.relations_size(), kMaxRelationsInJob));
  if (!count.ok()) return count;
  if (absl::Status s = CheckSetName(request.set()); !s.ok()) return s;
  if (absl::Status s = CheckRunNames(request); !s.ok()) return s;
  if (absl::Status s = CheckRelations(request); !s.ok()) return s;
  return CheckOptions(request.options());
}

// What a job would otherwise find out after reading gigabytes.
absl::Status CheckContent(const RunView& run) {
  uint64_t batches = 0;
  // By attempt: one that is started anew may have another world.
  std::map<uint32_t, const RunView::Process*> first;  // rank by attempt
  for (const RunView::Process& process : run.processes) {
    batches += process.next_batch;
    if (!process.rank || process.refused) continue;
    const auto [found, added] = first.emplace(process.attempt, &process);
    if (added || found->second->world == process.world) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        "the ranks of run ", run.id, " are of different worlds: rank ",
        *found->second->rank, " is one of ", found->second->world, ", rank ",
        *process.rank, " one of ", process.world,
        "; name other runs, or give each world a run of its own"));
  }
  if (batches > 0) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("run ", run.id, " has no records: name other runs"));
}

}  // namespace traincheck::server
