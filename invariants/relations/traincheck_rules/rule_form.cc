#include "invariants/relations/traincheck_rules/rule_form.h"

#include <algorithm>
#include <vector>

#include "absl/strings/match.h"
#include "base/json_reader.h"

namespace traincheck {

namespace {

using nlohmann::json;

// Kinds of params, as bits: the second param of APIContainRelation takes either
// of two.
constexpr unsigned kApi = 1;
constexpr unsigned kVariable = 2;
constexpr unsigned kInputOutput = 4;

struct ParamType {
  const char* name;
  unsigned kind;
};

constexpr ParamType kParamTypes[] = {
    {"APIParam", kApi},
    {"VarTypeParam", kVariable},
    {"VarNameParam", kVariable},
    {"InputOutputParam", kInputOutput},
};

struct RelationForm {
  const char* name;
  std::vector<unsigned> params;
  bool more;  // further ones of the last kind may follow
  std::vector<const char*> groups;
};

// What params a relation takes, in their order, and the groups of its
// precondition, its own condition first. A relation that is not in this table
// is an error (CheckRuleForm), while one that nothing here can judge is read
// and stays unknown.
const RelationForm* FindForm(const std::string& relation) {
  static const auto* const kForms = new std::vector<RelationForm>{
      {"APIContainRelation",
       {kApi, kApi | kVariable},
       false,
       {"parent_func_call_pre", "var_events"}},
      {"ConsistencyRelation", {kVariable, kVariable}, false, {"var"}},
      {"FunctionCoverRelation", {kApi, kApi}, true, {"func_cover"}},
      {"FunctionLeadRelation", {kApi, kApi}, true, {"func_lead"}},
      {"ConsistentOutputRelation", {kApi, kVariable}, false, {"pre_event"}},
      {"ConsistentInputOutputRelation",
       {kInputOutput, kApi, kInputOutput},
       false,
       {"pre_event"}},
      {"ThresholdRelation",
       {kInputOutput, kApi, kInputOutput},
       false,
       {"pre_event"}},
      {"DistinctArgumentRelation", {kApi}, false, {"distinct_arg"}},
      {"VarPeriodicChangeRelation", {kVariable}, false, {"var"}},
  };
  for (const RelationForm& form : *kForms) {
    if (relation == form.name) return &form;
  }
  return nullptr;
}

std::string Place(const std::string& path, size_t index) {
  return path + "[" + std::to_string(index) + "]";
}

void ReadName(const char* key, JsonReader* reader) {
  if (reader->String(key).empty()) reader->Fail(key, "empty");
}

void ReadBool(const char* key, JsonReader* reader) {
  const json& value = reader->Any(key);
  if (!value.is_boolean()) reader->Fail(key, "neither true nor false");
}

// Any value: null is the value None, and an absent key is not checked.
void ReadIfThere(const char* key, JsonReader* reader) {
  if (reader->Has(key)) reader->Any(key);
}

// {"args": {NAME: {TYPE: VALUE}}, "func_name": ...}; null: not checked.
void ReadArguments(JsonReader* param) {
  const json& arguments = param->Any("arguments");
  if (arguments.is_null()) return;
  JsonReader reader(arguments, param->PathOf("arguments"));
  const json& named = reader.Object("args");
  if (reader.Has("func_name")) reader.String("func_name");
  for (const auto& [name, value] : named.items()) {
    if (value.is_object() && value.size() == 1) continue;
    // Foreign text is quoted up to 64 bytes, however long it is in the file.
    reader.Fail("args", "\"" + name.substr(0, 64) +
                            "\" is not an object of one type and its value");
  }
  param->Adopt(reader.Finish());
}

// A function. Keys that are absent are not checked by the rule, so none of them
// is required but the name.
void ReadApi(JsonReader* param) {
  ReadName("api_full_name", param);
  ReadIfThere("exception", param);
  if (param->Has("arguments")) ReadArguments(param);
}

// VarTypeParam speaks of all variables of a type, VarNameParam (`named`) of
// one.
void ReadVariable(bool named, JsonReader* param) {
  ReadName("var_type", param);
  ReadName("attr_name", param);
  if (named) ReadName("var_name", param);
  for (const char* key : {"pre_value", "post_value", "const_value"}) {
    ReadIfThere(key, param);
  }
}

// A list of keys and indices.
bool IsPath(const json& path) {
  return path.is_array() &&
         std::all_of(path.begin(), path.end(), [](const json& key) {
           return key.is_string() || key.is_number_integer();
         });
}

void ReadInputOutput(JsonReader* param) {
  ReadName("name", param);
  const json& index = param->Any("index");
  if (!index.is_null() && !index.is_number_integer()) {
    param->Fail("index", "neither an integer nor null");
  }
  param->String("type");
  const json& path = param->Any("additional_path");
  if (!path.is_null() && !IsPath(path)) {
    param->Fail("additional_path", "neither a list of keys nor null");
  }
  ReadName("api_name", param);
  ReadBool("is_input", param);
}

absl::Status CheckParam(const json& param, unsigned wanted,
                        const std::string& path) {
  JsonReader reader(param, path);
  const std::string type = reader.String("param_type");
  const auto* known =
      std::find_if(std::begin(kParamTypes), std::end(kParamTypes),
                   [&](const ParamType& entry) { return type == entry.name; });
  if (known == std::end(kParamTypes)) {
    reader.Fail("param_type",
                "\"" + type.substr(0, 64) +
                    "\" is not a kind of param that is known here");
    return reader.Finish();
  }
  if ((known->kind & wanted) == 0) {
    reader.Fail("param_type", type + " does not stand here in this relation");
  }
  // The keys of its kind are read even where it does not stand here: else they
  // would be reported as unknown.
  if (known->kind == kApi) ReadApi(&reader);
  if (known->kind == kVariable) ReadVariable(type == "VarNameParam", &reader);
  if (known->kind == kInputOutput) ReadInputOutput(&reader);
  return reader.Finish();
}

absl::Status CheckParams(const json& params, const RelationForm& form,
                         const std::string& path) {
  const size_t least = form.params.size();
  if (params.size() < least || (params.size() > least && !form.more)) {
    return absl::InvalidArgumentError(
        path + ": has " + std::to_string(params.size()) + ", " + form.name +
        " has " + std::to_string(least) + (form.more ? " or more" : ""));
  }
  for (size_t i = 0; i < params.size(); ++i) {
    // Further params are of the kind of the last one.
    const unsigned wanted = form.params[std::min(i, least - 1)];
    absl::Status status = CheckParam(params[i], wanted, Place(path, i));
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status CheckClause(const json& clause, const std::string& path) {
  JsonReader reader(clause, path);
  const std::string type = reader.String("type");
  const bool constant = type == "constant";
  if (!constant && type != "consistent" && type != "unequal" &&
      type != "exist") {
    reader.Fail("type", "\"" + type.substr(0, 64) +
                            "\" is not a kind of clause that is known here");
  }
  ReadName("prop_name", &reader);
  const json& keys = reader.Any("additional_path");
  // TrainCheck writes None as a text here, and as null in params.
  if (!keys.is_null() && keys != "None" && !IsPath(keys)) {
    reader.Fail("additional_path", "neither \"None\" nor a list of keys");
  }
  // Says how Python printed the values. The values themselves have types in
  // JSON.
  ReadIfThere("prop_dtype", &reader);
  if (constant) reader.Array("values");
  return reader.Finish();
}

// Clauses of an alternative must all hold. "Unconditional" is how TrainCheck
// writes an empty list.
absl::Status CheckAlternative(const json& alternative,
                              const std::string& path) {
  JsonReader reader(alternative, path);
  const json& clauses = reader.Any("clauses");
  if (clauses != "Unconditional" && !clauses.is_array()) {
    reader.Fail("clauses", "neither \"Unconditional\" nor a list");
  }
  absl::Status status = reader.Finish();
  if (!status.ok() || !clauses.is_array()) return status;
  for (size_t i = 0; i < clauses.size() && status.ok(); ++i) {
    status = CheckClause(clauses[i], Place(path + ".clauses", i));
  }
  return status;
}

absl::Status CheckGroup(const json& group, const std::string& path) {
  JsonReader reader(group, path);
  ReadBool("inverted", &reader);
  const json& alternatives = reader.Array("preconditions");
  absl::Status status = reader.Finish();
  for (size_t i = 0; i < alternatives.size() && status.ok(); ++i) {
    status =
        CheckAlternative(alternatives[i], Place(path + ".preconditions", i));
  }
  return status;
}

absl::Status CheckPrecondition(const json& precondition,
                               const RelationForm& form,
                               const std::string& path) {
  // The first group is the rule's own condition; others may be absent.
  if (!precondition.contains(form.groups[0])) {
    return absl::InvalidArgumentError(path + "." + form.groups[0] +
                                      ": missing");
  }
  for (const auto& [name, group] : precondition.items()) {
    const bool known = std::any_of(
        form.groups.begin(), form.groups.end(),
        [&name = name](const char* known) { return name == known; });
    if (!known) {
      return absl::InvalidArgumentError(path + "." + name.substr(0, 64) +
                                        ": no group of " + form.name);
    }
    absl::Status status = CheckGroup(group, path + "." + name);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

bool IsTorchs(const json& name) {
  return absl::StartsWith(name.get_ref<const std::string&>(), "torch.");
}

// Does a clause of the group fix the name of a variable? A variable's name is
// one of the user's program, and no other program has it.
bool FixesName(const json& group) {
  for (const json& alternative : group.at("preconditions")) {
    const json& clauses = alternative.at("clauses");
    if (!clauses.is_array()) continue;
    for (const json& clause : clauses) {
      if (clause.at("prop_name") == "var_name" && clause.contains("values")) {
        return true;
      }
    }
  }
  return false;
}

}  // namespace

absl::Status CheckRuleForm(const json& rule, const std::string& path) {
  JsonReader reader(rule, path);
  const std::string relation = reader.String("relation");
  const RelationForm* form = FindForm(relation);
  if (form == nullptr) {
    reader.Fail("relation", "\"" + relation.substr(0, 64) +
                                "\" is not a relation of TrainCheck's that is "
                                "known here");
  }
  const json& params = reader.Array("params");
  const json& precondition = reader.Object("precondition");
  // From here on params are a list and the precondition is an object.
  if (absl::Status status = reader.Finish(); !status.ok()) return status;
  absl::Status status = CheckParams(params, *form, reader.PathOf("params"));
  if (!status.ok()) return status;
  return CheckPrecondition(precondition, *form, reader.PathOf("precondition"));
}

bool NamesTorchOnly(const json& rule) {
  for (const json& param : rule.at("params")) {
    for (const char* key : {"api_full_name", "api_name", "var_type"}) {
      if (param.contains(key) && !IsTorchs(param.at(key))) return false;
    }
    // The name of a variable is the program's, whatever its type.
    if (param.contains("var_name")) return false;
  }
  for (const json& group : rule.at("precondition")) {
    if (FixesName(group)) return false;
  }
  return true;
}

}  // namespace traincheck
