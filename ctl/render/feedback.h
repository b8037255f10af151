// What people say back, and what follows from it: `violations mark`,
// `silences`, `sets review`, and whom the daemon has called.
#ifndef TRAINCHECK_CTL_RENDER_FEEDBACK_H_
#define TRAINCHECK_CTL_RENDER_FEEDBACK_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ctl/render/json.h"
#include "proto/traincheck/v1/control.pb.h"
#include "proto/traincheck/v1/feedback.pb.h"

namespace traincheck::ctl {

// What people have said of one violation.
struct ViolationFeedback {
  std::optional<v1::Mark> mark;
  std::optional<v1::Silence> silence;
};

// Lines for `violations show`; "" where nobody has said anything.
std::string ViolationFeedbackText(const ViolationFeedback& feedback);
// Adds {marked_by, marked_at, marked_through, silence} to a violation's object.
void AddViolationFeedback(const ViolationFeedback& feedback, Json* json);

// `taken_back`: what the reply holds was.
std::string MarkReplyText(const v1::MarkViolationReply& reply, bool taken_back);
// {marks: [{violation, run, mark, comment, by, at, through}], kept}
Json MarkReplyJson(const v1::MarkViolationReply& reply);

// {id, rule, relation, variable, experiment, until, ended, comment, by, since,
// covered}
Json SilenceJson(const v1::Silence& silence);
std::string SilencesTable(const std::vector<v1::Silence>& silences);
std::string SilenceAddedText(const v1::Silence& silence);

// Each rule with what speaks against it and the command that disables it.
std::string SetReviewText(const v1::SetReview& review);
// {set, healthy, healthy_runs, without_record, max_share, disabled, rules:
// [{rule, relation, text, decided_runs, violated_runs, false_alarms, confirmed,
// command}]}
Json SetReviewJson(const v1::SetReview& review);

// A line for `status`; "" where the daemon has no command to start.
std::string AlertCallsText(const v1::AlertCalls& calls);
// {per_hour, started, held_back, failed, last_failure}; null: no command.
Json AlertCallsJson(const v1::AlertCalls& calls);

}  // namespace traincheck::ctl

#endif  // TRAINCHECK_CTL_RENDER_FEEDBACK_H_
