#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "ctl/commands/commands.h"
#include "ctl/commands/list_flags.h"
#include "ctl/commands/mark.h"
#include "ctl/commands/query.h"
#include "ctl/render/confidence.h"
#include "ctl/render/feedback.h"
#include "ctl/render/grade.h"
#include "ctl/render/incident.h"
#include "ctl/render/names.h"
#include "ctl/render/violation.h"
#include "ctl/render/zoom.h"
#include "ctl/text/since.h"
#include "ctl/text/table.h"

namespace traincheck::ctl {
namespace {

using Violations = std::vector<v1::Violation>;

struct WatchOptions {
  std::string run;
  std::string since;
  bool all = false;
  bool wait = false;
};

ListShape<v1::Violation> Shape() {
  ListShape<v1::Violation> shape;
  shape.status = [](const v1::Violation& row) { return row.status(); };
  shape.statuses = {"open", "ended"};
  shape.time_is = "first seen";
  shape.time = [](const v1::Violation& row) {
    return row.first_seen_unix_ns();
  };
  const auto step = [](const v1::Violation& row) {
    // Unknown steps come first, and not among those of step 0.
    return row.has_first_step() ? row.first_step()
                                : std::numeric_limits<int64_t>::min();
  };
  shape.orders = {
      {"seen",
       [](const v1::Violation& a, const v1::Violation& b) {
         return a.first_seen_unix_ns() < b.first_seen_unix_ns();
       }},
      {"step", [step](const v1::Violation& a,
                      const v1::Violation& b) { return step(a) < step(b); }},
      {"count", [](const v1::Violation& a, const v1::Violation& b) {
         return a.count() < b.count();
       }}};
  return shape;
}

struct ListOptions {
  std::string run;
  bool all = false;  // silenced ones, too
  bool by_incident = false;
  ListFlags flags;
};

// The table is by incident in any case.
Json ListJson(const Violations& violations, bool by_incident) {
  return by_incident ? ArrayOf(IncidentsOf(violations), IncidentJson)
                     : ArrayOf(violations, ViolationRowJson);
}

int List(const Context& context, const ListOptions& options) {
  const auto ask = [&](Client& client) -> absl::StatusOr<Violations> {
    auto all = client.ListViolations(options.run);
    if (!all.ok()) return all;
    // Before Select, so that --limit counts only what is shown.
    const size_t silenced = options.all ? 0 : RemoveSilenced(&*all);
    if (silenced > 0) Complain(SilencedText(silenced, "--all"));
    return Select(*std::move(all), Shape(), options.flags);
  };
  return Query<Violations>(
      context, ask,
      {ViolationsTable, [&](const Violations& violations) {
         return PrettyJson(ListJson(violations, options.by_incident));
       }});
}

// What `show` shows.
struct Shown {
  Incident incident;
  ViolationFeedback feedback;  // of its lead
  Confidence confidence;
  v1::ZoomReport zoom;
};

// The incident that the violation belongs to, if it leads it, else the
// violation alone.
absl::StatusOr<Incident> FindIncident(Client& client, const std::string& id) {
  auto violation = FindViolation(client, id);
  if (!violation.ok()) return violation.status();
  Violations members = {*violation};
  if (Leads(*violation)) {
    // A violation knows its lead and no others.
    auto all = client.ListViolations(violation->run());
    if (!all.ok()) return all.status();
    for (v1::Violation& other : *all) {
      // Leads also leaves out this violation itself.
      if (other.incident() != violation->id() || Leads(other)) continue;
      members.push_back(std::move(other));
    }
  }
  return IncidentsOf(members).front();
}

// Who marked it, and which silence covers it.
absl::StatusOr<ViolationFeedback> FindFeedback(Client& client,
                                               const v1::Violation& violation) {
  ViolationFeedback feedback;
  // A violation has the mark, but not who gave it and when: the marks of its
  // run have.
  if (!violation.mark().empty()) {
    const auto marks = client.ListMarks(violation.run());
    if (!marks.ok()) return marks.status();
    for (const v1::Mark& mark : *marks) {
      if (mark.violation() == violation.id()) feedback.mark = mark;
    }
  }
  // Likewise for the silence, of which the violation has id and comment.
  if (IsSilenced(violation)) {
    const auto silences = client.ListSilences();
    if (!silences.ok()) return silences.status();
    for (const v1::Silence& silence : *silences) {
      // "ID: comment".
      if (absl::StartsWith(violation.silenced_by(), silence.id() + ":")) {
        feedback.silence = silence;
      }
    }
  }
  return feedback;
}

absl::StatusOr<Confidence> FindConfidence(Client& client,
                                          const v1::Violation& violation) {
  Confidence confidence;
  auto record = client.GetRuleRecord(violation.id());
  if (record.ok()) {
    confidence.record = *std::move(record);
    // An older server keeps no record of rules, and the violation is shown
    // without.
  } else if (!absl::IsUnimplemented(record.status())) {
    return record.status();
  }
  auto run = client.GetRun(violation.run());
  if (run.ok() && run->has_check()) {
    confidence.check = run->check();
  } else if (!run.ok() && !absl::IsNotFound(run.status())) {
    return run.status();  // NotFound: it has been deleted meanwhile
  }
  return confidence;
}

// Several calls, one after the other: each asks for something about the lead,
// which the first one finds.
absl::StatusOr<Shown> FindShown(Client& client, const std::string& id) {
  auto incident = FindIncident(client, id);
  if (!incident.ok()) return incident.status();
  auto feedback = FindFeedback(client, incident->lead());
  if (!feedback.ok()) return feedback.status();
  auto confidence = FindConfidence(client, incident->lead());
  if (!confidence.ok()) return confidence.status();
  auto zoom = client.ShowZoom(incident->lead().id());
  if (!zoom.ok()) return zoom.status();
  return Shown{*std::move(incident), *std::move(feedback),
               *std::move(confidence), *std::move(zoom)};
}

std::string ShownText(const Shown& shown) {
  const v1::Violation& lead = shown.incident.lead();
  const ShownBeside beside = {
      // A zoom is made for an incident, so it is shown with the lead alone.
      .closer_look = Leads(lead) ? ZoomText(shown.zoom) : "",
      .how_sure = ConfidenceText(shown.confidence),
      .feedback = ViolationFeedbackText(shown.feedback)};
  if (Leads(lead)) return IncidentText(shown.incident, beside);
  const std::string incident = OneLine(lead.incident());
  return absl::StrCat(
      ViolationDetailText(lead, beside), "    ",
      lead.cause().empty()
          ? "found beside: "
          : absl::StrCat("follows from: ", OneLine(lead.cause()),
                         ", in incident "),
      incident, " (traincheckctl violations show ", incident, ")\n");
}

Json ShownJson(const Shown& shown) {
  Json json = ViolationDetailJson(shown.incident.lead());
  AddViolationFeedback(shown.feedback, &json);
  AddConfidence(shown.confidence, &json);
  json["zoom"] = ZoomJson(shown.zoom);
  AddOthers(shown.incident, &json);
  return json;
}

int Show(const Context& context, const std::string& id) {
  return Query<Shown>(
      context, [&](Client& client) { return FindShown(client, id); },
      {ShownText,
       [](const Shown& shown) { return PrettyJson(ShownJson(shown)); }});
}

// JSON: a line for each state of a violation. People see each incident once:
// one that goes on for a thousand steps must not scroll the others away. What
// is silenced nobody sees.
class Watcher {
 public:
  Watcher(const Context& context, const WatchOptions& options)
      : context_(context), options_(options) {}

  int Watch() {
    auto client = Client::Make(context_.server);
    if (!client.ok()) return Fail(client.status());
    // The list first, then the stream, which repeats it: nothing that begins
    // between the two is missed, and known_ keeps it from being shown twice.
    const auto before = (*client)->ListViolations(options_.run);
    if (before.ok()) {
      ShowBefore(*before);
    } else if (!absl::IsNotFound(before.status())) {
      return Fail(before.status());
    } else if (!options_.wait) {
      Complain(absl::StrCat(before.status().message(),
                            "; --wait waits for the run to begin"));
      return kExitServerError;
    }
    ViolationStream stream(client->get(), options_.run);
    const absl::Status status = stream.Read(
        [this](const v1::Violation& violation) { Tell(violation); });
    return status.ok() ? kExitDone : Fail(status);
  }

 private:
  int Fail(const absl::Status& status) const {
    return ReportFailedCall(status, context_.server);
  }

  // What there is already: printed as far as it is asked for.
  // Also where nothing of it is printed: what is noted here is not new when the
  // stream repeats it.
  void ShowBefore(const Violations& before) {
    // No violation is that late, so none is printed.
    const uint64_t never = std::numeric_limits<uint64_t>::max();
    uint64_t since = options_.all ? 0 : never;
    if (!options_.since.empty()) {
      since = ParseSince(options_.since, NowUnixNs()).value_or(never);
    }
    size_t all = 0, shown = 0;
    for (const v1::Violation& violation : before) {
      if (!IsShown(violation)) continue;
      // Also where it is not printed: the stream brings it once more, and it is
      // not new.
      known_[violation.id()] = violation.revision();
      ++all;
      if (since == never || violation.first_seen_unix_ns() < since) continue;
      Print(violation);
      ++shown;
    }
    // Sets what was there apart from what comes now.
    if (shown > 0 && !context_.json()) {
      std::cout << "-- new incidents --\n";
    }
    std::cout << std::flush;
    if (context_.json() || shown == all) return;
    Complain(absl::StrCat(Counted(all - shown, "earlier incident"),
                          all - shown == 1 ? " is" : " are",
                          " not shown: --since TIME or --all shows earlier "
                          "ones"));
  }

  // The stream begins with what there is.
  void Tell(const v1::Violation& violation) {
    if (!IsShown(violation)) return;
    const auto known = known_.find(violation.id());
    if (known == known_.end()) {
      known_[violation.id()] = violation.revision();
    } else if (!context_.json() || violation.revision() <= known->second) {
      return;
    }
    Print(violation);
    std::cout << std::flush;
  }

  // For people one line stands for an incident, the lead's; scripts get each
  // violation.
  bool IsShown(const v1::Violation& violation) const {
    return !IsSilenced(violation) && (context_.json() || Leads(violation));
  }

  void Print(const v1::Violation& violation) const {
    std::cout << (context_.json() ? JsonLine(ViolationRowJson(violation))
                                  : ViolationLine(violation));
  }

  const Context& context_;
  const WatchOptions& options_;
  std::map<std::string, uint64_t> known_;  // revision by id
};

void AddWatch(CLI::App* group, const Context* context, Action* action) {
  CLI::App* watch = group->add_subcommand(
      "watch",
      "One line an incident when it opens; with --run until the run is "
      "fully checked");
  auto options = std::make_shared<WatchOptions>();
  watch->add_option("--run", options->run, "Violations of this run only");
  watch->add_flag("--wait", options->wait,
                  "Wait for a run that the server does not know yet");
  watch->footer(
      "Examples:\n"
      "  traincheckctl violations watch\n"
      "  traincheckctl violations watch --since 1h -o json");
  CLI::Option* all =
      watch->add_flag("--all", options->all, "Show existing incidents first");
  AddSinceFlag(watch, &options->since,
               "First show those seen since then: 10m, 2h, 3d ago, or a time");
  watch->get_option("--since")->excludes(all);
  watch->callback(
      [=] { *action = [=] { return Watcher(*context, *options).Watch(); }; });
}

}  // namespace

void AddViolations(CLI::App* group, const Context* context, Action* action) {
  group->require_subcommand(1);
  auto options = std::make_shared<ListOptions>();
  auto id = std::make_shared<std::string>();

  CLI::App* list = group->add_subcommand("list", "Violations");
  list->add_option("--run", options->run, "Violations of this run only");
  list->add_flag("--all", options->all, "Those that are silenced, too");
  list->add_flag("--by-incident", options->by_incident,
                 "With -o json: incidents, each with what follows from it and "
                 "what was found beside it");
  AddListFlags(list, Shape(), &options->flags);
  list->callback([=] { *action = [=] { return List(*context, *options); }; });

  CLI::App* show =
      group->add_subcommand("show",
                            "One incident with its evidence and what follows "
                            "from it, or one of its violations");
  show->add_option("ID", *id, "Violation; the first letters of its id do")
      ->required();
  show->callback([=] { *action = [=] { return Show(*context, *id); }; });

  AddWatch(group, context, action);
  AddMark(group, context, action);
}

}  // namespace traincheck::ctl
