// What a function of a trace is to training: the category and the roles that
// the agent would give it. One table of patterns, after
// agent/python/hooks/catalogue.py.
//
// Threads: pure functions.
#ifndef TRAINCHECK_INVARIANTS_TRAINCHECK_FUNCTION_KIND_H_
#define TRAINCHECK_INVARIANTS_TRAINCHECK_FUNCTION_KIND_H_

#include <string>
#include <vector>

#include "proto/record_format.h"

namespace traincheck {

struct FunctionKind {
  std::string category;            // "": none that is known
  std::vector<std::string> roles;  // narrow to general
};

// `name` as in OurFunctionName; `bound`: its first parameter is self.
FunctionKind KindOfFunction(const std::string& name, bool bound);

// What an object of this class is; has_mode: it has an attribute `training`,
// as modules have.
ObjectKind KindOfClass(const std::string& class_name, bool has_mode);

// Is this the name of a class of tensors?
bool IsTensorClass(const std::string& class_name);

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_TRAINCHECK_FUNCTION_KIND_H_
