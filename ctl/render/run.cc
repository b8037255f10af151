#include "ctl/render/run.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "ctl/render/names.h"
#include "ctl/render/process.h"
#include "ctl/text/table.h"
#include "ctl/text/terminal.h"

namespace traincheck::ctl {
namespace {

Json UnknownJson(const v1::UnknownReason& unknown) {
  Json json;
  json["reason"] = unknown.reason();
  json["invariants"] = unknown.invariants();
  return json;
}

// A rank of the world of which the daemon has no process, and why it thinks so.
Json MissingJson(const v1::MissingRank& missing) {
  Json json;
  json["attempt"] = missing.attempt();
  json["rank"] = missing.rank();
  json["reason"] = TextOrNull(missing.reason());
  return json;
}

// A line for each attempt and reason.
std::string MissingText(const v1::Run& run) {
  std::map<std::pair<uint32_t, std::string>, std::string> ranks;
  for (const v1::MissingRank& missing : run.missing()) {
    // A start that failed as a whole misses a thousand ranks for one reason.
    std::string& list = ranks[{missing.attempt(), missing.reason()}];
    absl::StrAppend(&list, list.empty() ? "" : ", ", missing.rank());
  }
  std::string text;
  for (const auto& [why, list] : ranks) {
    absl::StrAppend(&text, "\nmissing      rank ", list, " of attempt ",
                    why.first, ": ", OneLine(why.second));
  }
  return text;
}

// Over all ranks; unknown until one of them has closed a step.
std::string Steps(const v1::Run& run) {
  return StepRange(NumberOrUnknown(run.has_first_step(), run.first_step()),
                   NumberOrUnknown(run.has_last_step(), run.last_step()));
}

}  // namespace

// What the training never does says nothing of how well it was checked, so such
// rules are left out of the share.
uint32_t RulesWithOccasion(const v1::CheckProgress& check) {
  return check.total() - std::min(check.total(), check.no_occasion());
}

Json CheckJson(const v1::CheckProgress& check) {
  Json json;
  json["caught_up"] = check.caught_up();
  json["finished"] = check.finished();
  json["decided"] = check.decided();
  json["total"] = check.total();
  json["violated"] = check.violated();
  json["not_applied"] = check.not_applied();
  json["no_occasion"] = check.no_occasion();
  json["unchecked_processes"] = ArrayOf(check.unchecked_processes());
  json["unknown"] = ArrayOf(check.unknown(), UnknownJson);
  json["partly_unknown"] = ArrayOf(check.partly_unknown(), UnknownJson);
  json["error"] = TextOrNull(check.error());
  return json;
}

std::string CheckText(const v1::CheckProgress& check) {
  // The numbers of a check that failed would read like those of one that
  // passed.
  if (!check.error().empty()) return "not checked: " + check.error();
  std::string text =
      absl::StrCat(check.violated(), " violated, ", check.decided(), "/",
                   RulesWithOccasion(check), " decided, ", check.no_occasion(),
                   " without occasion, ", check.not_applied(), " not applied",
                   // Finished: nothing more can come. Up to date: what has
                   // arrived is judged.
                   check.finished()    ? ", finished"
                   : check.caught_up() ? ", up to date"
                                       : ", catching up");
  for (const v1::UnknownReason& unknown : check.unknown()) {
    absl::StrAppend(&text, "\n             ",
                    Counted(unknown.invariants(), "rule"),
                    " undecided: ", OneLine(unknown.reason()));
  }
  for (const v1::UnknownReason& unknown : check.partly_unknown()) {
    absl::StrAppend(&text, "\n             ",
                    Counted(unknown.invariants(), "rule"),
                    " undecided in some windows: ", OneLine(unknown.reason()));
  }
  return text;
}

Json RunRowJson(const v1::Run& run) {
  Json json;
  json["id"] = run.id();
  json["experiment"] = TextOrNull(run.experiment());
  json["role"] = TextOrNull(RoleName(run.role()));
  json["status"] = TextOrNull(StatusName(run.status()));
  json["started"] = TimeOrNull(run.started_unix_ns());
  json["ended"] = TimeOrNull(run.ended_unix_ns());
  json["attempts"] = run.attempts();
  // 0: no process has named a size.
  json["world"] = run.world() == 0 ? Json() : Json(run.world());
  json["first_step"] = run.has_first_step() ? Json(run.first_step()) : Json();
  json["last_step"] = run.has_last_step() ? Json(run.last_step()) : Json();
  json["records"] = run.records();
  json["dropped"] = run.dropped();
  json["lost"] = run.lost();
  return json;
}

Json RunDetailJson(const v1::Run& run) {
  Json json = RunRowJson(run);
  json["check_set"] = TextOrNull(run.check_set());
  json["processes"] = ArrayOf(ByPlace(run), ProcessJson);
  json["missing"] = ArrayOf(run.missing(), MissingJson);
  json["check"] = run.has_check() ? CheckJson(run.check()) : Json();
  json["stored_bytes"] = run.stored_bytes();
  json["quarantined_batches"] = run.quarantined_batches();
  json["kept"] = run.kept();
  json["owner"] = TextOrNull(run.owner());
  json["records_deleted"] = TimeOrNull(run.records_deleted_unix_ns());
  return json;
}

std::string RunsTable(const std::vector<v1::Run>& runs) {
  Table table({{"ID"},
               {"EXPERIMENT"},
               {"ROLE"},
               {"STATUS"},
               {"STARTED"},
               {"WORLD", Align::kRight},
               {"STEPS", Align::kRight},
               {"RECORDS", Align::kRight},
               {"DROPPED", Align::kRight},
               {"LOST", Align::kRight}});
  for (const v1::Run& run : runs) {
    table.AddRow({run.id(), TextOrUnknown(run.experiment()),
                  TextOrUnknown(RoleName(run.role())),
                  TextOrUnknown(StatusName(run.status())),
                  TimeOrUnknown(run.started_unix_ns()),
                  NumberOrUnknown(run.world() != 0, run.world()), Steps(run),
                  std::to_string(run.records()), std::to_string(run.dropped()),
                  std::to_string(run.lost())});
  }
  return table.Render(StdoutColumns());
}

// Lines that most runs do not need (owner, quarantine, retention) are there
// only if they say something.
std::string RunDetailText(const v1::Run& run) {
  std::string text = absl::StrCat(
      "run          ", OneLine(run.id()), "\nexperiment   ",
      TextOrUnknown(OneLine(run.experiment())), "\nrole         ",
      TextOrUnknown(RoleName(run.role())), "\nstatus       ",
      TextOrUnknown(StatusName(run.status())), "\nstarted      ",
      TimeOrUnknown(run.started_unix_ns()), "\nended        ",
      TimeOrUnknown(run.ended_unix_ns()), "\nattempts     ", run.attempts());
  absl::StrAppend(
      &text, "\nworld        ", NumberOrUnknown(run.world() != 0, run.world()),
      "\nsteps        ", Steps(run), "\nrecords      ", run.records(),
      " (dropped ", run.dropped(), ", lost ", run.lost(), ")\nstored       ",
      run.stored_bytes(), " bytes", MissingText(run));
  // Empty: the run belongs to the administrators, as all do without tokens.
  if (!run.owner().empty()) {
    absl::StrAppend(&text, "\nowner        ", OneLine(run.owner()));
  }
  if (run.quarantined_batches() > 0) {
    absl::StrAppend(&text, "\nquarantined  ", run.quarantined_batches(),
                    " batches that could not be decoded");
  }
  // Deletion outweighs the wish to keep the run: there is nothing left to keep.
  if (run.records_deleted_unix_ns() != 0) {
    absl::StrAppend(&text, "\nretention    deleted the records ",
                    TimeOrUnknown(run.records_deleted_unix_ns()));
  } else if (run.kept()) {
    absl::StrAppend(&text, "\nretention    kept");
  }
  absl::StrAppend(&text, "\nchecked by   ",
                  TextOrUnknown(OneLine(run.check_set())));
  if (run.has_check()) {
    absl::StrAppend(&text, "\nverdict      ", CheckText(run.check()));
  }
  return text + "\n\n" + ProcessesTable(run);
}

}  // namespace traincheck::ctl
