// What was decided about rules and sets: `sets delete|disable|deploy` and the
// lists of it.
#ifndef TRAINCHECK_CTL_RENDER_RULE_POLICY_H_
#define TRAINCHECK_CTL_RENDER_RULE_POLICY_H_

#include <string>
#include <vector>

#include "ctl/render/json.h"
#include "proto/traincheck/v1/control.pb.h"

namespace traincheck::ctl {

// {name, versions}
Json DeletedSetJson(const v1::DeleteSetReply& deleted);
std::string DeletedSetText(const v1::DeleteSetReply& deleted);

// {rule, text, reason, since}
Json DisabledRuleJson(const v1::DisabledRule& rule);
std::string DisabledRulesTable(const std::vector<v1::DisabledRule>& rules);

// {experiment, sets, since}
Json DeploymentJson(const v1::Deployment& deployment);
std::string DeploymentText(const v1::Deployment& deployment);
std::string DeploymentsTable(const std::vector<v1::Deployment>& deployments);

}  // namespace traincheck::ctl

#endif  // TRAINCHECK_CTL_RENDER_RULE_POLICY_H_
