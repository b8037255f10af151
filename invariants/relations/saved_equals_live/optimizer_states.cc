#include "invariants/relations/saved_equals_live/optimizer_states.h"

#include <map>
#include <string_view>
#include <utility>

#include "invariants/relations/saved_equals_live/saved_calls.h"

namespace traincheck {

namespace {

constexpr std::string_view kGroups = "param_groups.";
constexpr std::string_view kState = "state.";

// What stands before the part of the key; false: it has no such part.
bool PrefixBefore(std::string_view key, std::string_view part,
                  std::string_view* prefix) {
  for (size_t at = key.find(part); at != std::string_view::npos;
       at = key.find(part, at + 1)) {
    // A whole component of the key, not the end of a longer name ("my_state.").
    if (at != 0 && key[at - 1] != '.') continue;
    *prefix = key.substr(0, at);
    return true;
  }
  return false;
}

// Digests of each state, by the prefix under which it lies in the file: several
// optimizers may be in one.
using States = std::map<std::string, std::set<uint64_t>, std::less<>>;

States NamedIn(const std::vector<SavedEntry>& entries) {
  States states;
  std::string_view prefix;
  for (const SavedEntry& entry : entries) {
    // Only "param_groups" tells a state of an optimizer from any other
    // dictionary with a key "state".
    if (PrefixBefore(entry.key, kGroups, &prefix)) {
      states.emplace(prefix, std::set<uint64_t>());
    }
  }
  return states;
}

// Of which state the entry is a part; end: of none.
States::iterator StateOf(const SavedEntry& entry, States* states) {
  const std::string_view key = entry.key;
  for (auto state = states->begin(); state != states->end(); ++state) {
    const std::string& prefix = state->first;
    if (key.substr(0, prefix.size()) != prefix) continue;
    const std::string_view rest = key.substr(prefix.size());
    // A key of another prefix, or the weights beside the state, begins
    // otherwise.
    if (rest.substr(0, kState.size()) == kState ||
        rest.substr(0, kGroups.size()) == kGroups) {
      return state;
    }
  }
  return states->end();
}

}  // namespace

OptimizerStates FindOptimizerStates(const std::vector<SavedEntry>& entries) {
  OptimizerStates result;
  States states = NamedIn(entries);
  if (states.empty()) return result;
  for (const SavedEntry& entry : entries) {
    if (entry.dtype.empty()) continue;  // no tensor
    const auto state = StateOf(entry, &states);
    if (state == states.end()) {
      // Weights are floating tensors with dimensions: states of generators are
      // bytes, and counters have no dimension.
      result.holds_weights |= IsFloating(entry.dtype) && !entry.shape.empty();
    } else if (entry.digest && !entry.shape.empty()) {
      // Tensors without a dimension are left out: counts of steps are the same
      // in many states.
      state->second.insert(*entry.digest);
    }
  }
  for (auto& [prefix, digests] : states) {
    // An optimizer that has not stepped, or keeps nothing (SGD), has groups and
    // no tensors: nothing of it could be lost.
    if (!digests.empty()) result.states.push_back(std::move(digests));
  }
  return result;
}

void OptimizerStates::Fields(Archive& archive) {
  archive(states, holds_weights);
}

}  // namespace traincheck
