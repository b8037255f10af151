// Gives what a trace defines to the tables of a test that have no process
// reader around them.
//
// Threads: one object, one thread at a time.
#ifndef TRAINCHECK_INVARIANTS_FACTS_DEFINITIONS_FOR_TESTING_H_
#define TRAINCHECK_INVARIANTS_FACTS_DEFINITIONS_FOR_TESTING_H_

#include "invariants/facts/ownership.h"
#include "invariants/testing/trace_builder.h"
#include "proto/record_reader.h"

namespace traincheck {

// Takes the batches of the trace. `defined` is called with the type and the id
// of each definition, once the tables have it.
template <typename Defined>
void DefineForTesting(TraceBuilder* trace, ProcessDefinitions* definitions,
                      Ownership* ownership, Defined defined) {
  for (const StoredBatch& batch : trace->TakeBatches()) {
    RecordReader records(batch.plain);
    while (records.Next()) {
      if (!IsDefinition(records.header().type)) continue;
      definitions->Apply(records);
      ownership->OnDefinition(records.type());
      defined(records.type(), records.Get<DefinitionRecord>().id);
    }
  }
}

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_FACTS_DEFINITIONS_FOR_TESTING_H_
