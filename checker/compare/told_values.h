// Do two calls tell the same of their arguments and results? Numbers exactly;
// tensors by dtype, shape, kind of device, autograd's view and digest, as far
// as both tell them. What one of them does not tell is no difference.
//
// Left aside because it differs between equal runs: which memory a tensor lies
// in, which device of its kind, texts that name a place (files, addresses),
// what a process group is made with.
//
// Threads: pure functions.
#ifndef TRAINCHECK_CHECKER_COMPARE_TOLD_VALUES_H_
#define TRAINCHECK_CHECKER_COMPARE_TOLD_VALUES_H_

#include <cstdint>
#include <optional>
#include <string>

#include "invariants/trace/call_values.h"
#include "invariants/trace/definitions.h"
#include "invariants/trace/events.h"

namespace traincheck {

struct ToldDifference {
  std::string name;  // of the argument
  std::string a;
  std::string b;
};

struct ToldComparison {
  uint64_t compared = 0;  // values
  std::optional<ToldDifference> first;
};

// The definitions of both runs' processes.
struct DefinitionsOfBoth {
  const ProcessDefinitions& a;
  const ProcessDefinitions& b;
};

ToldComparison CompareArguments(const Call& a, const Call& b,
                                const DefinitionsOfBoth& definitions);
ToldComparison CompareResults(const Call& a, const Call& b,
                              const DefinitionsOfBoth& definitions);

}  // namespace traincheck

#endif  // TRAINCHECK_CHECKER_COMPARE_TOLD_VALUES_H_
