#include "ctl/render/zoom.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ctl/render/names.h"
#include "ctl/text/table.h"
#include "ctl/text/terminal.h"

namespace traincheck::ctl {
namespace {

bool IsComplete(const v1::ZoomReport& report) {
  return std::all_of(report.ranks().begin(), report.ranks().end(),
                     [](const v1::ZoomedRank& rank) { return rank.over(); });
}

// "4 steps on 2 ranks", "3 to 4 steps on 2 ranks"
std::string StepsText(const v1::ZoomReport& report) {
  uint64_t least = UINT64_MAX, most = 0;
  for (const v1::ZoomedRank& rank : report.ranks()) {
    least = std::min(least, rank.steps());
    most = std::max(most, rank.steps());
  }
  const std::string ranks =
      absl::StrCat(" on ", Counted(report.ranks_size(), "rank"));
  if (least == most) return absl::StrCat(Counted(most, "step"), ranks);
  return absl::StrCat(least, " to ", most, " steps", ranks);
}

std::string HeadText(const v1::ZoomReport& report) {
  std::string text = absl::StrCat("    a closer look, plan version ",
                                  report.plan_version(), ": ");
  // Nothing was recorded in full, and this is the reason.
  if (!report.unavailable().empty()) {
    return absl::StrCat(text, OneLine(report.unavailable()), "\n");
  }
  // As far as their records have arrived, no rank has come to that step.
  if (report.ranks().empty()) {
    return absl::StrCat(text, "no rank has begun it; it applies from step ",
                        report.from_step(), " on\n");
  }
  return absl::StrCat(text, StepsText(report), " recorded in full",
                      IsComplete(report) ? "" : ", and it goes on", "\n");
}

// What was seen is the daemon's text, with names from the training in it.
std::string ObservationText(const v1::ZoomObservation& observation) {
  const std::vector<int32_t> ranks(observation.ranks().begin(),
                                   observation.ranks().end());
  return absl::StrCat("      - ", OneLine(observation.what()), " (steps ",
                      observation.first_step(), "-", observation.last_step(),
                      ", ranks ", RankList(ranks),
                      "): ", OneLine(observation.seen()), "\n");
}

}  // namespace

std::string ZoomText(const v1::ZoomReport& report) {
  // Nobody has asked the ranks for more about this incident.
  if (report.plan_version() == 0) return "";
  std::string text = HeadText(report);
  for (const v1::ZoomedRank& rank : report.ranks()) {
    // Where records of a rank are missing, what was observed may not be all.
    if (rank.missing().empty()) continue;
    absl::StrAppend(&text, "      - records of rank ", rank.rank(),
                    " are missing: ", OneLine(rank.missing()), "\n");
  }
  for (const v1::ZoomObservation& observation : report.observations()) {
    absl::StrAppend(&text, ObservationText(observation));
  }
  return text;
}

Json ZoomJson(const v1::ZoomReport& report) {
  if (report.plan_version() == 0) return Json();
  Json json;
  json["plan_version"] = report.plan_version();
  json["from_step"] = report.from_step();
  json["ranks"] = ArrayOf(report.ranks(), [](const v1::ZoomedRank& rank) {
    Json row;
    row["rank"] = rank.rank();
    row["steps"] = rank.steps();
    row["over"] = rank.over();
    row["missing"] = TextOrNull(rank.missing());
    return row;
  });
  json["observations"] =
      ArrayOf(report.observations(), [](const v1::ZoomObservation& seen) {
        Json row;
        row["what"] = seen.what();
        row["ranks"] = ArrayOf(seen.ranks());
        row["first_step"] = seen.first_step();
        row["last_step"] = seen.last_step();
        row["seen"] = seen.seen();
        return row;
      });
  json["unavailable"] = TextOrNull(report.unavailable());
  return json;
}

}  // namespace traincheck::ctl
