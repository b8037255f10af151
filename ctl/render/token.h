// Tokens, as JSON and as text. Never what makes one a secret.
//
// Threads: pure functions.
#ifndef TRAINCHECK_CTL_RENDER_TOKEN_H_
#define TRAINCHECK_CTL_RENDER_TOKEN_H_

#include <string>
#include <vector>

#include "ctl/render/json.h"
#include "proto/traincheck/v1/access.pb.h"

namespace traincheck::ctl {

Json TokenJson(const v1::Token& token);
std::string TokensTable(const std::vector<v1::Token>& tokens);

}  // namespace traincheck::ctl

#endif  // TRAINCHECK_CTL_RENDER_TOKEN_H_
