#include "ctl/render/feedback.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "ctl/render/names.h"
#include "ctl/text/shell_quote.h"
#include "ctl/text/since.h"
#include "ctl/text/table.h"
#include "ctl/text/terminal.h"
#include "ctl/text/utc_time.h"

namespace traincheck::ctl {
namespace {

// By this host's clock; what is covered the daemon decides by its own.
bool HasEnded(const v1::Silence& silence) {
  return silence.until_unix_ns() != 0 && silence.until_unix_ns() <= NowUnixNs();
}

// As an absolute time: the reader may see it days later.
std::string UntilText(const v1::Silence& silence) {
  // 0: no end was given.
  return silence.until_unix_ns() == 0
             ? "until it is removed"
             : absl::StrCat("until ", Rfc3339(silence.until_unix_ns()));
}

// The name is what the client sent, which may be nothing.
std::string ByText(const std::string& by, uint64_t unix_ns) {
  return absl::StrCat(by.empty() ? "" : absl::StrCat(" by ", OneLine(by)), ", ",
                      Rfc3339(unix_ns));
}

// "through" names the violation on which the mark was given: a mark on a lead
// is one on the others, too.
Json MarkJson(const v1::Mark& mark) {
  Json json;
  json["violation"] = mark.violation();
  json["run"] = mark.run();
  json["mark"] = mark.mark();
  json["comment"] = TextOrNull(mark.comment());
  json["by"] = TextOrNull(mark.by());
  json["at"] = TimeOrNull(mark.since_unix_ns());
  json["through"] = mark.through();
  return json;
}

// "violated in 3 of 12 healthy runs (25%), 2 false alarms, 1 confirmed"
std::string RecordText(const v1::RuleRecord& record) {
  std::vector<std::string> parts;
  if (record.decided_runs() > 0) {
    parts.push_back(absl::StrFormat(
        "violated in %d of %s that decided it (%.0f%%)", record.violated_runs(),
        Counted(record.decided_runs(), "healthy run"),
        100.0 * record.violated_runs() / record.decided_runs()));
  } else {
    parts.push_back("no healthy run decided it");
  }
  parts.push_back(
      absl::StrCat("marks: ", Counted(record.false_alarms(), "false alarm"),
                   ", ", record.confirmed(), " confirmed"));
  return absl::StrJoin(parts, "; ");
}

// With what speaks against the rule as the reason: it is what people read
// later.
std::string DisableCommand(const v1::RuleRecord& record) {
  return absl::StrCat("traincheckctl sets disable ", ShellQuote(record.rule()),
                      " --reason ", ShellQuote(RecordText(record)));
}

}  // namespace

std::string ViolationFeedbackText(const ViolationFeedback& feedback) {
  std::string text;
  if (feedback.mark) {
    const v1::Mark& mark = *feedback.mark;
    // A mark on a lead marks the others of its incident, too; this says by
    // which it came.
    const bool own = mark.through() == mark.violation();
    absl::StrAppend(&text, "    marked: ", OneLine(mark.mark()),
                    ByText(mark.by(), mark.since_unix_ns()),
                    own ? "" : absl::StrCat(", with ", OneLine(mark.through())),
                    mark.comment().empty()
                        ? ""
                        : absl::StrCat(": ", OneLine(mark.comment())),
                    "\n");
  }
  if (feedback.silence) {
    const v1::Silence& silence = *feedback.silence;
    absl::StrAppend(&text, "    silenced: ", UntilText(silence),
                    ByText(silence.by(), silence.since_unix_ns()), ": ",
                    OneLine(silence.comment()),
                    "; traincheckctl silences remove ", OneLine(silence.id()),
                    " ends it\n");
  }
  return text;
}

void AddViolationFeedback(const ViolationFeedback& feedback, Json* json) {
  Json& violation = *json;
  const auto& mark = feedback.mark;
  // The keys are there in any case, with null where nobody has said anything.
  violation["marked_by"] = mark ? TextOrNull(mark->by()) : Json();
  violation["marked_at"] = mark ? TimeOrNull(mark->since_unix_ns()) : Json();
  violation["marked_through"] = mark ? Json(mark->through()) : Json();
  violation["silence"] =
      feedback.silence ? SilenceJson(*feedback.silence) : Json();
}

std::string MarkReplyText(const v1::MarkViolationReply& reply,
                          bool taken_back) {
  // The violation that was named comes first. There is one at least: where
  // there is none to take back, the daemon answers with an error.
  const v1::Mark& named = reply.marks(0);
  std::string text =
      taken_back
          ? absl::StrCat("the mark ", OneLine(named.mark()), " of violation ",
                         OneLine(named.violation()), " is taken back")
          : absl::StrCat("violation ", OneLine(named.violation()),
                         " is marked ", OneLine(named.mark()));
  if (reply.marks_size() > 1) {
    absl::StrAppend(&text, ", with ",
                    Counted(reply.marks_size() - 1, "other violation"),
                    " of its incident");
  }
  text += "\n";
  // A mark on the lead does not replace one that somebody gave another
  // violation by itself.
  if (reply.kept() > 0) {
    absl::StrAppend(&text, Counted(reply.kept(), "violation"),
                    reply.kept() == 1 ? " keeps the mark" : " keep the marks",
                    " that somebody gave it before\n");
  }
  return text;
}

Json MarkReplyJson(const v1::MarkViolationReply& reply) {
  Json json;
  json["marks"] = ArrayOf(reply.marks(), MarkJson);
  json["kept"] = reply.kept();
  return json;
}

Json SilenceJson(const v1::Silence& silence) {
  Json json;
  json["id"] = silence.id();
  json["rule"] = TextOrNull(silence.rule());
  json["relation"] = TextOrNull(silence.relation());
  json["variable"] = TextOrNull(silence.variable());
  json["experiment"] = TextOrNull(silence.experiment());
  json["until"] = TimeOrNull(silence.until_unix_ns());
  json["ended"] = HasEnded(silence);
  json["comment"] = silence.comment();
  json["by"] = TextOrNull(silence.by());
  json["since"] = TimeOrNull(silence.since_unix_ns());
  json["covered"] = silence.covered();
  return json;
}

std::string SilencesTable(const std::vector<v1::Silence>& silences) {
  Table table({{"ID"},
               {"STATUS"},
               {"UNTIL"},
               {"RULE"},
               {"RELATION"},
               {"VARIABLE"},
               {"EXPERIMENT"},
               {"COVERS", Align::kRight},
               {"BY"},
               {"COMMENT"}});
  for (const v1::Silence& silence : silences) {
    table.AddRow(
        {silence.id(), HasEnded(silence) ? "ended" : "active",
         TimeOrUnknown(silence.until_unix_ns()), TextOrUnknown(silence.rule()),
         TextOrUnknown(silence.relation()), TextOrUnknown(silence.variable()),
         TextOrUnknown(silence.experiment()), std::to_string(silence.covered()),
         TextOrUnknown(silence.by()), silence.comment()});
  }
  return table.Render(StdoutColumns());
}

std::string SilenceAddedText(const v1::Silence& silence) {
  return absl::StrCat("silence ", OneLine(silence.id()), ", ",
                      UntilText(silence),
                      ": what it covers is recorded and alerts nobody\n");
}

// How many runs the review rests on, how many rules are off already, and then
// each rule with what speaks against it.
std::string SetReviewText(const v1::SetReview& review) {
  std::string text = absl::StrCat(
      OneLine(review.healthy()), "\n", Counted(review.healthy_runs(), "run"),
      review.healthy_runs() == 1 ? " is" : " are", " healthy",
      review.without_record() == 0
          ? ""
          : absl::StrCat(
                ", ", review.without_record(),
                " of them without a record of what was decided (not "
                "checked while they trained, or by an earlier version)"),
      "\n");
  if (review.disabled() > 0) {
    absl::StrAppend(
        &text, Counted(review.disabled(), "rule"), " that would be listed ",
        review.disabled() == 1 ? "is" : "are", " already disabled\n");
  }
  // The bounds that no rule has passed are part of the answer, so that it is
  // not taken for a failure.
  if (review.rules().empty()) {
    absl::StrAppend(
        &text, "no rule",
        review.set().empty() ? "" : absl::StrCat(" of ", OneLine(review.set())),
        " should be removed: none has a false alarm or was violated in more "
        "than ",
        absl::StrFormat("%g%%", 100 * review.max_share()),
        " of the healthy runs that decided it\n");
  }
  // Each with a command that can be copied: the review itself changes nothing.
  for (const v1::RuleRecord& record : review.rules()) {
    absl::StrAppend(&text, "\nrule ", OneLine(record.rule()), ": ",
                    OneLine(record.text()), "\n    ", RecordText(record),
                    "\n    ", DisableCommand(record), "\n");
  }
  return text;
}

Json SetReviewJson(const v1::SetReview& review) {
  Json json;
  json["set"] = TextOrNull(review.set());
  json["healthy"] = review.healthy();
  json["healthy_runs"] = review.healthy_runs();
  json["without_record"] = review.without_record();
  json["max_share"] = review.max_share();
  json["disabled"] = review.disabled();
  json["rules"] = ArrayOf(review.rules(), [](const v1::RuleRecord& record) {
    Json rule;
    rule["rule"] = record.rule();
    rule["relation"] = record.relation();
    rule["text"] = record.text();
    rule["decided_runs"] = record.decided_runs();
    rule["violated_runs"] = record.violated_runs();
    rule["false_alarms"] = record.false_alarms();
    rule["confirmed"] = record.confirmed();
    rule["command"] = DisableCommand(record);
    return rule;
  });
  return json;
}

std::string AlertCallsText(const v1::AlertCalls& calls) {
  if (!calls.configured()) return "";
  // The daemon's words for what counts as a healthy run stand first: the
  // numbers below depend on it.
  // Held back are incidents beyond the daemon's bound of starts an hour.
  std::string text = absl::StrCat("on alert: the command was started for ",
                                  Counted(calls.started(), "incident"),
                                  ", held back for ", calls.held_back(),
                                  " (at most ", calls.per_hour(), " an hour)");
  if (calls.failed() > 0) {
    absl::StrAppend(&text, ", failed ", calls.failed(),
                    " times, the last: ", OneLine(calls.last_failure()));
  }
  return text + "\n";
}

// Null where the daemon was started without a command for alerts.
Json AlertCallsJson(const v1::AlertCalls& calls) {
  if (!calls.configured()) return Json();
  Json json;
  json["per_hour"] = calls.per_hour();
  json["started"] = calls.started();
  json["held_back"] = calls.held_back();
  json["failed"] = calls.failed();
  json["last_failure"] = TextOrNull(calls.last_failure());
  return json;
}

}  // namespace traincheck::ctl
