#include "invariants/traincheck/conformance/checked_line.h"

#include <utility>

namespace traincheck {

namespace {

using nlohmann::json;

// Absent and null are two things: see LineParam.
std::optional<PyValue> Optional(const json& param, const char* key,
                                PyPool* pool) {
  const auto found = param.find(key);
  if (found == param.end()) return std::nullopt;
  return pool->FromJson(*found);
}

void ReadFunction(const json& param, PyPool* pool, LineParam* read) {
  read->name = param.at("api_full_name").get<std::string>();
  read->exception = Optional(param, "exception", pool);
  const auto arguments = param.find("arguments");
  // Null arguments are none that are asked for, unlike a null exception.
  if (arguments != param.end() && !arguments->is_null()) {
    read->arguments = pool->FromJson(arguments->at("args"));
  }
}

// The var_name of a VarNameParam is not read: TrainCheck's checker compares
// type and attribute and leaves the name aside (contain_events.cc).
void ReadVariable(const json& param, PyPool* pool, LineParam* read) {
  read->name = param.at("var_type").get<std::string>();
  read->attribute = param.at("attr_name").get<std::string>();
  read->before = Optional(param, "pre_value", pool);
  read->after = Optional(param, "post_value", pool);
  read->constant = Optional(param, "const_value", pool);
}

void ReadInputOutput(const json& param, PyPool* pool, LineParam* read) {
  read->name = param.at("name").get<std::string>();
  // Null stays the value None, by which no list can be indexed: PyItem then
  // fails as Python does.
  read->index = pool->FromJson(param.at("index"));
  read->path = pool->FromJson(param.at("additional_path"));
  read->input = param.at("is_input").get<bool>();
}

LineParam ReadParam(const json& param, PyPool* pool) {
  LineParam read;
  const json& type = param.at("param_type");
  if (type == "APIParam") {
    ReadFunction(param, pool, &read);
  } else if (type == "InputOutputParam") {
    read.kind = LineParam::Kind::kInputOutput;
    ReadInputOutput(param, pool, &read);
  } else {
    read.kind = type == "VarTypeParam" ? LineParam::Kind::kVariableType
                                       : LineParam::Kind::kVariableName;
    ReadVariable(param, pool, &read);
  }
  return read;
}

}  // namespace

// CheckRuleForm has found the keys that are taken for granted here and above.
// Values go into the pool of the table, because they are compared with its
// values and live as long.
absl::StatusOr<CheckedLine> ReadCheckedLine(const json& rule,
                                            TraceTable* table) {
  CheckedLine line;
  for (const json& param : rule.at("params")) {
    line.params.push_back(ReadParam(param, &table->pool()));
  }
  for (const auto& [name, group] : rule.at("precondition").items()) {
    absl::StatusOr<LineCondition> condition = LineCondition::Read(group, table);
    if (!condition.ok()) return condition.status();
    line.conditions.emplace(name, *std::move(condition));
  }
  return line;
}

}  // namespace traincheck
