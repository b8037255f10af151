#include "ctl/render/preflight.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "ctl/render/grade.h"
#include "ctl/render/names.h"
#include "ctl/render/run.h"
#include "ctl/render/violation.h"
#include "ctl/text/table.h"

namespace traincheck::ctl {
namespace {

// What a training comes to late, and words of the rules that only it decides.
struct Stage {
  const char* name;
  std::vector<const char*> words;
};

// The texts of rules are searched, because a rule does not say at which stage
// it is decided. A test holds these words against the rules (WordsOfStages).
const std::vector<Stage>& Stages() {
  static const auto* const stages = new std::vector<Stage>{
      {"evaluation", {"in evaluation mode is"}},
      {"the end of an epoch", {"anew in every epoch"}},
      {"saving", {"checkpoint"}},
      {"resuming", {"After load_state_dict", "goes on from"}}};
  return *stages;
}

bool IsAbout(const v1::InvariantVerdict& verdict, const Stage& stage) {
  return std::any_of(stage.words.begin(), stage.words.end(),
                     [&verdict](const char* words) {
                       return absl::StrContains(verdict.text(), words);
                     });
}

std::string Line(const std::string& title, const std::string& text) {
  std::string line = title;
  // Texts begin in column 13; a longer title keeps one space.
  line.resize(std::max<size_t>(line.size() + 1, 13), ' ');
  return absl::StrCat(line, OneLine(text), "\n");
}

std::string StepsText(const v1::Run& run) {
  if (!run.has_last_step()) return "no step was closed";
  // Steps count from 0.
  std::string text = Counted(run.last_step() + 1, "step");
  if (run.world() > 1) {
    absl::StrAppend(&text, " of ", Counted(run.world(), "rank"));
  }
  return text;
}

// "core 9 of 12, loss 2 of 4"; empty without verdicts.
std::string FamiliesText(const PreflightReport& report) {
  std::map<std::string, std::pair<int, int>> counts;
  for (const v1::InvariantVerdict& verdict : report.verdicts) {
    auto& [decided, all] =
        counts[FamilyOf(report, verdict.invariant_id(), verdict.relation())];
    decided += IsDecided(verdict);
    // A rule without occasion says nothing of how well the training was
    // checked.
    all += verdict.verdict() != v1::VERDICT_NO_OCCASION;
  }
  std::vector<std::string> texts;
  for (const auto& [family, count] : counts) {
    // What was not decided at all is listed by reason (UnknownText).
    if (count.first == 0) continue;
    texts.push_back(
        absl::StrCat(family, " ", count.first, " of ", count.second));
  }
  return absl::StrJoin(texts, ", ");
}

std::string CheckedText(const PreflightReport& report) {
  const v1::CheckProgress& check = report.run.check();
  const std::string families = FamiliesText(report);
  return Line("checked",
              absl::StrCat(check.decided(), " of ",
                           Counted(RulesWithOccasion(check), "built-in rule"),
                           families.empty() ? "" : ": ", families));
}

std::string NoOccasionText(const v1::CheckProgress& check) {
  if (check.no_occasion() == 0) return "";
  return Line("no occasion",
              absl::StrCat(Counted(check.no_occasion(), "other rule"),
                           check.no_occasion() == 1
                               ? " does not apply: this training does not use "
                                 "what it checks"
                               : " do not apply: this training does not use "
                                 "what they check"));
}

// The shortest reasons first: they are the plainest.
std::string UnknownText(const v1::CheckProgress& check) {
  std::vector<v1::UnknownReason> reasons(check.unknown().begin(),
                                         check.unknown().end());
  std::stable_sort(reasons.begin(), reasons.end(),
                   [](const auto& a, const auto& b) {
                     return a.reason().size() < b.reason().size();
                   });
  std::string text;
  for (const v1::UnknownReason& unknown : reasons) {
    text += Line(text.empty() ? "not checked" : "",
                 absl::StrCat(unknown.invariants(), ": ", unknown.reason()));
  }
  for (const v1::UnknownReason& unknown : check.partly_unknown()) {
    text += Line(
        text.empty() ? "not checked" : "",
        absl::StrCat(unknown.invariants(), " in part: ", unknown.reason()));
  }
  return text;
}

std::string UndecidedText(const PreflightReport& report) {
  const std::vector<std::string> stages = NotReached(report);
  if (stages.empty()) return "";
  return Line("undecided", absl::StrCat("no rule on these was decided: ",
                                        absl::StrJoin(stages, ", ")));
}

std::string FoundText(const PreflightReport& report) {
  std::vector<std::string> found;
  if (!report.findings.empty()) {
    found.push_back(CountedIncidents(IncidentsOf(report.findings)));
  }
  const size_t wrong = report.probed ? CountDiffering(*report.probed) : 0;
  if (wrong > 0) found.push_back(Counted(wrong, "wrong backward"));
  return Line("found", found.empty() ? "nothing" : absl::StrJoin(found, ", "));
}

// Functions that could not be compared stand here with the reason; those that
// differ are shown as violations.
std::string ProbedText(const PreflightReport& report) {
  if (!report.probed) return "";
  std::string text = Line("probed", ProbesText(*report.probed));
  for (const ProbedFunction& function : *report.probed) {
    if (function.outcome == ProbeOutcome::kNotCompared) {
      text += Line("", absl::StrCat(function.function, ": ", function.reason));
    }
  }
  return text;
}

// In the form of a rule's violation: it fails the preflight like one.
std::string WrongBackwardsText(const PreflightReport& report) {
  std::string text;
  if (!report.probed) return text;
  for (const ProbedFunction& function : *report.probed) {
    if (function.outcome != ProbeOutcome::kDiffers) continue;
    absl::StrAppend(&text, "traincheck: VIOLATION ",
                    OneLine(ProbeHeadline(function)),
                    "\n    what to do: ", ProbeFix(), "\n");
  }
  return text;
}

}  // namespace

void AlertsFirst(std::vector<v1::Violation>* findings) {
  std::stable_sort(findings->begin(), findings->end(),
                   [](const v1::Violation& a, const v1::Violation& b) {
                     return IsOfAlert(a) > IsOfAlert(b);
                   });
}

bool IsDecided(const v1::InvariantVerdict& verdict) {
  // A rule that is decided in some windows counts.
  return verdict.verdict() == v1::VERDICT_PASS ||
         verdict.verdict() == v1::VERDICT_PARTLY ||
         verdict.verdict() == v1::VERDICT_VIOLATED;
}

std::string FamilyOf(const PreflightReport& report, const std::string& rule,
                     const std::string& relation) {
  const auto found = report.families.find(rule);
  return found == report.families.end() ? relation : found->second;
}

std::vector<std::string> WordsOfStages() {
  std::vector<std::string> all;
  for (const Stage& stage : Stages()) {
    all.insert(all.end(), stage.words.begin(), stage.words.end());
  }
  return all;
}

std::vector<std::string> NotReached(const PreflightReport& report) {
  std::vector<std::string> names;
  for (const Stage& stage : Stages()) {
    const bool reached =
        std::any_of(report.verdicts.begin(), report.verdicts.end(),
                    [&stage](const v1::InvariantVerdict& verdict) {
                      return IsDecided(verdict) && IsAbout(verdict, stage);
                    });
    if (!reached) names.push_back(stage.name);
  }
  return names;
}

Json PreflightJson(const PreflightReport& report) {
  const v1::Run& run = report.run;
  Json json;
  json["run"] = run.id();
  json["steps"] = run.has_last_step() ? Json(run.last_step() + 1) : Json();
  json["coverage"] = run.has_check() ? CheckJson(run.check()) : Json();
  json["findings"] = ArrayOf(report.findings, ViolationDetailJson);
  json["incidents"] = ArrayOf(IncidentsOf(report.findings), IncidentJson);
  json["not_reached"] = ArrayOf(NotReached(report));
  json["left_out"] = ArrayOf(report.left_out);
  // The key is absent without --probe: an empty list says that no function was
  // found.
  if (report.probed) json["probed"] = ArrayOf(*report.probed, ProbeJson);
  return json;
}

// Coverage before findings: whether "found nothing" means anything depends on
// what was checked.
std::string PreflightText(const PreflightReport& report) {
  const v1::Run& run = report.run;
  std::string text =
      Line("preflight", absl::StrCat(run.id(), ": ", StepsText(run)));
  text += CheckedText(report) + NoOccasionText(run.check()) +
          UnknownText(run.check());
  if (!report.problem.empty()) text += Line("", report.problem);
  text += UndecidedText(report);
  for (const std::string& rule : report.left_out) text += Line("", rule);
  // The script runs as it is: a user who starts it for a test may not think of
  // the files that it has just written over.
  if (run.has_last_step()) {
    text += Line("written",
                 "files, checkpoints and trackers of the script, as in a real "
                 "run");
  }
  text += ProbedText(report) + FoundText(report) + WrongBackwardsText(report);
  for (const Incident& incident : IncidentsOf(report.findings)) {
    text += IncidentBlock(incident);
  }
  return text;
}

}  // namespace traincheck::ctl
