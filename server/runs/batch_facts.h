// What the daemon learns from the records of one batch, besides storing them.
//
// Threads: plain values.
#ifndef TRAINCHECK_SERVER_RUNS_BATCH_FACTS_H_
#define TRAINCHECK_SERVER_RUNS_BATCH_FACTS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "proto/record_format.h"

namespace traincheck::server {

struct BatchFacts {
  struct Kind {
    ProcessKind kind = ProcessKind::kUnknown;
    uint32_t worker_id = 0;
    uint32_t owner_pid = 0;
    uint64_t owner_start_ticks = 0;
  };

  // The last of each in the batch.
  std::optional<PlaceRecord> place;
  std::string start;  // nonce that came with the place; "": none
  std::optional<Kind> kind;
  // Steps that closed.
  std::optional<uint64_t> first_step;
  std::optional<uint64_t> last_step;
  // A capture plan began to hold: the last one, and the last step of the batch
  // that had closed by then.
  std::optional<uint64_t> plan_version;
  std::optional<uint64_t> plan_after_step;
  bool clean_exit = false;
  // Of an unclean exit that the process itself has recorded: an ExitCause, 0:
  // none; and the class of the exception, printable.
  uint8_t exit_cause = 0;
  std::string exit_exception;
  std::map<uint32_t, uint64_t> dropped;  // ring -> records in all
  uint64_t unknown_types = 0;            // records of types not known here
};

}  // namespace traincheck::server

#endif  // TRAINCHECK_SERVER_RUNS_BATCH_FACTS_H_
