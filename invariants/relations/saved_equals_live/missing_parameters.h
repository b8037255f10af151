// Which parameters of a model a checkpoint lacks, and which of them nobody
// leaves out on purpose.
//
// Threads: pure functions.
#ifndef TRAINCHECK_INVARIANTS_RELATIONS_SAVED_EQUALS_LIVE_MISSING_PARAMETERS_H_
#define TRAINCHECK_INVARIANTS_RELATIONS_SAVED_EQUALS_LIVE_MISSING_PARAMETERS_H_

#include <cstdint>
#include <set>
#include <vector>

#include "invariants/relations/saved_equals_live/saved_models.h"

namespace traincheck {

// Of one model, in all files of a checkpoint.
struct SavedPart {
  uint32_t root = 0;
  std::set<uint32_t> saved;         // its variables that are there
  Digests live;                     // of all variables, when they were saved
  std::set<uint64_t> digests = {};  // of all that is there, whatever its name

  void Fields(Archive& archive);
};

// Parameters of the root that are live, are not saved, under their names or
// others (a library may translate names), and are tied to none that is. Tied is
// what shares the storage and is equal, or a part of what is saved (a flat
// parameter); two parts of one storage are no ties.
std::vector<uint32_t> MissingParameters(const SavedPart& part,
                                        const ProcessDefinitions& definitions);

// Of the missing ones, those of modules without children of which something
// else is saved. Not those that are frozen where all that is saved of the
// module is trainable: adapters are saved so.
std::vector<uint32_t> MissingInModules(const SavedPart& part,
                                       const std::vector<uint32_t>& missing,
                                       const ProcessDefinitions& definitions);

// Of the missing ones, the trainable ones that optimizers hold.
std::vector<uint32_t> MissingOfOptimizers(
    const std::vector<uint32_t>& missing,
    const ProcessDefinitions& definitions);

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_RELATIONS_SAVED_EQUALS_LIVE_MISSING_PARAMETERS_H_
