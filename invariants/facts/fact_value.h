// A fact with a value, as preconditions and rules name it: in JSON, and in
// words.
//
// Threads: pure functions.
#ifndef TRAINCHECK_INVARIANTS_FACTS_FACT_VALUE_H_
#define TRAINCHECK_INVARIANTS_FACTS_FACT_VALUE_H_

#include <string>

#include "base/json_reader.h"
#include "invariants/facts/fact.h"
#include "nlohmann/json.hpp"

namespace traincheck {

nlohmann::json FactToJson(const FactValue& value);

// The fact under the key. Null: none of this version; said to the reader.
const Fact* ReadFact(const char* key, JsonReader* reader);
// The value under "value", of the fact's type. Unknown: it is not; said to the
// reader. `fact` may be null.
FactValue ReadFactValue(const Fact* fact, JsonReader* reader);

// "gradients are enabled", "not (gradients are enabled)", "the stage is
// \"init\"".
std::string Describe(const Fact& fact, const FactValue& value);

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_FACTS_FACT_VALUE_H_
