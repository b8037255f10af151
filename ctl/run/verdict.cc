#include "ctl/run/verdict.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "ctl/text/shell_quote.h"
#include "ctl/text/table.h"

namespace traincheck::ctl {
namespace {

constexpr char kPrefix[] = "traincheck: ";

std::string Line(const std::string& text) {
  return absl::StrCat(kPrefix, OneLine(text), "\n");
}

std::string Counted(uint64_t count, const std::string& what) {
  return absl::StrCat(count, " ", what, count == 1 ? "" : "s");
}

std::string Indented(const std::string& text) { return Line("  " + text); }

std::string RecordsText(const v1::Run& run) {
  return absl::StrCat(Counted(run.records(), "record"), ", ", run.dropped(),
                      " dropped, ", run.lost(), " lost");
}

// Nothing of the run can be shown: why, and what becomes of its records.
std::string NothingText(const VerdictInput& input) {
  const std::string what = absl::StrCat("run ", input.run, ": ");
  const std::string not_checked =
      input.check_set.empty() ? "" : ", nothing was checked";
  if (absl::IsNotFound(input.drain.status)) {
    return Line(absl::StrCat(what, "no records reached the server",
                             not_checked)) +
           Indented(
               "was it a Python program that imports torch? Records that were "
               "spooled arrive later");
  }
  if (absl::IsUnavailable(input.drain.status)) {
    return Line(absl::StrCat(what, "the server does not answer", not_checked)) +
           Indented("what was recorded is spooled and sent later");
  }
  return Line(absl::StrCat(
      what, "the server says: ", input.drain.status.message(), not_checked));
}

std::string Headline(const VerdictInput& input) {
  const v1::CheckProgress& check = input.drain.run->check();
  const std::string what =
      absl::StrCat("run ", input.run, " against ", input.check_set, ": ");
  if (!input.drain.run->has_check()) {
    return absl::StrCat(what, "not checked: the run arrived without its set");
  }
  if (!check.error().empty()) {
    return absl::StrCat(what, "not checked: ", check.error());
  }
  return absl::StrCat(
      what, Counted(input.violations.size(), "violation"),
      input.drain.finished ? "" : " so far (the check has not finished)");
}

std::string CoverageText(const v1::CheckProgress& check) {
  const double share =
      check.total() == 0 ? 0 : 100.0 * check.decided() / check.total();
  std::string text = Indented(
      absl::StrFormat("coverage %d/%d invariants decided (%.0f%%), %d violated",
                      check.decided(), check.total(), share, check.violated()));
  if (check.decided() == 0) {
    text += Indented("no invariant was decided: this run shows nothing");
  }
  if (check.not_applied() > 0) {
    text += Indented(absl::StrCat("not applied ", check.not_applied(),
                                  " (rules of another experiment)"));
  }
  for (const v1::UnknownReason& unknown : check.unknown()) {
    text += Indented(
        absl::StrCat("unknown ", unknown.invariants(), ": ", unknown.reason()));
  }
  for (const v1::UnknownReason& unknown : check.partly_unknown()) {
    text +=
        Indented(absl::StrCat("unknown in some windows ", unknown.invariants(),
                              ": ", unknown.reason()));
  }
  return text;
}

std::string NextCommands(const VerdictInput& input) {
  const std::string run = ShellQuote(input.run);
  if (input.violations.empty()) {
    return Indented(absl::StrCat(input.ctl, " runs show ", run));
  }
  return Indented(absl::StrCat(input.ctl, " violations list --run ", run)) +
         Indented(absl::StrCat(input.ctl, " violations show ",
                               ShellQuote(input.violations[0].id()))) +
         Indented(absl::StrCat(input.ctl, " runs show ", run));
}

}  // namespace

std::string VerdictText(const VerdictInput& input) {
  if (!input.drain.run) return NothingText(input);
  const v1::Run& run = *input.drain.run;
  if (input.check_set.empty()) {
    std::string text =
        Line(absl::StrCat("recorded run ", input.run, ": ", RecordsText(run)));
    if (!input.drain.finished) {
      text += Indented("not all records have arrived yet");
    }
    return text;
  }
  std::string text = Line(Headline(input));
  if (run.has_check() && run.check().error().empty()) {
    text += CoverageText(run.check());
  }
  return text + Indented(RecordsText(run)) + NextCommands(input);
}

}  // namespace traincheck::ctl
