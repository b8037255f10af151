#include "invariants/relations/traincheck_rules/rule_words.h"

#include <vector>

#include "base/utf8.h"
#include "invariants/relations/traincheck_rules/names.h"

namespace traincheck {

namespace {

using nlohmann::json;

// A constant in a file may be of any length, and the words are for people.
constexpr size_t kMaxValueBytes = 80;

std::string Text(const json& name) { return name.get<std::string>(); }

// By our name, under which users find the function in what the agent records.
std::string Function(const json& param) {
  return OurFunctionName(Text(param.at("api_full_name")));
}

// A value as Python prints it, more or less.
std::string Value(const json& value) {
  if (value.is_null()) return "None";
  if (value.is_boolean()) return value.get<bool>() ? "True" : "False";
  std::string text = value.is_string()
                         ? Text(value)
                         : value.dump(-1, ' ', /*ensure_ascii=*/true);
  // The cut may go through a character.
  if (text.size() > kMaxValueBytes)
    return ToUtf8(text.substr(0, kMaxValueBytes));
  return text;
}

std::string Join(const std::vector<std::string>& parts, const char* glue) {
  std::string text;
  for (const std::string& part : parts) {
    if (!text.empty()) text += glue;
    text += part;
  }
  return text;
}

// " with val=1.0"; "": any arguments.
std::string Arguments(const json& param) {
  if (!param.contains("arguments") || param.at("arguments").is_null())
    return "";
  std::vector<std::string> parts;
  for (const auto& [name, value] : param["arguments"]["args"].items()) {
    parts.push_back(name + "=" + Value(*value.begin()));
  }
  return parts.empty() ? "" : " with " + Join(parts, ", ");
}

// "the data of a torch.nn.Parameter", "the data of model.fc.weight"
std::string Variable(const json& param) {
  const std::string attribute(
      WithoutFieldPrefix(param.at("attr_name").get_ref<const std::string&>()));
  const std::string whose = param.contains("var_name")
                                ? Text(param.at("var_name"))
                                : "a " + Text(param.at("var_type"));
  return "the " + attribute + " of " + whose;
}

// In the place of one value TrainCheck may write a symbol for many.
struct Symbol {
  const char* name;
  const char* words;
};

constexpr Symbol kSymbols[] = {
    {"above_zero", "a value above 0"},
    {"below_zero", "a value below 0"},
    {"non_zero", "a value that is not 0"},
    {"non_positive", "0 or less"},
    {"non_negative", "0 or more"},
    {"non_none", "a value"},
    {"anything", "anything"},
};

// The value before or after a change, or one of the symbols.
std::string ChangeEnd(const json& value) {
  for (const Symbol& symbol : kSymbols) {
    if (value == symbol.name) return symbol.words;
  }
  return Value(value);
}

std::string Contain(const json& params) {
  const std::string text = "Every call of " + Function(params[0]);
  const json& child = params[1];
  if (child.contains("api_full_name")) {
    const bool raises =
        child.contains("exception") && !child.at("exception").is_null();
    return text + " calls " + Function(child) + Arguments(child) +
           (raises ? ", which raises" : "") + ".";
  }
  std::string change = text + " changes " + Variable(child);
  if (child.contains("pre_value")) {
    change += " from " + ChangeEnd(child.at("pre_value"));
  }
  if (child.contains("post_value")) {
    change += " to " + ChangeEnd(child.at("post_value"));
  }
  return change + ".";
}

std::string Consistency(const json& params) {
  // One kind of variable with itself: "equals itself" would say nothing.
  if (params[0] == params[1]) {
    return "Variables agree: " + Variable(params[0]) +
           " equals that of each other one.";
  }
  return "Variables agree: " + Variable(params[0]) + " equals " +
         Variable(params[1]) + ".";
}

std::string Chain(const json& params) {
  std::vector<std::string> names;
  for (const json& param : params) names.push_back(Function(param));
  return Join(names, ", then ");
}

// With two functions the window in which the first is asked for is said as
// well. A longer chain is a list of such pairs.
std::string Cover(const json& params) {
  if (params.size() > 2) {
    return "Each of these is called before the next is: " + Chain(params) + ".";
  }
  return "Before each call of " + Function(params[1]) +
         ", and after the one before it, " + Function(params[0]) +
         " is called.";
}

std::string Lead(const json& params) {
  if (params.size() > 2) {
    return "After each of these the next is called: " + Chain(params) + ".";
  }
  return "After each call of " + Function(params[0]) +
         ", and before its next, " + Function(params[1]) + " is called.";
}

std::string Output(const json& params) {
  std::string text = "Tensors that " + Function(params[0]) + " returns have " +
                     Text(params[1].at("attr_name"));
  if (params[1].contains("const_value")) {
    text += " " + Value(params[1].at("const_value"));
  }
  return text + ".";
}

// "shape[0] of input tensor 0", "argument max_new_tokens"
std::string Place(const json& param) {
  std::string name = Text(param.at("name"));
  const json& index = param.at("index");
  if (name == "input_tensors" || name == "output_tensors") {
    name = name == "input_tensors" ? "input tensor" : "output tensor";
    if (!index.is_null()) name += " " + Value(index);
  } else {
    name = "argument " + name;
  }
  std::string path;
  const json& keys = param.at("additional_path");
  if (keys.is_null()) return name;
  for (const json& key : keys) {
    if (key.is_number()) {
      path += "[" + Value(key) + "]";
    } else {
      path += path.empty() ? "" : ".";
      path += WithoutFieldPrefix(key.get_ref<const std::string&>());
    }
  }
  return path.empty() ? name : path + " of " + name;
}

std::string InputOutput(const json& params) {
  return "In each call of " + Function(params[1]) + ", " + Place(params[0]) +
         " equals " + Place(params[2]) + ".";
}

std::string Threshold(const json& params) {
  return "In each call of " + Function(params[1]) + ", " + Place(params[0]) +
         " is at least " + Place(params[2]) + ".";
}

std::string Distinct(const json& params) {
  return "Calls of " + Function(params[0]) +
         " within one step get different arguments.";
}

std::string Periodic(const json& params) {
  std::string text =
      "Again and again " + Variable(params[0]) + " takes the value";
  if (params[0].contains("const_value")) {
    text += " " + Value(params[0].at("const_value"));
  }
  return text + ".";
}

struct Words {
  const char* relation;
  std::string (*of)(const json& params);
};

// A row for each relation of rule_form.cc.
constexpr Words kWords[] = {
    {"APIContainRelation", Contain},
    {"ConsistencyRelation", Consistency},
    {"FunctionCoverRelation", Cover},
    {"FunctionLeadRelation", Lead},
    {"ConsistentOutputRelation", Output},
    {"ConsistentInputOutputRelation", InputOutput},
    {"ThresholdRelation", Threshold},
    {"DistinctArgumentRelation", Distinct},
    {"VarPeriodicChangeRelation", Periodic},
};

// "meta_vars.stage is training or testing"
std::string Clause(const json& clause) {
  const std::string type = Text(clause.at("type"));
  std::string name = Text(clause.at("prop_name"));
  const json& path = clause.at("additional_path");
  if (path.is_array()) {
    for (const json& key : path) name += "." + Value(key);
  }
  if (type == "consistent") return name + " is the same for all";
  if (type == "unequal") return name + " differs";
  if (type == "exist") return name + " is there";
  std::vector<std::string> values;
  for (const json& value : clause.at("values")) values.push_back(Value(value));
  return name + " is " + Join(values, " or ");
}

// "": it always holds.
std::string Group(const json& group) {
  std::vector<std::string> alternatives;
  for (const json& alternative : group.at("preconditions")) {
    const json& clauses = alternative.at("clauses");
    std::vector<std::string> parts;
    if (clauses.is_array()) {
      for (const json& clause : clauses) parts.push_back(Clause(clause));
    }
    // An alternative without clauses always holds, and with it the whole group.
    if (parts.empty()) return group.at("inverted") ? " It holds nowhere." : "";
    alternatives.push_back(Join(parts, ", and "));
  }
  const bool inverted = group.at("inverted");
  if (alternatives.empty()) return inverted ? "" : " It holds nowhere.";
  return (inverted ? " Holds except where " : " Holds where ") +
         Join(alternatives, "; or where ") + ".";
}

}  // namespace

std::string DescribeRule(const json& rule) {
  std::string text;
  for (const Words& words : kWords) {
    // CheckRuleForm knows the same relations, so one of them matches.
    if (rule.at("relation") == words.relation) {
      text = words.of(rule.at("params"));
    }
  }
  for (const json& group : rule.at("precondition")) text += Group(group);
  return text;
}

}  // namespace traincheck
