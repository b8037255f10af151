// What was recorded, in words, for people who compare two runs. Nothing in them
// differs from run to run of one program: no ids, no identities of memory.
//
// Threads: pure functions.
#ifndef TRAINCHECK_CHECKER_COMPARE_VALUE_WORDS_H_
#define TRAINCHECK_CHECKER_COMPARE_VALUE_WORDS_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "invariants/trace/call_values.h"
#include "invariants/trace/definitions.h"
#include "invariants/trace/events.h"
#include "proto/record_format.h"

namespace traincheck {

// " after the backward", to follow the name of a variable.
const char* PointWords(StatePoint point);
// The shortest text that reads back as this number: "0.1", "nan".
std::string NumberWords(double value);
// "content 09af31c0d2e4b677"
std::string DigestWords(uint64_t digest);
// "0.1", "\"mean\"", "float32 [64, 10] on cpu", "list of 3: 1, 2, 3".
std::string ValueWords(const CallValue& value,
                       const ProcessDefinitions& definitions);
// The names and values that a context was made with: "enabled=True".
std::string ContentWords(std::string_view content,
                         const ProcessDefinitions& definitions);
// "float32 [10, 64], trainable"
std::string VariableWords(const VariableInfo& variable);
// "float32 [10, 64], content 09af31c0d2e4b677"
std::string EntryWords(const CheckpointEntryEvent& entry);

}  // namespace traincheck

#endif  // TRAINCHECK_CHECKER_COMPARE_VALUE_WORDS_H_
