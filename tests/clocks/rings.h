// What agent/capture/relay_for_testing.py wrote of one process.
#ifndef TRAINCHECK_TESTS_CLOCKS_RINGS_H_
#define TRAINCHECK_TESTS_CLOCKS_RINGS_H_

#include <string>

#include "invariants/trace/stored_batch.h"

namespace traincheck {

// The rings of one process, from files FOLDER/<pid>.<ring>, as one batch.
StoredBatch ReadRings(const std::string& folder, const std::string& pid);

}  // namespace traincheck

#endif  // TRAINCHECK_TESTS_CLOCKS_RINGS_H_
