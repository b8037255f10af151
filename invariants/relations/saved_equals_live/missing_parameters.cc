#include "invariants/relations/saved_equals_live/missing_parameters.h"

#include <algorithm>
#include <map>
#include <string_view>

#include "invariants/relations/saved_equals_live/saved_calls.h"

namespace traincheck {

namespace {

// "fc" of "fc.weight"; "" for what the root itself has.
std::string_view ModuleOf(std::string_view name) {
  const size_t dot = name.rfind('.');
  return dot == std::string_view::npos ? "" : name.substr(0, dot);
}

bool AreEqual(const Digests& live, uint32_t a, uint32_t b) {
  const auto first = live.find(a);
  const auto second = live.find(b);
  // A tensor that could not be read is taken for a tie, so that it makes no
  // false alarm.
  return first == live.end() || second == live.end() ||
         first->second == second->second;
}

// Costs a look at all that is saved, for each parameter that is not saved under
// its own name.
bool IsTied(uint32_t variable, const SavedPart& part,
            const ProcessDefinitions& definitions) {
  const VariableInfo& info = *definitions.Variable(variable);
  if (info.alias_group == 0) return false;
  return std::any_of(part.saved.begin(), part.saved.end(), [&](uint32_t other) {
    const VariableInfo* saved = definitions.Variable(other);
    return saved && saved->alias_group == info.alias_group &&
           // A larger tensor in the same storage has this one as a part of
           // itself (a flat parameter).
           (Elements(saved->shape) > Elements(info.shape) ||
            AreEqual(part.live, variable, other));
  });
}

struct SavedModule {
  bool something = false;  // is saved of it
  bool trainable_only = true;
};

// Modules of the root that have variables of their own, by name, sorted:
// HasChildren looks for the next name. The names lie in the definitions, which
// outlive the map.
using SavedModules = std::map<std::string_view, SavedModule>;

SavedModules ModulesOf(const SavedPart& part,
                       const ProcessDefinitions& definitions) {
  SavedModules modules;
  for (const auto& [id, info] : definitions.variables()) {
    // Modules of which nothing is saved have an entry as well: they may be the
    // children that make another one a container.
    if (info.root == part.root) modules[ModuleOf(info.name)];
  }
  for (const uint32_t id : part.saved) {
    const VariableInfo* info = definitions.Variable(id);
    // The ids may come from a saved state, which may be damaged.
    if (!info) continue;
    SavedModule& module = modules[ModuleOf(info->name)];
    module.something = true;
    module.trainable_only &=
        info->kind == VariableKind::kParameter && info->trainable;
  }
  return modules;
}

bool HasChildren(std::string_view module, const SavedModules& modules) {
  // The root's own name is empty: every other module is below it.
  if (module.empty()) return modules.size() > 1;
  const std::string prefix = std::string(module) + '.';
  // Names are sorted, so a child is the next one behind "module." if there is
  // any.
  const auto next = modules.lower_bound(prefix);
  return next != modules.end() &&
         next->first.substr(0, prefix.size()) == prefix;
}

}  // namespace

// A digest that is saved under any name counts: libraries translate names of
// parameters when they save.
std::vector<uint32_t> MissingParameters(const SavedPart& part,
                                        const ProcessDefinitions& definitions) {
  std::vector<uint32_t> missing;
  for (const auto& [variable, digest] : part.live) {
    const VariableInfo* info = definitions.Variable(variable);
    if (!info || info->root != part.root ||
        info->kind != VariableKind::kParameter || part.saved.count(variable) ||
        part.digests.count(digest) || IsTied(variable, part, definitions)) {
      continue;
    }
    missing.push_back(variable);
  }
  return missing;
}

std::vector<uint32_t> MissingInModules(const SavedPart& part,
                                       const std::vector<uint32_t>& missing,
                                       const ProcessDefinitions& definitions) {
  std::vector<uint32_t> result;
  if (missing.empty()) return result;
  const SavedModules modules = ModulesOf(part, definitions);
  for (const uint32_t variable : missing) {
    const VariableInfo& info = *definitions.Variable(variable);
    const std::string_view name = ModuleOf(info.name);
    const SavedModule& module = modules.at(name);
    // A whole module may be left out on purpose, and a module with children may
    // be saved without some of them.
    if (!module.something || HasChildren(name, modules)) continue;
    // Adapters are saved without the frozen weight beside them.
    if (module.trainable_only && !info.trainable) continue;
    result.push_back(variable);
  }
  return result;
}

std::vector<uint32_t> MissingOfOptimizers(
    const std::vector<uint32_t>& missing,
    const ProcessDefinitions& definitions) {
  std::set<uint32_t> held;
  for (const auto& [group, variables] : definitions.holds()) {
    held.insert(variables.begin(), variables.end());
  }
  std::vector<uint32_t> result;
  std::copy_if(missing.begin(), missing.end(), std::back_inserter(result),
               [&](uint32_t variable) {
                 return definitions.Variable(variable)->trainable &&
                        held.count(variable);
               });
  return result;
}

void SavedPart::Fields(Archive& archive) {
  archive(root, saved, live, digests);
}

}  // namespace traincheck
