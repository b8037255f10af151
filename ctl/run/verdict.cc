#include "ctl/run/verdict.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "ctl/render/incident.h"
#include "ctl/render/names.h"
#include "ctl/render/run.h"
#include "ctl/render/violation.h"
#include "ctl/run/left_out.h"
#include "ctl/text/shell_quote.h"
#include "ctl/text/table.h"

namespace traincheck::ctl {
namespace {

constexpr char kPrefix[] = "traincheck: ";
// More do not help: `violations list` has them all.
constexpr size_t kMaxIncidents = 10;

// One line whatever the text: it may come from the server or from names in the
// user's program.
std::string Line(const std::string& text) {
  return absl::StrCat(kPrefix, OneLine(text), "\n");
}

std::string Indented(const std::string& text) { return Line("  " + text); }

std::string RecordsText(const v1::Run& run) {
  // Dropped: the agent had no room for the record. Lost: a record that was
  // written never reached the store (docs/reliability.md).
  return absl::StrCat(Counted(run.records(), "record"), ", ", run.dropped(),
                      " dropped, ", run.lost(), " lost");
}

// What becomes of a run that was to be checked and was not.
std::string NotChecked(const std::string& why) {
  return Line(absl::StrCat("NOTHING CHECKED: ", why));
}

// Causes that the agent itself cannot report, because it was never loaded.
std::string WhyNoRecordsText() {
  return Indented(
             "was it a Python program that imports torch, and did the agent's "
             "environment reach it?") +
         Indented(
             "env -i, sudo, docker run and srun --export=NONE clear it; "
             "TRAINCHECK_DISABLE=1 switches the agent off") +
         Indented("records that were spooled arrive later");
}

// Nothing of the run can be shown: why, and what becomes of its records.
std::string NothingText(const VerdictInput& input) {
  std::string what, advice;
  if (absl::IsNotFound(input.drain.status)) {
    what = "no records reached the server";
    advice = WhyNoRecordsText();
  } else if (absl::IsUnavailable(input.drain.status)) {
    what = "the server does not answer";
    advice = Indented("what was recorded is spooled and sent later");
  } else {
    what = absl::StrCat("the server says: ", input.drain.status.message());
  }
  what = absl::StrCat("run ", input.run, ": ", what);
  // Loud only where something was to be checked.
  return (input.check_set.empty() ? Line(what) : NotChecked(what)) + advice;
}

std::string Headline(const VerdictInput& input,
                     const std::vector<Incident>& incidents) {
  const v1::CheckProgress& check = input.drain.run->check();
  const std::string what = absl::StrCat(
      "run ", input.run, " against ", SelectionInWords(input.check_set), ": ");
  if (!input.drain.run->has_check()) {
    return NotChecked(what + "the run arrived without its set");
  }
  if (!check.error().empty()) return NotChecked(what + check.error());
  const char* const so_far =
      input.drain.finished ? "" : " so far (the check has not finished)";
  // Without these words a run of which nothing was decided would read like one
  // without an incident.
  if (check.decided() == 0 && input.violations.empty()) {
    return NotChecked(absl::StrCat(what, "none of ",
                                   Counted(check.total(), "invariant"),
                                   " was decided", so_far));
  }
  return Line(absl::StrCat(what, CountedIncidents(incidents), so_far));
}

std::vector<Incident> AlertsFirst(
    const std::vector<v1::Violation>& violations) {
  std::vector<Incident> incidents = IncidentsOf(violations);
  // The order of the server stays within alerts and within advice.
  std::stable_partition(
      incidents.begin(), incidents.end(),
      [](const Incident& incident) { return IsOfAlert(incident.lead()); });
  return incidents;
}

std::string IncidentLines(const std::vector<Incident>& incidents) {
  const size_t shown = std::min(incidents.size(), kMaxIncidents);
  std::string text;
  for (size_t i = 0; i < shown; ++i) {
    const Incident& incident = incidents[i];
    const std::string others = CountedOthers(incident);
    text += Indented(absl::StrCat(IncidentGradeOf(incident.lead()), " ",
                                  ViolationHeadline(incident.lead()),
                                  others.empty() ? "" : "; ", others));
  }
  if (shown < incidents.size()) {
    text += Indented(absl::StrCat("and ", incidents.size() - shown, " more"));
  }
  return text;
}

std::string CoverageText(const v1::CheckProgress& check,
                         const std::string& left_aside) {
  // Of the rules that the training gave an occasion; the others are counted
  // apart below.
  const uint32_t all = RulesWithOccasion(check);
  const double share = all == 0 ? 0 : 100.0 * check.decided() / all;
  std::string text = Indented(
      absl::StrFormat("coverage %d/%d rules decided (%.0f%%), %d violated",
                      check.decided(), all, share, check.violated()));
  // Not among the undecided: nothing is missing here.
  if (check.no_occasion() > 0) {
    text += Indented(absl::StrCat(
        Counted(check.no_occasion(), "rule"),
        check.no_occasion() == 1
            ? " does not apply: this training does not use what it checks"
            : " do not apply: this training does not use what they check"));
  }
  if (check.not_applied() > 0) {
    text += Indented(absl::StrCat("not applied ", check.not_applied(),
                                  " (rules of another experiment)"));
  }
  if (!left_aside.empty()) text += Indented(left_aside);
  for (const v1::UnknownReason& unknown : check.unknown()) {
    text += Indented(absl::StrCat(Counted(unknown.invariants(), "rule"),
                                  " undecided: ", unknown.reason()));
  }
  // These rules are decided as well: only some of their windows are not.
  for (const v1::UnknownReason& unknown : check.partly_unknown()) {
    text += Indented(
        absl::StrCat(Counted(unknown.invariants(), "rule"),
                     " undecided in some windows: ", unknown.reason()));
  }
  return text;
}

std::string SilencedLine(const VerdictInput& input, size_t silenced) {
  const std::string text = SilencedText(
      silenced, absl::StrCat(input.ctl, " violations list --all --run ",
                             ShellQuote(input.run)));
  return text.empty() ? "" : Indented(text);
}

// By commands that can be copied: with the server, where this shell would reach
// another one, and ids in quotes.
// The last lines on the screen: where to look next.
std::string NextCommands(const VerdictInput& input,
                         const std::vector<Incident>& incidents) {
  const std::string run = ShellQuote(input.run);
  if (incidents.empty()) {
    return Indented(absl::StrCat(input.ctl, " runs show ", run));
  }
  return Indented(absl::StrCat(input.ctl, " violations list --run ", run)) +
         Indented(absl::StrCat(input.ctl, " violations show ",
                               ShellQuote(incidents[0].lead().id()))) +
         Indented(absl::StrCat(input.ctl, " runs show ", run));
}

}  // namespace

// The headline, the incidents, how much was checked, what was left out, and
// what to type next.
std::string VerdictText(const VerdictInput& input) {
  if (!input.drain.run) return NothingText(input);
  const v1::Run& run = *input.drain.run;
  // Nothing was to be checked, so what was recorded is the whole result.
  if (input.check_set.empty()) {
    std::string text =
        Line(absl::StrCat("recorded run ", input.run, ": ", RecordsText(run)));
    if (!input.drain.finished) {
      text += Indented("not all records have arrived yet");
    }
    return text;
  }
  std::vector<v1::Violation> audible = input.violations;
  // Before they are grouped: where the lead is silenced, the next violation
  // stands for the incident.
  const size_t silenced = RemoveSilenced(&audible);
  const std::vector<Incident> incidents = AlertsFirst(audible);
  std::string text = Headline(input, incidents) + IncidentLines(incidents) +
                     SilencedLine(input, silenced);
  // Otherwise the headline has said why nothing was checked, and there is no
  // coverage to show.
  if (run.has_check() && run.check().error().empty()) {
    text += CoverageText(run.check(), input.left_aside);
    for (const std::string& rule : input.left_out) text += Indented(rule);
  }
  return text + Indented(RecordsText(run)) + NextCommands(input, incidents);
}

}  // namespace traincheck::ctl
