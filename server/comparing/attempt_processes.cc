#include "server/comparing/attempt_processes.h"

#include <algorithm>
#include <string>
#include <tuple>

#include "absl/strings/str_cat.h"

namespace traincheck::server {
namespace {

// A process without a rank, or one that checks leave out, has nothing in the
// other run that it could be held against.
bool Trains(const RunView::Process& process) {
  return process.is_main && process.rank.has_value() && !process.refused;
}

// The newest attempt in which something trained: a restart that failed before
// it trained has nothing to compare.
std::optional<uint32_t> NewestAttempt(const RunView& run) {
  std::optional<uint32_t> newest;
  for (const RunView::Process& process : run.processes) {
    if (Trains(process)) {
      newest = std::max(newest.value_or(0), process.attempt);
    }
  }
  return newest;
}

// By the pid, the start and the host of a process.
using Identity = std::tuple<std::string, std::string, uint32_t, uint64_t>;

// Own says which process it is, Owner which process made it: both are equal
// where the second process is the first one's worker.
Identity Own(const v1::ProcessIdentity& identity) {
  return {identity.host(), identity.boot_id(), identity.pid(),
          identity.start_ticks()};
}

Identity Owner(const v1::ProcessIdentity& identity) {
  return {identity.host(), identity.boot_id(), identity.owner_pid(),
          identity.owner_start_ticks()};
}

void AddWorkers(const v1::Run& identities,
                const std::map<uint32_t, RunView::Process>& by_number,
                AttemptProcesses* processes) {
  std::map<uint32_t, RankKey> rank_of;  // by number of the process
  for (const auto& [key, process] : processes->ranks) {
    rank_of[process.number] = key;
  }
  // A worker names the process that made it by pid and start, since a pid alone
  // is given again.
  std::map<Identity, RankKey> owners;
  for (const v1::Process& process : identities.processes()) {
    const auto rank = rank_of.find(process.number());
    if (rank != rank_of.end()) owners[Own(process.identity())] = rank->second;
  }
  std::map<std::pair<RankKey, uint32_t>, uint32_t> passes;
  // In the order in which they came, as in the other run, so that passes fit.
  for (const v1::Process& process : identities.processes()) {
    const v1::ProcessIdentity& identity = process.identity();
    const auto view = by_number.find(process.number());
    const auto owner = owners.find(Owner(identity));
    if (identity.kind() != v1::PROCESS_KIND_WORKER || view == by_number.end() ||
        owner == owners.end()) {
      continue;
    }
    // Loaders start their workers anew for each pass over the data, so a
    // worker's number alone names many processes.
    const uint32_t pass = passes[{owner->second, identity.worker_id()}]++;
    processes->workers.emplace(
        WorkerKey{owner->second, identity.worker_id(), pass}, view->second);
  }
}

}  // namespace

absl::StatusOr<AttemptProcesses> ProcessesOf(const RunView& run,
                                             const v1::Run& identities,
                                             std::optional<uint32_t> attempt) {
  if (!attempt) attempt = NewestAttempt(run);
  if (!attempt) {
    return absl::NotFoundError(absl::StrCat(
        "no process of run ", run.id, " trained: traincheckctl runs show ",
        run.id, " says what each of them did"));
  }
  AttemptProcesses processes;
  processes.attempt = *attempt;
  std::map<uint32_t, RunView::Process> by_number;
  std::map<int32_t, uint32_t> holders;
  for (const RunView::Process& process : run.processes) {
    if (process.attempt != *attempt || process.refused) continue;
    by_number[process.number] = process;
    if (!Trains(process)) continue;
    // Trainings without a process group are all rank 0: they are told apart by
    // the order in which they came.
    const RankKey key = {*process.rank, holders[*process.rank]++};
    processes.ranks.emplace(key, process);
    processes.world = std::max(processes.world, process.world);
  }
  if (processes.ranks.empty()) {
    return absl::NotFoundError(absl::StrCat(
        "no process trained in attempt ", *attempt, " of run ", run.id,
        ": traincheckctl runs show ", run.id, " lists them"));
  }
  AddWorkers(identities, by_number, &processes);
  return processes;
}

}  // namespace traincheck::server
