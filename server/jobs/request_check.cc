#include "server/jobs/request_check.h"

#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "invariants/relations/registry.h"
#include "server/jobs/limits.h"
#include "server/sets/set_catalog.h"

namespace traincheck {
namespace {

absl::Status CheckCount(const char* field, int count, int limit) {
  if (count <= limit) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("InferRequest.", field, " has ", count,
                   " entries, the limit is ", limit));
}

absl::Status CheckRelations(const v1::InferRequest& request) {
  for (const std::string& name : request.relations()) {
    if (FindRelation(name) != nullptr) continue;
    std::string known;
    for (const Relation* relation : Relations()) {
      absl::StrAppend(&known, known.empty() ? "" : ", ", relation->name());
    }
    return absl::InvalidArgumentError(absl::StrCat(
        "\"", name, "\" is no relation of this version; it has ", known));
  }
  return absl::OkStatus();
}

absl::Status CheckOptions(const v1::InferOptions& options) {
  absl::Status counts;
  counts.Update(CheckCount("options.include_functions",
                           options.include_functions_size(), kMaxPatterns));
  counts.Update(CheckCount("options.exclude_functions",
                           options.exclude_functions_size(), kMaxPatterns));
  counts.Update(CheckCount("options.include_variables",
                           options.include_variables_size(), kMaxPatterns));
  counts.Update(CheckCount("options.exclude_variables",
                           options.exclude_variables_size(), kMaxPatterns));
  if (!counts.ok()) return counts;
  if (options.has_min_programs() && options.min_programs() == 0) {
    return absl::InvalidArgumentError(
        "InferRequest.options.min_programs is 0: one program at least");
  }
  const double chance = options.max_chance();
  if (options.has_max_chance() && !(chance > 0 && chance <= 1)) {
    return absl::InvalidArgumentError(
        absl::StrCat("InferRequest.options.max_chance is ", chance,
                     ": above 0 and at most 1"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckRequest(const v1::InferRequest& request) {
  absl::Status count = CheckCount("runs", request.runs_size(), kMaxRunsInJob);
  count.Update(
      CheckCount("relations", request.relations_size(), kMaxRelationsInJob));
  if (!count.ok()) return count;
  if (absl::Status s = CheckSetName(request.set()); !s.ok()) return s;
  if (request.runs().empty()) {
    return absl::InvalidArgumentError("no run to learn from was named");
  }
  if (absl::Status s = CheckRelations(request); !s.ok()) return s;
  return CheckOptions(request.options());
}

absl::Status CheckContent(const RunView& run) {
  uint64_t batches = 0;
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

}  // namespace traincheck
