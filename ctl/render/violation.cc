#include "ctl/render/violation.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
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
// Ranks that compare values name the lines that wrote them.
constexpr char kComparison[] = "Consistent";

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

// `run` prints its blocks between the lines of a training, so they are cut, and
// the last line says where the rest is.
void AppendEvidence(const v1::Violation& violation, bool whole,
                    std::string* text) {
  const int all = violation.evidence_size();
  const int shown = whole ? all : std::min(all, kMaxEvidenceInBlock);
  for (int i = 0; i < shown; ++i) {
    AppendLine("evidence", violation.evidence(i), text);
  }
  if (shown == all) return;
  AppendLine(
      "evidence",
      absl::StrCat("... and ", all - shown,
                   " more: traincheckctl violations show ", violation.id()),
      text);
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

// Is this the line of the call that made it what it is, and not the line where
// that was seen?
bool IsWritten(const v1::Violation& violation, const std::string& site) {
  // On these two rungs the sites are those of the calls that wrote what
  // differs.
  if (violation.relation() == kComparison) {
    return violation.rung() == "gradient" || violation.rung() == "replicas";
  }
  // A call that a rule blames stands in its evidence: "the optimizer was made
  // by torch.optim.SGD at train.py:7".
  return std::any_of(violation.evidence().begin(), violation.evidence().end(),
                     [end = " at " + site](const std::string& line) {
                       return absl::EndsWith(line, end);
                     });
}

// The two kinds are shown under different titles: one line is to be mended, the
// other is where the mistake was noticed.
std::vector<std::string> Sites(const v1::Violation& violation, bool written) {
  std::vector<std::string> sites;
  for (const std::string& site : violation.sites()) {
    if (IsWritten(violation, site) == written) sites.push_back(site);
  }
  return sites;
}

template <typename Names>
std::string NamesText(const Names& names, bool whole) {
  return whole ? OneLine(absl::StrJoin(names, ", ")) : FirstNames(names);
}

// Where it was made wrong, then where it was seen. Callers are those of the
// first site.
void AppendSites(const v1::Violation& violation, bool whole,
                 std::string* text) {
  const std::string callers = absl::StrJoin(violation.callers(), ", ");
  const std::vector<std::string> written = Sites(violation, true);
  AppendLine("written at", NamesText(written, whole), text);
  if (!written.empty()) AppendLine("called from", callers, text);
  AppendLine("seen at", NamesText(Sites(violation, false), whole), text);
  if (written.empty()) AppendLine("called from", callers, text);
}

// "- " before what follows from another one, "+ " before what was found beside
// the lead.
// The tree of an incident within the last column of a table.
std::string Indent(const IncidentMember& member) {
  if (member.depth == 0) return "";
  const bool follows = member.depth > 1 || !member.beside;
  return std::string(2 * (member.depth - 1), ' ') + (follows ? "- " : "+ ");
}

// Why it is shown, and how to have it shown no more; "": an older server does
// not say.
std::string BasisText(const v1::Violation& violation) {
  if (violation.basis().empty() || violation.invariant_id().empty()) return "";
  const std::string mute =
      IsSilenced(violation)
          ? ""
          : absl::StrCat("; traincheckctl silences add --rule ",
                         violation.invariant_id(), " --comment WHY mutes it");
  return absl::StrCat(GradeOf(violation), " of a ", violation.basis(), mute);
}

// What people read of a violation, in the order in which they ask: where, what
// was expected and what was seen, what else is wrong, why nothing failed, what
// to do, how sure that is. `whole`: however long.
std::string AccountText(const v1::Violation& violation, bool whole,
                        const ShownBeside& beside, const std::string& others) {
  std::string text;
  AppendSites(violation, whole, &text);
  AppendLine("rule", violation.text(), &text);
  AppendExpected(violation, &text);
  AppendLine("seen", violation.seen(), &text);
  AppendLine("variables", NamesText(violation.variables(), whole), &text);
  AppendEvidence(violation, whole, &text);
  text += beside.closer_look + others;
  AppendLine("why nothing fails", violation.why(), &text);
  AppendLine("what to do", violation.fix(), &text);
  if (whole) AppendLine("see", violation.reference(), &text);
  text += beside.how_sure;
  AppendLine("shown as", BasisText(violation), &text);
  return text + beside.feedback;
}

// What identifies the violation, as opposed to what explains it (AccountText).
std::string RecordText(const v1::Violation& violation) {
  std::string text;
  AppendLine("relation", violation.relation(), &text);
  AppendLine("invariant", violation.invariant_id(), &text);
  AppendLine("run",
             absl::StrCat(violation.run(), ", attempt ", violation.attempt()),
             &text);
  AppendLine("ranks", Ranks(violation), &text);
  AppendLine("steps", Steps(violation), &text);
  // A window is one occasion at which the rule was judged.
  AppendLine("count", absl::StrCat(violation.count(), " windows"), &text);
  AppendLine("status", violation.status(), &text);
  AppendLine("grade", GradeOf(violation), &text);
  AppendLine("first seen", TimeOrUnknown(violation.first_seen_unix_ns()),
             &text);
  AppendLine("calls", absl::StrJoin(violation.apis(), ", "), &text);
  return text;
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
  json["basis"] = TextOrNull(violation.basis());
  return json;
}

Json ViolationDetailJson(const v1::Violation& violation) {
  Json json = ViolationRowJson(violation);
  json["expected"] = TextOrNull(violation.expected());
  json["written_at"] = ArrayOf(Sites(violation, /*written=*/true));
  json["called_from"] = ArrayOf(violation.callers());
  json["evidence"] = ArrayOf(violation.evidence());
  json["why"] = TextOrNull(violation.why());
  json["fix"] = TextOrNull(violation.fix());
  json["reference"] = TextOrNull(violation.reference());
  return json;
}

void AddOthers(const Incident& incident, Json* json) {
  Json follows = Json::array(), beside = Json::array();
  for (const IncidentMember& member : incident.members) {
    if (member.depth == 0) continue;
    (member.beside ? beside : follows)
        .push_back(ViolationRowJson(member.violation));
  }
  (*json)["follows"] = std::move(follows);
  (*json)["beside"] = std::move(beside);
}

Json IncidentJson(const Incident& incident) {
  Json json = ViolationRowJson(incident.lead());
  AddOthers(incident, &json);
  return json;
}

std::string ViolationsTable(const std::vector<v1::Violation>& violations) {
  // Most lists have no marks, and a column of dashes would take their place.
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
  // Behind GRADE, and so in the rows below.
  if (marks) columns.insert(columns.begin() + 4, {"MARK"});
  Table table(columns);
  for (const Incident& incident : IncidentsOf(violations)) {
    for (const IncidentMember& member : incident.members) {
      const v1::Violation& violation = member.violation;
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
          Indent(member) + What(violation)};
      if (marks) row.insert(row.begin() + 4, TextOrUnknown(violation.mark()));
      table.AddRow(row);
    }
  }
  return table.Render(StdoutColumns());
}

std::string ViolationDetailText(const v1::Violation& violation,
                                const ShownBeside& beside) {
  return absl::StrCat(
      "violation ", OneLine(violation.id()), ", ", ShownGrade(violation),
      "\n  ", ViolationHeadline(violation), "\n",
      AccountText(violation, /*whole=*/true, beside, /*others=*/""),
      RecordText(violation));
}

std::string IncidentText(const Incident& incident, const ShownBeside& beside) {
  const v1::Violation& lead = incident.lead();
  return absl::StrCat(
      "incident ", OneLine(lead.id()), ", ",
      IsSilenced(lead) ? "silenced" : IncidentGradeOf(lead), "\n  ",
      ViolationHeadline(lead), "\n",
      AccountText(lead, /*whole=*/true, beside, OthersText(incident)),
      RecordText(lead));
}

// With ranks and the first site: in lists the headline stands without the lines
// below it.
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
  const std::string basis = OneLine(BasisText(violation));
  return absl::StrCat(TimeOrUnknown(violation.first_seen_unix_ns()), " ",
                      OneLine(violation.id()), " ", OneLine(violation.run()),
                      " ", IncidentGradeOf(violation), " ",
                      ViolationHeadline(violation),
                      basis.empty() ? "" : " [" + basis + "]", "\n");
}

std::string ViolationBlock(const v1::Violation& violation) {
  // An incident of one, so that both kinds of blocks read alike.
  return IncidentBlock({.members = {{violation}}});
}

std::string IncidentBlock(const Incident& incident) {
  const v1::Violation& lead = incident.lead();
  return absl::StrCat(
      "traincheck: ", IsOfAlert(lead) ? "VIOLATION " : "advice ",
      ViolationHeadline(lead), "\n",
      AccountText(lead, /*whole=*/false, {}, OthersText(incident)));
}

}  // namespace traincheck::ctl
