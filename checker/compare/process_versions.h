// Of which versions a process says that it is.
//
// Threads: plain values.
#ifndef TRAINCHECK_CHECKER_COMPARE_PROCESS_VERSIONS_H_
#define TRAINCHECK_CHECKER_COMPARE_PROCESS_VERSIONS_H_

#include <string>

#include "invariants/trace/stored_batch.h"

namespace traincheck {

// "": it did not say.
struct ProcessVersions {
  std::string torch;
  std::string python;
  std::string agent;
};

// Takes over what the definitions of this batch say, the last one of each.
void ReadVersions(const StoredBatch& batch, ProcessVersions* versions);

}  // namespace traincheck

#endif  // TRAINCHECK_CHECKER_COMPARE_PROCESS_VERSIONS_H_
