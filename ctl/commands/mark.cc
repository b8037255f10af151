#include "ctl/commands/mark.h"

#include <memory>

#include "ctl/commands/id_prefix.h"
#include "ctl/commands/query.h"
#include "ctl/render/feedback.h"
#include "ctl/text/who.h"

namespace traincheck::ctl {
namespace {

// The word by which the daemon takes a mark back.
constexpr char kNone[] = "none";

int Mark(const Context& context, v1::MarkViolationRequest request) {
  // The reply has the marks that were given or taken; only the request says
  // which.
  const bool taken_back = request.mark() == kNone;
  const auto ask =
      [&](Client& client) -> absl::StatusOr<v1::MarkViolationReply> {
    const auto violation = FindViolation(client, request.violation());
    if (!violation.ok()) return violation.status();
    // The daemon wants a whole id; people type the first letters.
    request.set_violation(violation->id());
    // For people who read it later: nobody checks the name.
    request.set_by(UserAtHost());
    return client.MarkViolation(request);
  };
  return Query<v1::MarkViolationReply>(
      context, ask,
      {[&](const v1::MarkViolationReply& reply) {
         return MarkReplyText(reply, taken_back);
       },
       [](const v1::MarkViolationReply& reply) {
         return PrettyJson(MarkReplyJson(reply));
       }});
}

}  // namespace

// The violations of all runs are listed only if the id is not a whole one.
absl::StatusOr<v1::Violation> FindViolation(Client& client,
                                            const std::string& id) {
  return GetByPrefix<v1::Violation>(
      id, [&](const std::string& whole) { return client.GetViolation(whole); },
      [&] { return client.ListViolations(""); });
}

void AddMark(CLI::App* group, const Context* context, Action* action) {
  struct Options {
    std::string id;
    std::string mark;
    std::string comment;
    bool only = false;
  };
  auto options = std::make_shared<Options>();
  CLI::App* mark = group->add_subcommand(
      "mark", "Say whether a violation was right: mark ID confirmed");
  mark->add_option("ID", options->id,
                   "Violation; the first letters of its id are enough. If it "
                   "leads an incident, the others of it are marked, too")
      ->required();
  mark->add_option("MARK", options->mark,
                   "confirmed, false-alarm, or none: take it back")
      ->required()
      ->check(CLI::IsMember({"confirmed", "false-alarm", kNone}));
  mark->add_option("--comment", options->comment, "Why");
  mark->add_flag("--only", options->only,
                 "Not the other violations of its incident");
  mark->footer(
      "Examples:\n"
      "  traincheckctl violations mark 51df confirmed\n"
      "  traincheckctl violations mark 51df false-alarm --comment 'meant so'");
  // The request is made when the words are parsed and completed when it is
  // sent.
  mark->callback([=] {
    v1::MarkViolationRequest request;
    request.set_violation(options->id);
    request.set_mark(options->mark);
    request.set_comment(options->comment);
    request.set_only(options->only);
    *action = [=] { return Mark(*context, request); };
  });
}

}  // namespace traincheck::ctl
