#include "invariants/relations/traincheck_rules/names.h"

namespace traincheck {

namespace {

struct Prefix {
  std::string_view theirs;
  std::string_view ours;
};

// TrainCheck names C functions by the class that holds them, the agent by the
// public place that shows them (agent/python/hooks/catalogue.py). A spawned
// child runs the script under another name than its parent.
constexpr Prefix kFunctionPrefixes[] = {
    {"torch._VariableFunctionsClass.", "torch."},
    {"torch._C._VariableFunctions.", "torch."},
    {"torch._C.TensorBase.", "torch.Tensor."},
    {"torch._C._TensorBase.", "torch.Tensor."},
    {"torch._tensor.Tensor.", "torch.Tensor."},
    {"torch._C._nn.", "torch.nn.functional."},
    {"__mp_main__.", "__main__."},
};

constexpr std::string_view kFieldPrefixes[] = {"_ML_DAIKON_", "_TRAINCHECK_"};

bool StartsWith(std::string_view text, std::string_view prefix) {
  return text.substr(0, prefix.size()) == prefix;
}

}  // namespace

std::string OurFunctionName(std::string_view name) {
  // No prefix begins another one, so one fits at most.
  for (const Prefix& prefix : kFunctionPrefixes) {
    if (!StartsWith(name, prefix.theirs)) continue;
    return std::string(prefix.ours) +
           std::string(name.substr(prefix.theirs.size()));
  }
  return std::string(name);
}

std::string_view WithoutFieldPrefix(std::string_view name) {
  for (const std::string_view prefix : kFieldPrefixes) {
    if (StartsWith(name, prefix)) return name.substr(prefix.size());
  }
  return name;
}

}  // namespace traincheck
