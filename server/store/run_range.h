// All that the store holds of one run, as ranges of keys.
//
// Threads: pure functions.
#ifndef TRAINCHECK_SERVER_STORE_RUN_RANGE_H_
#define TRAINCHECK_SERVER_STORE_RUN_RANGE_H_

#include <cstdint>
#include <string>

#include "server/store/store.h"

namespace traincheck::server {

// Where the batches of the run begin and end.
struct KeyRange {
  std::string from;
  std::string to;
};
KeyRange BatchesOf(uint64_t run);

// Batches, quarantined ones among them.
void DeleteRecordsOf(uint64_t run, WriteSet* writes);
// Records, books, plans, the check, its violations and what was said of them.
void DeleteAllOf(uint64_t run, WriteSet* writes);

}  // namespace traincheck::server

#endif  // TRAINCHECK_SERVER_STORE_RUN_RANGE_H_
