// Which models a checkpoint holds: matches the keys of what is saved with the
// variables of the process that saves.
//
// A key names a variable where it ends with the variable's name, as
// "model.fc.weight" names "fc.weight"; what stands before is the prefix under
// which the model is saved. A checkpoint may hold several models, and one
// model several times (the live weights and a moving average of them).
//
// Threads: pure functions.
#ifndef TRAINCHECK_INVARIANTS_RELATIONS_SAVED_EQUALS_LIVE_SAVED_MODELS_H_
#define TRAINCHECK_INVARIANTS_RELATIONS_SAVED_EQUALS_LIVE_SAVED_MODELS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "invariants/facts/process_facts.h"
#include "invariants/trace/definitions.h"

namespace traincheck {

struct SavedEntry {
  std::string key;
  std::string dtype;
  std::vector<uint64_t> shape;
  std::optional<uint64_t> digest;  // nullopt: no tensor, or not readable
  uint32_t variable = 0;           // in whose storage it lies; 0: in none

  void Fields(Archive& archive);
};

enum class SavedAs {
  kEqual,
  kDiffers,
  kConverted,  // another type or shape: contents cannot be compared
  kUnread,     // one of the two could not be read
};

struct SavedVariable {
  uint32_t variable = 0;
  SavedAs as = SavedAs::kUnread;
};

// One model under one prefix.
struct SavedModel {
  uint32_t root = 0;
  std::string prefix;  // "" or "model."
  std::vector<SavedVariable> variables;
};

// Digests of variables, of those that could be read.
using Digests = std::map<uint32_t, uint64_t>;

// In the order of roots and prefixes. `live` holds what the variables were
// when the checkpoint was saved.
std::vector<SavedModel> FindSavedModels(const std::vector<SavedEntry>& entries,
                                        const ProcessDefinitions& definitions,
                                        const Digests& live);

// Did the last step of its optimizer change a variable?
using IsStepped = std::function<bool(uint32_t variable)>;
IsStepped SteppedIn(const ProcessFacts& facts);

// Is it the live state that is saved, and not a moving average or the best
// state so far? True where at least half of the trainable parameters are equal,
// of those that changed since `before` (the last save) where any did, else of
// those that the last step changed: one that is damaged or stale does not make
// it another state.
bool IsLiveState(const SavedModel& model, const ProcessDefinitions& definitions,
                 const Digests& live, const Digests& before,
                 const IsStepped& is_stepped);

// Is it an average that has been copied from the model not long ago? Where the
// checkpoint holds the model as it is under another prefix, or another model of
// these names as it is under this one.
bool IsAnothers(const SavedModel& model, const std::vector<SavedModel>& all);

// Did a trainable parameter of it change since `before`?
size_t ChangedParameters(const SavedModel& model,
                         const ProcessDefinitions& definitions,
                         const Digests& live, const Digests& before);

// The names of the variables, sorted. REQUIRES: they are defined.
std::vector<std::string> FullNames(const ProcessDefinitions& definitions,
                                   const std::vector<uint32_t>& variables);

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_RELATIONS_SAVED_EQUALS_LIVE_SAVED_MODELS_H_
