#include "server/runs/run_state.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"

namespace traincheck::server {
namespace {

// More than anybody reads.
constexpr size_t kMaxMissingRanks = 256;

// What is known of the ranks of one attempt.
struct Ranks {
  int32_t world = 0;  // 0: not known
  // That have announced themselves. Several processes may hold one place, one
  // after the other, so this is a set.
  std::set<int32_t> there;
  // Processes that took no rank. One of them may be a rank that is missing,
  // with its record of the place not there yet; a worker never is.
  size_t others = 0;
};

std::map<uint32_t, Ranks> RanksByAttempt(const RunState& run) {
  std::map<uint32_t, Ranks> attempts;
  ForEachProcess(run, [&](const stored::Process& books) {
    Ranks& ranks = attempts[books.attempt()];
    ranks.others +=
        !books.has_rank() && books.kind() != v1::PROCESS_KIND_WORKER;
    if (!IsMain(books)) return;
    ranks.world = std::max(ranks.world, books.world());
    if (books.has_rank()) ranks.there.insert(books.rank());
  });
  return attempts;
}

// Is nobody else to be expected in the newest attempt? Decides whether a run
// ends at once or after the grace period (EndTime).
bool AllRanksCame(const RunState& run) {
  const std::map<uint32_t, Ranks> attempts = RanksByAttempt(run);
  if (attempts.empty()) return false;
  const Ranks& newest = attempts.rbegin()->second;
  // Without a size of the world nobody knows who is still to come: then the
  // grace period decides.
  return newest.world > 0 &&
         newest.there.size() == static_cast<size_t>(newest.world);
}

// What `runs list` shows. The newest attempt decides, as for verdicts.
v1::RunStatus StatusOf(const RunState& run) {
  if (run.run.ended_unix_ns() == 0) return v1::RUN_STATUS_RUNNING;
  // What an earlier attempt lost was made up for.
  const uint32_t attempt = LastAttempt(run);
  bool any_main = false;
  bool any_silent = false;
  for (const auto& [number, process] : run.processes) {
    if (process.books.attempt() != attempt) continue;
    if (IsLostRank(process.books)) return v1::RUN_STATUS_LOST;
    any_main |= IsMain(process.books);
    any_silent |= process.books.state() == stored::STATE_SILENT ||
                  process.books.state() == stored::STATE_SUPERSEDED;
  }
  // A process that fell silent before it said what it is may have been the
  // rank: it counts where no rank is known at all.
  return !any_main && any_silent ? v1::RUN_STATUS_LOST : v1::RUN_STATUS_ENDED;
}

void AddSteps(const stored::Process& process, v1::Run* api) {
  if (!IsMain(process) || !process.has_first_step()) return;
  if (!api->has_first_step() || process.first_step() < api->first_step()) {
    api->set_first_step(process.first_step());
  }
  if (!api->has_last_step() || process.last_step() > api->last_step()) {
    api->set_last_step(process.last_step());
  }
}

// People who look for a rank that never came need two things: whether it may
// still come, and whether a process is there that has not said its rank yet.
std::string MissingReason(bool may_come, const Ranks& ranks) {
  std::string reason = "no process announced this rank";
  if (may_come) absl::StrAppend(&reason, " yet");
  if (ranks.others > 0) {
    absl::StrAppend(&reason, "; processes that took no rank: ", ranks.others);
  }
  return reason;
}

void AddMissingRanks(const RunState& run,
                     const std::map<uint32_t, Ranks>& attempts, v1::Run* api) {
  for (const auto& [attempt, ranks] : attempts) {
    const bool may_come =
        run.run.ended_unix_ns() == 0 && attempt == attempts.rbegin()->first;
    for (int32_t rank = 0; rank < ranks.world; ++rank) {
      if (static_cast<size_t>(api->missing_size()) == kMaxMissingRanks) return;
      if (ranks.there.count(rank) > 0) continue;
      v1::MissingRank* missing = api->add_missing();
      missing->set_attempt(attempt);
      missing->set_rank(rank);
      missing->set_reason(MissingReason(may_come, ranks));
    }
  }
}

// Pids are used again: with start time and boot a pid is one process.
std::string IdentityKey(const std::string& host, const std::string& boot_id,
                        uint32_t pid, uint64_t start_ticks) {
  return absl::StrCat(pid, " ", start_ticks, " ", boot_id, " ", host);
}

}  // namespace

// Goes over all processes; callers that need it for each of them ask once.
uint32_t LastAttempt(const RunState& run) {
  uint32_t attempt = 0;
  ForEachProcess(run, [&](const stored::Process& books) {
    attempt = std::max(attempt, books.attempt());
  });
  return attempt;
}

std::string ReasonOf(const stored::Process& process, uint32_t last_attempt,
                     absl::Time now, absl::Duration lost_after) {
  std::string reason = StateReason(process, now, lost_after);
  // Only of those that have ended: ranks of an earlier attempt may still run
  // beside the new one.
  if (process.attempt() < last_attempt && HasEnded(process)) {
    absl::StrAppend(&reason, "; superseded by attempt ", last_attempt);
  }
  return reason;
}

ProcessEntry& RunState::Add(stored::Process books) {
  const std::string key = IdentityKey(books.host(), books.boot_id(),
                                      books.pid(), books.start_ticks());
  // An exec keeps the pid and its start: only the image, which the agent draws,
  // tells the programs apart.
  images[{key, books.image()}] = books.number();
  const auto [newest, is_first] = by_identity.emplace(key, books.number());
  // By their starts: of two programs of one process the later one may be heard
  // of first.
  if (!is_first && processes.at(newest->second).books.started_unix_ns() <=
                       books.started_unix_ns()) {
    newest->second = books.number();
  }
  ProcessEntry& process = processes[books.number()];
  process.books = std::move(books);
  return process;
}

void RunState::AddStored(stored::Process books, absl::Time now) {
  ProcessEntry& process = Add(std::move(books));
  if (HasEnded(process.books)) {
    process.durable_end = EndOf(process.books);
  } else {
    // Since now and not since its last batch: a daemon that was away for long
    // would else count every rank as lost before its relay can come back.
    SetState(stored::STATE_DISCONNECTED, now, &process.books);
  }
  process.durable_next_batch = process.books.next_batch();
}

// A relay that comes back, or another relay for the same process, finds the
// books that the first one began.
ProcessEntry* RunState::Find(const v1::ProcessIdentity& identity) {
  const auto at =
      images.find({IdentityKey(identity.host(), identity.boot_id(),
                               identity.pid(), identity.start_ticks()),
                   identity.image()});
  return at == images.end() ? nullptr : &processes.at(at->second);
}

bool RunState::IsLatestImage(const stored::Process& process) const {
  return by_identity.at(IdentityKey(process.host(), process.boot_id(),
                                    process.pid(), process.start_ticks())) ==
         process.number();
}

const ProcessEntry* RunState::OwnerOf(const stored::Process& worker) const {
  const auto at = by_identity.find(IdentityKey(worker.host(), worker.boot_id(),
                                               worker.owner_pid(),
                                               worker.owner_start_ticks()));
  return at == by_identity.end() ? nullptr : &processes.at(at->second);
}

absl::Status RunState::CheckAtRest() const {
  if (run.ended_unix_ns() == 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("run ", run.id(), " has not ended"));
  }
  for (const auto& [number, process] : processes) {
    if (process.stream != 0) {
      return absl::FailedPreconditionError(
          absl::StrCat("run ", run.id(), ": the relay of ",
                       ProcessName(process.books), " is still connected"));
    }
    // The books are ahead of the store: a write that is still queued would come
    // behind a deletion, which goes past the queue (Store::Erase).
    if (process.durable_end != EndOf(process.books) ||
        process.durable_next_batch != process.books.next_batch()) {
      return absl::FailedPreconditionError(
          absl::StrCat("run ", run.id(),
                       " has ended but is not on disk yet: see "
                       "traincheckctl status"));
    }
  }
  return absl::OkStatus();
}

uint64_t RunState::StoredBytes() const {
  if (shelved) return shelved_bytes;
  uint64_t bytes = 0;
  for (const auto& [number, process] : processes) {
    bytes += BytesOf(process.books);
  }
  return bytes;
}

const ProcessEntry* RunState::OtherHolder(const stored::Process& books) const {
  const auto contests = [](const stored::Process& process) {
    return IsMain(process) && process.has_rank() && process.world() > 1;
  };
  if (!contests(books)) return nullptr;
  for (const auto& [number, other] : processes) {
    // Only a process with a live stream holds its place against others; one
    // that is refused itself holds none.
    if (number != books.number() && other.stream != 0 &&
        other.books.place_conflict().empty() && contests(other.books) &&
        other.books.attempt() == books.attempt() &&
        other.books.rank() == books.rank()) {
      return &other;
    }
  }
  return nullptr;
}

std::optional<absl::Time> EndTime(const RunState& run, absl::Time now,
                                  absl::Duration grace) {
  uint64_t last_unix_ns = 0;
  for (const auto& [number, process] : run.processes) {
    if (!HasEnded(process.books)) return std::nullopt;
    last_unix_ns = std::max<uint64_t>(last_unix_ns,  //
                                      process.books.state_since_unix_ns());
  }
  const absl::Time last = absl::FromUnixNanos(last_unix_ns);
  // With every rank there, nobody else can follow in this attempt, and whoever
  // waits for the verdict gets it at once.
  if (!AllRanksCame(run) && now - last < grace) return std::nullopt;
  return last;
}

// A run as clients see it, sums of its processes included. The registry holds
// its lock meanwhile, so nothing here reads the disk.
v1::Run ToApi(const RunState& run, absl::Time now, absl::Duration lost_after) {
  v1::Run api;
  api.set_id(run.run.id());
  api.set_owner(run.run.owner());
  api.set_experiment(run.run.experiment());
  api.set_role(static_cast<v1::RunRole>(run.run.role()));
  api.set_status(StatusOf(run));
  api.set_started_unix_ns(run.run.started_unix_ns());
  api.set_ended_unix_ns(run.run.ended_unix_ns());
  const std::map<uint32_t, Ranks> attempts = RanksByAttempt(run);
  const uint32_t last = attempts.empty() ? 0 : attempts.rbegin()->first;
  api.set_world(attempts.empty() ? 0 : attempts.rbegin()->second.world);
  api.set_kept(run.run.kept());
  api.set_records_deleted_unix_ns(run.run.records_deleted_unix_ns());
  api.set_check_set(run.run.check_set());
  for (const auto& [number, process] : run.processes) {
    v1::Process shown = ToApi(process.books, now, lost_after);
    shown.set_reason(ReasonOf(process.books, last, now, lost_after));
    AddSteps(process.books, &api);
    api.set_records(api.records() + shown.records());
    api.set_dropped(api.dropped() + shown.dropped());
    // Where it is unknown of a process it adds nothing here; that process has
    // none set.
    api.set_lost(api.lost() + shown.lost());
    api.set_stored_bytes(api.stored_bytes() + shown.stored_bytes());
    api.set_quarantined_batches(api.quarantined_batches() +
                                process.books.quarantined_batches());
    *api.add_processes() = std::move(shown);
  }
  api.set_attempts(attempts.size());
  AddMissingRanks(run, attempts, &api);
  return api;
}

}  // namespace traincheck::server
