#include "ctl/render/process.h"

#include <algorithm>
#include <map>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ctl/render/names.h"
#include "ctl/text/table.h"

namespace traincheck::ctl {
namespace {

constexpr char kMissing[] = "missing";
constexpr char kMissingReason[] =
    "no process of this rank has reached the server: not started yet, started "
    "without the agent, or its relay is gone";

Json LostOf(const v1::Process& process) {
  return process.has_lost() ? Json(process.lost()) : Json();
}

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
};

// Places of the newest attempt, by rank. Of two processes that claimed one
// place the one that holds it, the first, is shown.
std::vector<Place> Places(const v1::Run& run) {
  uint32_t newest = 0;
  for (const v1::Process& process : run.processes()) {
    if (process.has_rank()) newest = std::max(newest, process.attempt());
  }
  std::map<int32_t, const v1::Process*> by_rank;
  for (const v1::Process& process : run.processes()) {
    if (!process.has_rank() || process.attempt() != newest) continue;
    by_rank.emplace(process.rank(), &process);
  }
  for (uint32_t rank = 0; rank < run.world(); ++rank) {
    by_rank.emplace(static_cast<int32_t>(rank), nullptr);
  }
  std::vector<Place> places;
  for (const auto& [rank, process] : by_rank) places.push_back({rank, process});
  return places;
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
  return json;
}

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
  json["worker_id"] = identity.kind() == v1::PROCESS_KIND_WORKER
                          ? Json(identity.worker_id())
                          : Json();
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

std::string ProcessesTable(const v1::Run& run) {
  Table table({{"RANK", Align::kRight},
               {"PID", Align::kRight},
               {"HOST"},
               {"KIND"},
               {"STATE"},
               {"LAST STEP", Align::kRight},
               {"RECORDS", Align::kRight},
               {"DROPPED", Align::kRight},
               {"LOST", Align::kRight},
               {"REASON"}});
  for (const v1::Process& process : run.processes()) {
    table.AddRow({NumberOrUnknown(process.has_rank(), process.rank()),
                  std::to_string(process.identity().pid()),
                  TextOrUnknown(process.identity().host()), KindText(process),
                  TextOrUnknown(StateName(process.state())),
                  NumberOrUnknown(process.has_last_step(), process.last_step()),
                  std::to_string(process.records()),
                  std::to_string(process.dropped()),
                  NumberOrUnknown(process.has_lost(), process.lost()),
                  process.reason()});
  }
  return table.Render();
}

std::string RanksText(const v1::Run& run) {
  std::string text;
  for (const Place& place : Places(run)) {
    const v1::Process* process = place.process;
    if (process == nullptr) {
      absl::StrAppend(&text, "  rank ", place.rank, ": ", kMissing, " (",
                      kMissingReason, ")\n");
      continue;
    }
    absl::StrAppend(
        &text, "  rank ", place.rank, ": ",
        TextOrUnknown(StateName(process->state())), ", pid ",
        process->identity().pid(), " on ",
        TextOrUnknown(OneLine(process->identity().host())), ", records ",
        process->records(), ", dropped ", process->dropped(), ", lost ",
        NumberOrUnknown(process->has_lost(), process->lost()),
        process->reason().empty() ? ""
                                  : " (" + OneLine(process->reason()) + ")",
        "\n");
  }
  return text;
}

}  // namespace traincheck::ctl
