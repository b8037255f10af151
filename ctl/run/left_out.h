// Rules that somebody decided not to check.
#ifndef TRAINCHECK_CTL_RUN_LEFT_OUT_H_
#define TRAINCHECK_CTL_RUN_LEFT_OUT_H_

#include <string>
#include <vector>

#include "ctl/client.h"
#include "ctl/run/repository_file.h"
#include "proto/traincheck/v1/control.pb.h"

namespace traincheck::ctl {

// "builtin, rules@3 without 2 rules" of what ParseSelection reads; another text
// as it is.
std::string SelectionInWords(const std::string& selection);

// One text for each rule that `selection` leaves out: its id, why, and who says
// so. `disabled`: those of the server; null: not known.
std::vector<std::string> LeftOutTexts(
    const std::string& selection, const std::vector<SilencedRule>& silenced,
    const std::vector<v1::DisabledRule>* disabled);

// The same, with what the server says.
std::vector<std::string> LeftOutOf(Client* client, const std::string& selection,
                                   const std::vector<SilencedRule>& silenced);

}  // namespace traincheck::ctl

#endif  // TRAINCHECK_CTL_RUN_LEFT_OUT_H_
