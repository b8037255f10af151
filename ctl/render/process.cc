#include "ctl/render/process.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ctl/render/names.h"
#include "ctl/text/table.h"
#include "ctl/text/terminal.h"

namespace traincheck::ctl {
namespace {

// Not a state of the protocol: no process has taken the place.
constexpr char kMissing[] = "missing";
constexpr char kMissingReason[] =
    "nothing heard: not started yet, started without the agent (doctor says "
    "why on its host), or its relay is gone";

// Null and not 0 where nobody knows, as after a process has died together with
// its relay.
Json LostOf(const v1::Process& process) {
  return process.has_lost() ? Json(process.lost()) : Json();
}

// By ring, because a thread has one: it shows which of them dropped records.
Json RingJson(const v1::RingAccount& ring) {
  Json json;
  json["ring"] = ring.ring();
  json["offered"] = ring.offered();
  json["committed"] = ring.committed();
  json["dropped"] = ring.dropped();
  json["stored"] = ring.stored();
  json["stored_position"] = ring.stored_position();
  return json;
}

struct Place {
  int32_t rank;
  const v1::Process* process;  // null: missing
  // Processes that claim the same place and do not hold it.
  std::vector<const v1::Process*> others;
};

// The first live process that claims a place holds it; without one the first.
void SortByHolder(std::vector<const v1::Process*>* claimants) {
  std::stable_partition(
      claimants->begin(), claimants->end(), [](const v1::Process* process) {
        return process->state() == v1::PROCESS_STATE_STREAMING;
      });
}

// Places of the newest attempt, by rank.
// A rank of the world without a process is a place, too.
std::vector<Place> Places(const v1::Run& run) {
  uint32_t newest = 0;
  for (const v1::Process& process : run.processes()) {
    // Earlier attempts say nothing of the ranks that train.
    if (process.has_rank()) newest = std::max(newest, process.attempt());
  }
  std::map<int32_t, std::vector<const v1::Process*>> by_rank;
  for (uint32_t rank = 0; rank < run.world(); ++rank) {
    // Each rank of the world has a place, so that one which never came is seen
    // to be missing.
    by_rank[static_cast<int32_t>(rank)];
  }
  for (const v1::Process& process : run.processes()) {
    if (!process.has_rank() || process.attempt() != newest) continue;
    by_rank[process.rank()].push_back(&process);
  }
  std::vector<Place> places;
  for (auto& [rank, claimants] : by_rank) {
    SortByHolder(&claimants);
    Place place = {rank, nullptr, {}};
    if (!claimants.empty()) {
      place.process = claimants[0];
      place.others.assign(claimants.begin() + 1, claimants.end());
    }
    places.push_back(std::move(place));
  }
  return places;
}

Json OtherJson(const v1::Process* process) {
  Json json;
  json["pid"] = process->identity().pid();
  json["host"] = TextOrNull(process->identity().host());
  json["state"] = TextOrNull(StateName(process->state()));
  json["reason"] = TextOrNull(process->reason());
  return json;
}

Json PlaceJson(const Place& place) {
  const v1::Process* process = place.process;
  Json json;
  json["rank"] = place.rank;
  json["pid"] = process ? Json(process->identity().pid()) : Json();
  json["host"] = process ? TextOrNull(process->identity().host()) : Json();
  json["state"] =
      process ? TextOrNull(StateName(process->state())) : Json(kMissing);
  json["reason"] = process ? TextOrNull(process->reason()) : kMissingReason;
  json["records"] = process ? Json(process->records()) : Json();
  json["dropped"] = process ? Json(process->dropped()) : Json();
  json["lost"] = process ? LostOf(*process) : Json();
  json["others"] = ArrayOf(place.others, OtherJson);
  return json;
}

std::string WhoAndWhy(const v1::Process& process) {
  return absl::StrCat(
      TextOrUnknown(StateName(process.state())), ", pid ",
      process.identity().pid(), " on ",
      TextOrUnknown(OneLine(process.identity().host())), ", records ",
      process.records(), ", dropped ", process.dropped(), ", lost ",
      NumberOrUnknown(process.has_lost(), process.lost()),
      process.reason().empty() ? "" : " (" + OneLine(process.reason()) + ")",
      "\n");
}

// Trains, or will: the others in want of a rank are launchers and helpers.
bool WaitsForRank(const v1::Process& process) {
  return process.identity().kind() == v1::PROCESS_KIND_MAIN &&
         !process.has_rank() && process.state() == v1::PROCESS_STATE_STREAMING;
}

// Workers of a loader differ only in their number.
std::string KindText(const v1::Process& process) {
  const std::string kind = KindName(process.identity().kind());
  if (process.identity().kind() != v1::PROCESS_KIND_WORKER) {
    return TextOrUnknown(kind);
  }
  return absl::StrCat(kind, " ", process.identity().worker_id());
}

}  // namespace

Json ProcessJson(const v1::Process& process) {
  const v1::ProcessIdentity& identity = process.identity();
  Json json;
  json["rank"] = process.has_rank() ? Json(process.rank()) : Json();
  json["pid"] = identity.pid();
  json["host"] = TextOrNull(identity.host());
  json["kind"] = TextOrNull(KindName(identity.kind()));
  // 0 is a worker's number, so other processes have null.
  json["worker_id"] = identity.kind() == v1::PROCESS_KIND_WORKER
                          ? Json(identity.worker_id())
                          : Json();
  json["owner_pid"] =
      identity.owner_pid() == 0 ? Json() : Json(identity.owner_pid());
  json["attempt"] = process.attempt();
  json["state"] = TextOrNull(StateName(process.state()));
  json["reason"] = TextOrNull(process.reason());
  json["records"] = process.records();
  json["dropped"] = process.dropped();
  json["lost"] = LostOf(process);
  json["last_step"] =
      process.has_last_step() ? Json(process.last_step()) : Json();
  json["rings"] = ArrayOf(process.rings(), RingJson);
  return json;
}

Json RanksJson(const v1::Run& run) { return ArrayOf(Places(run), PlaceJson); }

std::vector<v1::Process> ByPlace(const v1::Run& run) {
  std::vector<v1::Process> processes(run.processes().begin(),
                                     run.processes().end());
  const auto place = [](const v1::Process& process) {
    // False sorts before true: processes without a rank are the last of their
    // attempt.
    return std::tuple(process.attempt(), !process.has_rank(), process.rank(),
                      process.identity().owner_pid(),
                      process.identity().worker_id());
  };
  std::stable_sort(processes.begin(), processes.end(),
                   [&](const v1::Process& a, const v1::Process& b) {
                     return place(a) < place(b);
                   });
  return processes;
}

std::string ProcessesTable(const v1::Run& run) {
  Table table({{"ATTEMPT", Align::kRight},
               {"RANK", Align::kRight},
               {"PID", Align::kRight},
               {"HOST"},
               {"KIND"},
               {"STATE"},
               {"LAST STEP", Align::kRight},
               {"RECORDS", Align::kRight},
               {"DROPPED", Align::kRight},
               {"LOST", Align::kRight},
               {"REASON"}});
  for (const v1::Process& process : ByPlace(run)) {
    table.AddRow({std::to_string(process.attempt()),
                  NumberOrUnknown(process.has_rank(), process.rank()),
                  std::to_string(process.identity().pid()),
                  TextOrUnknown(process.identity().host()), KindText(process),
                  TextOrUnknown(StateName(process.state())),
                  NumberOrUnknown(process.has_last_step(), process.last_step()),
                  std::to_string(process.records()),
                  std::to_string(process.dropped()),
                  NumberOrUnknown(process.has_lost(), process.lost()),
                  process.reason()});
  }
  return table.Render(StdoutColumns());
}

// Of the newest attempt: every rank with its holder, then others that claim its
// place, then processes that train and have no rank yet.
std::string RanksText(const v1::Run& run) {
  std::string text;
  for (const Place& place : Places(run)) {
    absl::StrAppend(&text, "  rank ", place.rank, ": ",
                    place.process != nullptr
                        ? WhoAndWhy(*place.process)
                        : absl::StrCat(kMissing, " (", kMissingReason, ")\n"));
    // Two processes with one rank may be two trainings under one run id.
    for (const v1::Process* other : place.others) {
      absl::StrAppend(&text, "  also rank ", place.rank, ": ",
                      WhoAndWhy(*other));
    }
  }
  for (const v1::Process& process : run.processes()) {
    if (!WaitsForRank(process)) continue;
    absl::StrAppend(&text, "  no rank yet: ", WhoAndWhy(process));
  }
  return text;
}

}  // namespace traincheck::ctl
