// Names of functions and fields in TrainCheck's files, and what is called so
// here.
//
// Threads: pure functions.
#ifndef TRAINCHECK_INVARIANTS_RELATIONS_TRAINCHECK_RULES_NAMES_H_
#define TRAINCHECK_INVARIANTS_RELATIONS_TRAINCHECK_RULES_NAMES_H_

#include <string>
#include <string_view>

namespace traincheck {

// A function as the agent names it: TrainCheck's
// "torch._VariableFunctionsClass.equal" is "torch.equal". A name that is the
// same in both comes back as it is.
std::string OurFunctionName(std::string_view name);

// "data_ID" of "_ML_DAIKON_data_ID" and of "_TRAINCHECK_data_ID", which is the
// newer spelling; other names as they are.
std::string_view WithoutFieldPrefix(std::string_view name);

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_RELATIONS_TRAINCHECK_RULES_NAMES_H_
