// Why a check left all rules of a set aside: they are of experiments that the
// run is not of.
#ifndef TRAINCHECK_CTL_RUN_LEFT_ASIDE_H_
#define TRAINCHECK_CTL_RUN_LEFT_ASIDE_H_

#include <string>

#include "ctl/client.h"
#include "proto/traincheck/v1/control.pb.h"

namespace traincheck::ctl {

// "the rules of set s are of experiment mnist, this run is pkg.train: give
// --experiment mnist"; "": some of its rules apply. Pure.
std::string LeftAsideText(const v1::SetDetail& set,
                          const std::string& experiment);

// The same for the sets of these names, if `check` says that rules were left
// aside, as far as the server gives them.
std::string WhyLeftAside(Client* client, const std::string& set,
                         const std::string& experiment,
                         const v1::CheckProgress& check);

}  // namespace traincheck::ctl

#endif  // TRAINCHECK_CTL_RUN_LEFT_ASIDE_H_
