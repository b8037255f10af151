#include "invariants/relations/saved_equals_live/saved_models.h"

#include <algorithm>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "invariants/facts/tri.h"
#include "invariants/facts/variable_state.h"

namespace traincheck {

namespace {

// The share of the parameters that can tell states apart which must be equal in
// the live state. A live state with a few damaged or stale tensors is still
// one.
constexpr double kLeastEqual = 0.5;

// Parameters and buffers by their names inside their roots. Several models may
// use one name.
using Names = std::unordered_map<std::string_view, std::vector<uint32_t>>;

// Other variables are in no state_dict of a model (those that an optimizer
// keeps).
Names NamesOf(const ProcessDefinitions& definitions) {
  Names names;
  for (const auto& [id, info] : definitions.variables()) {
    if (info.kind == VariableKind::kParameter ||
        info.kind == VariableKind::kBuffer) {
      names[info.name].push_back(id);
    }
  }
  return names;
}

// The variables whose name is the longest end of the key, and where it begins.
const std::vector<uint32_t>* FindNamed(const Names& names, std::string_view key,
                                       size_t* begin) {
  *begin = 0;
  while (true) {
    const auto found = names.find(key.substr(*begin));
    if (found != names.end()) return &found->second;
    // From the whole key on, one component less each time: the first that is
    // found is the longest.
    const size_t dot = key.find('.', *begin);
    if (dot == std::string_view::npos) return nullptr;
    *begin = dot + 1;
  }
}

SavedAs Compare(const SavedEntry& entry, uint32_t variable,
                const VariableInfo& info, const Digests& live) {
  // A state that is saved in half precision, or split, has another digest
  // without being wrong.
  if (entry.dtype != info.dtype || entry.shape != info.shape) {
    return SavedAs::kConverted;
  }
  const auto digest = live.find(variable);
  if (!entry.digest || digest == live.end()) return SavedAs::kUnread;
  return *entry.digest == digest->second ? SavedAs::kEqual : SavedAs::kDiffers;
}

bool IsTrainable(const ProcessDefinitions& definitions, uint32_t variable) {
  const VariableInfo* info = definitions.Variable(variable);
  return info && info->kind == VariableKind::kParameter && info->trainable;
}

// False where one of the two was not read: what may have moved tells nothing.
bool HasMoved(uint32_t variable, const Digests& live, const Digests& before) {
  const auto now = live.find(variable);
  const auto then = before.find(variable);
  return now != live.end() && then != before.end() &&
         now->second != then->second;
}

// Tensors that were converted or could not be read are counted in neither.
struct Count {
  size_t equal = 0;
  size_t all = 0;

  void Add(SavedAs as) {
    equal += as == SavedAs::kEqual;
    all += as == SavedAs::kEqual || as == SavedAs::kDiffers;
  }
};

}  // namespace

std::vector<SavedModel> FindSavedModels(const std::vector<SavedEntry>& entries,
                                        const ProcessDefinitions& definitions,
                                        const Digests& live) {
  const Names names = NamesOf(definitions);
  std::map<std::pair<uint32_t, std::string>, SavedModel> models;
  for (const SavedEntry& entry : entries) {
    if (entry.dtype.empty()) continue;  // no tensor
    size_t begin = 0;
    const std::vector<uint32_t>* named = FindNamed(names, entry.key, &begin);
    if (!named) continue;
    const std::string prefix = entry.key.substr(0, begin);
    // Several models may have a parameter of this name (copies of one class):
    // each is a candidate, and IsLiveState decides.
    for (uint32_t variable : *named) {
      const VariableInfo& info = *definitions.Variable(variable);
      SavedModel& model = models[{info.root, prefix}];
      model.root = info.root;
      model.prefix = prefix;
      model.variables.push_back(
          {variable, Compare(entry, variable, info, live)});
    }
  }
  std::vector<SavedModel> result;
  for (auto& [key, model] : models) result.push_back(std::move(model));
  return result;
}

IsStepped SteppedIn(const ProcessFacts& facts) {
  return [&facts](uint32_t variable) {
    const VariableState* state = facts.Variable(variable);
    return state && state->changed_in_step() == Tri::kYes;
  };
}

bool IsLiveState(const SavedModel& model, const ProcessDefinitions& definitions,
                 const Digests& live, const Digests& before,
                 const IsStepped& is_stepped) {
  Count all;
  Count stepped;
  Count moved;
  // Trainable parameters only: frozen ones are equal in averages and old
  // states, too.
  for (const SavedVariable& saved : model.variables) {
    if (!IsTrainable(definitions, saved.variable)) continue;
    all.Add(saved.as);
    if (is_stepped(saved.variable)) stepped.Add(saved.as);
    if (HasMoved(saved.variable, live, before)) moved.Add(saved.as);
  }
  // What has not moved is equal in an old state, or in an average, as well and
  // tells nothing.
  const Count& telling = moved.all > 0     ? moved
                         : stepped.all > 0 ? stepped
                                           : all;
  return telling.equal > 0 &&
         static_cast<double>(telling.equal) >=
             kLeastEqual * static_cast<double>(telling.all);
}

bool IsAnothers(const SavedModel& model, const std::vector<SavedModel>& all) {
  const auto is_equal = [](const SavedVariable& saved) {
    return saved.as == SavedAs::kEqual;
  };
  const auto equal = [&](const SavedModel& one) {
    return std::all_of(one.variables.begin(), one.variables.end(), is_equal);
  };
  // A model that is wholly equal is the live state, whatever else is equal,
  // too.
  if (equal(model)) return false;
  return std::any_of(all.begin(), all.end(), [&](const SavedModel& other) {
    const bool same_prefix = other.prefix == model.prefix;
    // Either the same model under another prefix or another model under the
    // same prefix. It must cover as many variables: a small part that is equal
    // by accident explains nothing.
    return same_prefix != (other.root == model.root) &&
           other.variables.size() >= model.variables.size() && equal(other);
  });
}

size_t ChangedParameters(const SavedModel& model,
                         const ProcessDefinitions& definitions,
                         const Digests& live, const Digests& before) {
  size_t changed = 0;
  for (const SavedVariable& saved : model.variables) {
    changed += IsTrainable(definitions, saved.variable) &&
               HasMoved(saved.variable, live, before);
  }
  return changed;
}

std::vector<std::string> FullNames(const ProcessDefinitions& definitions,
                                   const std::vector<uint32_t>& variables) {
  std::vector<std::string> names;
  for (uint32_t variable : variables) {
    const VariableInfo* info = definitions.Variable(variable);
    // The ids may come from a saved state, which may be damaged.
    if (info) names.push_back(info->FullName());
  }
  std::sort(names.begin(), names.end());
  return names;
}

void SavedEntry::Fields(Archive& archive) {
  archive(key, dtype, shape, digest, variable);
}

}  // namespace traincheck
