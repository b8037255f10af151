#include "ctl/render/violation.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "ctl/render/grade.h"
#include "ctl/render/incident.h"
#include "ctl/render/names.h"
#include "ctl/text/table.h"
#include "ctl/text/terminal.h"

namespace traincheck::ctl {
namespace {

// A rule over all parameters must not fill the user's screen.
constexpr size_t kMaxNamesInBlock = 4;
constexpr int kMaxEvidenceInBlock = 6;

std::string Ranks(const v1::Violation& violation) {
  std::vector<int32_t> ranks(violation.ranks().begin(),
                             violation.ranks().end());
  std::sort(ranks.begin(), ranks.end());
  return RankList(ranks);
}

std::string Steps(const v1::Violation& violation) {
  return StepRange(
      NumberOrUnknown(violation.has_first_step(), violation.first_step()),
      NumberOrUnknown(violation.has_last_step(), violation.last_step()));
}

template <typename Names>
std::string FirstNames(const Names& names) {
  const size_t count = static_cast<size_t>(names.size());
  const size_t shown = std::min(count, kMaxNamesInBlock);
  std::string text =
      OneLine(absl::StrJoin(names.begin(), names.begin() + shown, ", "));
  if (shown < count) absl::StrAppend(&text, " and ", count - shown, " more");
  return text;
}

void AppendLine(const std::string& title, const std::string& value,
                std::string* text) {
  if (!value.empty()) {
    absl::StrAppend(text, "    ", title, ": ", OneLine(value), "\n");
  }
}

// Many rules say themselves what is expected.
void AppendExpected(const v1::Violation& violation, std::string* text) {
  if (violation.expected() != violation.text()) {
    AppendLine("expected", violation.expected(), text);
  }
}

// Of the first site.
void AppendCallers(const v1::Violation& violation, std::string* text) {
  AppendLine("called from", absl::StrJoin(violation.callers(), ", "), text);
}

void AppendNotes(const v1::Violation& violation, std::string* text) {
  AppendLine("why nothing fails", violation.why(), text);
  AppendLine("what to do", violation.fix(), text);
  AppendLine("see", violation.reference(), text);
}

std::string Site(const v1::Violation& violation) {
  return violation.sites().empty() ? kUnknown : violation.sites(0);
}

// The headline, or what an older server knows instead.
std::string What(const v1::Violation& violation) {
  if (!violation.headline().empty()) return violation.headline();
  return absl::StrCat(violation.has_first_step()
                          ? absl::StrCat("Since step ", violation.first_step())
                          : "At an unknown step",
                      ": ", violation.text());
}

std::string Indent(size_t depth) {
  return depth == 0 ? "" : std::string(2 * (depth - 1), ' ') + "- ";
}

// Why it is shown, and how to have it shown no more.
void AppendBasis(const v1::Violation& violation, std::string* text) {
  if (violation.basis().empty() || violation.invariant_id().empty()) return;
  const std::string mute =
      IsSilenced(violation)
          ? ""
          : absl::StrCat("; traincheckctl silences add --rule ",
                         violation.invariant_id(), " --comment WHY mutes it");
  AppendLine(
      "shown as",
      absl::StrCat(GradeOf(violation), " of a ", violation.basis(), mute),
      text);
}

// As people are shown it.
const char* ShownGrade(const v1::Violation& violation) {
  return IsSilenced(violation) ? "silenced" : GradeOf(violation);
}

bool IsMarked(const v1::Violation& violation) {
  return !violation.mark().empty();
}

}  // namespace

Json ViolationRowJson(const v1::Violation& violation) {
  Json json;
  json["id"] = violation.id();
  json["run"] = violation.run();
  json["attempt"] = violation.attempt();
  json["invariant_id"] = violation.invariant_id();
  json["relation"] = violation.relation();
  json["text"] = violation.text();
  json["grade"] = GradeOf(violation);
  json["first_step"] =
      violation.has_first_step() ? Json(violation.first_step()) : Json();
  json["last_step"] =
      violation.has_last_step() ? Json(violation.last_step()) : Json();
  json["count"] = violation.count();
  json["ranks"] = ArrayOf(violation.ranks());
  json["apis"] = ArrayOf(violation.apis());
  json["variables"] = ArrayOf(violation.variables());
  json["sites"] = ArrayOf(violation.sites());
  json["status"] = TextOrNull(violation.status());
  json["incident"] = TextOrNull(violation.incident());
  json["first_seen"] = TimeOrNull(violation.first_seen_unix_ns());
  json["seen"] = TextOrNull(violation.seen());
  json["headline"] = TextOrNull(violation.headline());
  json["cause"] = TextOrNull(violation.cause());
  json["incident_grade"] = IncidentGradeOf(violation);
  json["rung"] = TextOrNull(violation.rung());
  json["mark"] = TextOrNull(violation.mark());
  json["mark_comment"] = TextOrNull(violation.mark_comment());
  json["silenced_by"] = TextOrNull(violation.silenced_by());
  return json;
}

Json ViolationDetailJson(const v1::Violation& violation) {
  Json json = ViolationRowJson(violation);
  json["expected"] = TextOrNull(violation.expected());
  json["called_from"] = ArrayOf(violation.callers());
  json["evidence"] = ArrayOf(violation.evidence());
  json["why"] = TextOrNull(violation.why());
  json["fix"] = TextOrNull(violation.fix());
  json["reference"] = TextOrNull(violation.reference());
  json["basis"] = TextOrNull(violation.basis());
  return json;
}

std::string ViolationsTable(const std::vector<v1::Violation>& violations) {
  const bool marks =
      std::any_of(violations.begin(), violations.end(), IsMarked);
  std::vector<Column> columns = {{"ID"},
                                 {"RUN"},
                                 {"STATUS"},
                                 {"GRADE"},
                                 {"STEPS", Align::kRight},
                                 {"COUNT", Align::kRight},
                                 {"FIRST SEEN"},
                                 {"RANKS"},
                                 {"RELATION"},
                                 {"SITE"},
                                 {"WHAT"}};
  if (marks) columns.insert(columns.begin() + 4, {"MARK"});
  Table table(columns);
  for (const Incident& incident : IncidentsOf(violations)) {
    for (const auto& [violation, depth] : incident.members) {
      std::vector<std::string> row = {
          violation.id(),
          violation.run(),
          TextOrUnknown(violation.status()),
          ShownGrade(violation),
          Steps(violation),
          std::to_string(violation.count()),
          TimeOrUnknown(violation.first_seen_unix_ns()),
          Ranks(violation),
          violation.relation(),
          Site(violation),
          Indent(depth) + What(violation)};
      if (marks) row.insert(row.begin() + 4, TextOrUnknown(violation.mark()));
      table.AddRow(row);
    }
  }
  return table.Render(StdoutColumns());
}

std::string ViolationDetailText(const v1::Violation& violation) {
  std::string text = absl::StrCat("violation ", OneLine(violation.id()), "\n");
  AppendLine("rule", violation.text(), &text);
  AppendExpected(violation, &text);
  AppendLine("seen", violation.seen(), &text);
  for (const std::string& line : violation.evidence()) {
    AppendLine("evidence", line, &text);
  }
  AppendNotes(violation, &text);
  AppendLine("relation", violation.relation(), &text);
  AppendLine("invariant", violation.invariant_id(), &text);
  AppendLine("run",
             absl::StrCat(violation.run(), ", attempt ", violation.attempt()),
             &text);
  AppendLine("ranks", Ranks(violation), &text);
  AppendLine("steps", Steps(violation), &text);
  AppendLine("count", absl::StrCat(violation.count(), " windows"), &text);
  AppendLine("status", violation.status(), &text);
  AppendLine("grade", GradeOf(violation), &text);
  AppendBasis(violation, &text);
  AppendLine("first seen", TimeOrUnknown(violation.first_seen_unix_ns()),
             &text);
  AppendLine("variables", absl::StrJoin(violation.variables(), ", "), &text);
  AppendLine("calls", absl::StrJoin(violation.apis(), ", "), &text);
  AppendLine("sites", absl::StrJoin(violation.sites(), ", "), &text);
  AppendCallers(violation, &text);
  return text;
}

std::string IncidentText(const Incident& incident) {
  const v1::Violation& lead = incident.lead();
  std::string text =
      absl::StrCat("incident ", OneLine(lead.id()), ", ",
                   IsSilenced(lead) ? "silenced" : IncidentGradeOf(lead),
                   "\n  ", ViolationHeadline(lead), "\n");
  if (incident.members.size() > 1) {
    absl::StrAppend(&text, "    what follows from it:\n",
                    ConsequencesText(incident));
  }
  return text + ViolationDetailText(lead);
}

std::string ViolationHeadline(const v1::Violation& violation) {
  std::string line = absl::StrCat(
      What(violation), " (", violation.ranks_size() == 1 ? "rank " : "ranks ",
      Ranks(violation));
  if (!violation.sites().empty()) {
    absl::StrAppend(&line, ", ", violation.sites(0));
  }
  return OneLine(line) + ")";
}

std::string ViolationLine(const v1::Violation& violation) {
  return absl::StrCat(TimeOrUnknown(violation.first_seen_unix_ns()), " ",
                      OneLine(violation.id()), " ", OneLine(violation.run()),
                      " ", IncidentGradeOf(violation), " ",
                      ViolationHeadline(violation), "\n");
}

std::string ViolationBlock(const v1::Violation& violation) {
  std::string text = absl::StrCat(
      "traincheck: ", IsOfAlert(violation) ? "VIOLATION " : "advice ",
      ViolationHeadline(violation), "\n");
  AppendLine("rule", violation.text(), &text);
  AppendExpected(violation, &text);
  AppendLine("seen", violation.seen(), &text);
  AppendLine("variables", FirstNames(violation.variables()), &text);
  AppendCallers(violation, &text);
  const int shown = std::min(violation.evidence_size(), kMaxEvidenceInBlock);
  for (int i = 0; i < shown; ++i) {
    AppendLine("evidence", violation.evidence(i), &text);
  }
  if (shown < violation.evidence_size()) {
    AppendLine("evidence",
               absl::StrCat("and ", violation.evidence_size() - shown,
                            " more lines: violations show"),
               &text);
  }
  AppendLine("why nothing fails", violation.why(), &text);
  AppendLine("what to do", violation.fix(), &text);
  AppendBasis(violation, &text);
  return text;
}

std::string IncidentBlock(const Incident& incident) {
  std::string text = ViolationBlock(incident.lead());
  if (incident.members.size() > 1) {
    absl::StrAppend(&text, "    what follows from it:\n",
                    ConsequencesText(incident));
  }
  return text;
}

}  // namespace traincheck::ctl
