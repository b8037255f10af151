// Which family each built-in rule is of.
#ifndef TRAINCHECK_CTL_PREFLIGHT_FAMILIES_H_
#define TRAINCHECK_CTL_PREFLIGHT_FAMILIES_H_

#include <map>
#include <string>

namespace traincheck::ctl {

// "core", "ddp", by the rule's id, as this build knows them: a server of
// another version may have others. Pure.
std::map<std::string, std::string> FamiliesOfRules();

}  // namespace traincheck::ctl

#endif  // TRAINCHECK_CTL_PREFLIGHT_FAMILIES_H_
