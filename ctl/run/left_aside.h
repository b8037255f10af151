// Why a check that decided nothing left rules aside: they are of experiments
// that the run is not of.
#ifndef TRAINCHECK_CTL_RUN_LEFT_ASIDE_H_
#define TRAINCHECK_CTL_RUN_LEFT_ASIDE_H_

#include <string>

#include "ctl/client.h"
#include "proto/traincheck/v1/control.pb.h"

namespace traincheck::ctl {

// "the rules of set s are of experiment mnist, this run is pkg.train: give
// --experiment mnist". Pure.
std::string LeftAsideText(const v1::SetDetail& set,
                          const std::string& experiment);

// The same for the set of that name, as far as `check` says that nothing was
// decided and that rules were left aside; else "", and where the server does
// not give the set.
std::string WhyLeftAside(Client* client, const std::string& set,
                         const std::string& experiment,
                         const v1::CheckProgress& check);

}  // namespace traincheck::ctl

#endif  // TRAINCHECK_CTL_RUN_LEFT_ASIDE_H_
