// Values as TrainCheck serialises them, {TYPE: VALUE}, written as the fields
// of a call record (proto/RECORD_FORMAT.md, "Values").
//
// Threads: pure functions over their arguments.
#ifndef TRAINCHECK_INVARIANTS_TRAINCHECK_TRACE_VALUES_H_
#define TRAINCHECK_INVARIANTS_TRAINCHECK_TRACE_VALUES_H_

#include <string>

#include "invariants/traincheck/definition_writer.h"
#include "nlohmann/json.hpp"
#include "proto/record_writer.h"

namespace traincheck {

class TraceValues {
 public:
  // Both must outlive this object. Once a value has not fitted, a record tells
  // no more.
  TraceValues(DefinitionWriter* definitions, FieldWriter* out)
      : definitions_(*definitions), out_(*out) {}

  // An argument under this name.
  void Argument(const std::string& name, const nlohmann::json& value);
  // What the call returned: one value, or a list of those of a tuple.
  void Result(const nlohmann::json& value);

 private:
  struct Typed {
    const std::string& type;
    const nlohmann::json& value;
  };

  // False: a value that is no object of one type.
  bool Value(const std::string& name, const nlohmann::json& value);
  // False: a container or an object of some class.
  bool Plain(const std::string& name, const Typed& typed);
  void Tuple(const nlohmann::json& elements);
  void List(const std::string& type, const nlohmann::json& elements);
  void Mapping(const std::string& type, const nlohmann::json& entries);
  void Element(const std::string& name, const nlohmann::json& value);
  void Text(const std::string& name, const std::string& type,
            const std::string& text);
  void Number(const nlohmann::json& number);
  void Tensor(const Typed& typed);
  void Type(const std::string& type);
  void Finish(size_t from);

  DefinitionWriter& definitions_;
  FieldWriter& out_;
  bool full_ = false;
};

// Has a tensor among these a function that made it? `searched`: there was a
// tensor that tells.
struct GradFnSearch {
  bool searched = false;
  bool found = false;
};
GradFnSearch FindGradFn(const nlohmann::json& result);

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_TRAINCHECK_TRACE_VALUES_H_
