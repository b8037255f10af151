// What a call tells: its arguments, with the defaults of those not given, and
// its result. RECORD_FORMAT.md, "Values".
//
// Decoded on demand from the bytes that Call and FunctionInfo keep, and
// trusting nothing: what cannot be read is unknown.
// Threads: plain values.
#ifndef TRAINCHECK_INVARIANTS_TRACE_CALL_VALUES_H_
#define TRAINCHECK_INVARIANTS_TRACE_CALL_VALUES_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "invariants/trace/definitions.h"
#include "invariants/trace/events.h"

namespace traincheck {

struct TensorValue {
  std::string dtype;     // "torch.float32"; "" for one that is not known here
  std::string device;    // "cpu", "cuda:0"; "" likewise
  uint8_t layout = 0;    // c10::Layout
  uint64_t storage = 0;  // equal for views of one memory; 0: not known
  // None: not looked at.
  std::optional<bool> requires_grad;
  std::optional<bool> has_grad_fn;
  // None: the tensor does not tell. At most the first kMaxFieldDimensions.
  std::optional<uint64_t> dimensions;
  std::vector<uint64_t> sizes;
  std::optional<uint64_t> digest;
};

// An object that has a definition.
struct ObjectValue {
  uint32_t object = 0;
};

// Something of which only the class is told.
struct OtherValue {
  std::string class_name;
};

struct NoneValue {};

struct CallElement;

struct CallValue {
  // monostate: told in a way that this build does not know.
  std::variant<std::monostate, NoneValue, bool, int64_t, double, std::string,
               TensorValue, ObjectValue, OtherValue>
      value;
  std::optional<uint64_t> length;  // of a container, or of a text not told
  // The first elements of a container, by "0", "1" or their keys.
  std::vector<CallElement> elements;

  template <typename T>
  const T* Get() const {
    return std::get_if<T>(&value);
  }
};

struct CallElement {
  std::string name;
  CallValue value;
};

struct CallArgument {
  std::string name;  // of the parameter; "args[1]" beyond them
  CallValue value;
  bool is_default = false;
};

struct ToldArguments {
  std::vector<CallArgument> all;
  // Some did not fit into the record: an argument that is not here may have
  // been given.
  bool cut = false;

  // Null: not told.
  const CallValue* Find(std::string_view name) const;
};

// Those that the capture plan wanted told.
ToldArguments ArgumentsOf(const Call& call,
                          const ProcessDefinitions& definitions);
// The same of fields that name all that they tell.
ToldArguments ArgumentsOf(std::string_view content,
                          const ProcessDefinitions& definitions);

// None: not told, or it has not ended.
std::optional<CallValue> ResultOf(const Call& call,
                                  const ProcessDefinitions& definitions);

// Memory of the tensor; 0: not told, or no tensor. Null is not told.
uint64_t StorageOf(const CallValue* value);

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_TRACE_CALL_VALUES_H_
