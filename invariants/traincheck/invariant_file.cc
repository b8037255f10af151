#include "invariants/traincheck/invariant_file.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "base/json_reader.h"
#include "invariants/relations/registry.h"
#include "invariants/relations/traincheck_rules/rule_form.h"
#include "invariants/rules/relation.h"
#include "invariants/sets/identity.h"
#include "invariants/traincheck/exact_json.h"

namespace traincheck {

namespace {

using nlohmann::json;

constexpr char kFormat[] = "traincheck";
// Keys of a line that do not belong to the content of its rule, in the order in
// which TrainCheck writes them around it.
constexpr char kDescription[] = "text_description";
constexpr const char* kCounts[] = {"num_positive_examples",
                                   "num_negative_examples"};

bool IsBlank(std::string_view line) {
  return line.find_first_not_of(" \t\r") == std::string_view::npos;
}

// A line in its two parts.
struct Line {
  uint64_t number = 0;
  json content;  // relation, params, precondition
  json aside;    // the rest
};

// The frame of a line alone. What its relation asks of params and precondition
// is checked when the rule is parsed.
absl::Status CheckLine(const json& line) {
  JsonReader reader(line, "");
  reader.String("relation");
  reader.Array("params");
  reader.Object("precondition");
  reader.OptionalString(kDescription);
  for (const char* key : kCounts) {
    if (!reader.Has(key)) continue;
    const json& count = reader.Any(key);
    if (!count.is_null() && !count.is_number()) {
      reader.Fail(key, "neither a number nor null");
    }
  }
  return reader.Finish();
}

absl::Status ReadLine(const std::string& text, Line* read) {
  absl::StatusOr<json> line = ParseExactJsonUntrusted(text);
  if (!line.ok()) return line.status();
  if (absl::Status status = CheckLine(*line); !status.ok()) return status;
  read->content = json::object();
  read->aside = json::object();
  for (auto& [key, value] : line->items()) {
    // Only what decides verdicts is content: the id is made of it, so that
    // lines that differ in a description or in counts are one rule.
    const bool of_rule =
        key == "relation" || key == "params" || key == "precondition";
    (of_rule ? read->content : read->aside)[key] = std::move(value);
  }
  return absl::OkStatus();
}

// Each line but blank ones, up to the first error, which then names its line.
absl::Status EachLine(std::string_view text,
                      absl::FunctionRef<absl::Status(Line)> take) {
  bool any = false;
  uint64_t number = 0;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view part = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    ++number;
    if (IsBlank(part)) continue;
    any = true;
    Line line;
    line.number = number;
    absl::Status status = ReadLine(std::string(part), &line);
    if (status.ok()) status = take(std::move(line));
    if (status.ok()) continue;
    return absl::InvalidArgumentError("line " + std::to_string(number) + ": " +
                                      std::string(status.message()));
  }
  // A file without a rule would make a set that checks nothing.
  if (any) return absl::OkStatus();
  return absl::InvalidArgumentError("the file has no rules");
}

uint64_t Support(const json& aside) {
  const auto found = aside.find(kCounts[0]);
  if (found == aside.end() || !found->is_number_unsigned()) return 0;
  return found->get<uint64_t>();
}

// Where the rule stood, and what stood beside it.
json OriginOf(uint64_t line, const json& aside) {
  json origin = aside;
  origin["lines"] = {line};
  return origin;
}

// A rule while its file is read.
struct ReadRule {
  Invariant invariant;
  // By what stands beside a line, as text: 1 and 1.0 are equal to the library,
  // and two texts in a file. 0: the origin itself; n: its copy n - 1.
  absl::flat_hash_map<std::string, size_t> places;
};

// The same rule once more: a line of one that says the same beside it, else a
// copy of its own.
// The origin is what the first of these lines has left (OriginOf).
void AddLine(uint64_t line, const json& aside, ReadRule* rule) {
  json& origin = rule->invariant.origin;
  const auto [found, is_new] =
      rule->places.try_emplace(aside.dump(), rule->places.size());
  if (is_new) return origin["copies"].push_back(OriginOf(line, aside));
  const size_t place = found->second;
  json& entry = place == 0 ? origin : origin["copies"][place - 1];
  entry["lines"].push_back(line);
}

Invariant MakeInvariant(RulePtr rule, const Line& line,
                        const std::vector<std::string>& experiments) {
  Invariant invariant;
  invariant.rule = std::move(rule);
  // Names of user code say nothing to other programs.
  if (NamesTorchOnly(invariant.rule->parameters())) {
    invariant.scope = Scope::kGeneral;
  } else {
    // The scope stays kExperiment, its default. Without an experiment the rule
    // applies to no run, which the command says.
    invariant.experiments = experiments;
    std::sort(invariant.experiments.begin(), invariant.experiments.end());
  }
  invariant.support = Support(line.aside);
  invariant.origin = OriginOf(line.number, line.aside);
  invariant.origin["format"] = kFormat;
  // Neither scope nor origin is part of the id: another import of the file, for
  // another experiment, gives the same ids.
  invariant.id = IdOf(invariant);
  invariant.text = TextOf(invariant);
  return invariant;
}

// A line of a file to be written.
struct Written {
  uint64_t line = std::numeric_limits<uint64_t>::max();  // none
  std::string text;
};

std::string LineText(const json& rule, const json& aside) {
  // The keys of the line are in TrainCheck's order; those within params and
  // precondition are sorted, as json keeps them.
  nlohmann::ordered_json line;
  const auto add = [&line](const json& from, const char* key) {
    if (from.contains(key)) line[key] = from.at(key);
  };
  add(aside, kDescription);
  for (const char* key : {"relation", "params", "precondition"}) add(rule, key);
  for (const char* key : kCounts) add(aside, key);
  return line.dump(-1, ' ', false, json::error_handler_t::replace);
}

// One for each line that this part of an origin names.
void WriteLines(const json& rule, const json& aside,
                std::vector<Written>* written) {
  const auto lines = aside.find("lines");
  if (lines == aside.end() || !lines->is_array()) return;
  for (const json& line : *lines) {
    // The origin comes from a set that anybody may have edited by hand, so a
    // wrong entry counts as not there.
    if (!line.is_number_unsigned()) continue;
    written->push_back({line.get<uint64_t>(), LineText(rule, aside)});
  }
}

void WriteRule(const Invariant& invariant, std::vector<Written>* written) {
  const json& origin = invariant.origin;
  const size_t before = written->size();
  if (origin.is_object() && origin.value("format", json()) == kFormat) {
    WriteLines(invariant.rule->parameters(), origin, written);
    const auto copies = origin.find("copies");
    if (copies != origin.end() && copies->is_array()) {
      for (const json& copy : *copies) {
        if (copy.is_object())
          WriteLines(invariant.rule->parameters(), copy, written);
      }
    }
  }
  // A rule that names no line: its origin is of another format, or of a set
  // that was merged.
  if (written->size() != before) return;
  const json aside = {{kDescription, invariant.text},
                      {kCounts[0], nullptr},
                      {kCounts[1], nullptr}};
  Written line;
  line.text = LineText(invariant.rule->parameters(), aside);
  written->push_back(std::move(line));
}

}  // namespace

absl::StatusOr<std::vector<Invariant>> RulesFromFileUntrusted(
    std::string_view text, const std::vector<std::string>& experiments) {
  std::map<std::string, ReadRule> by_id;
  const auto take = [&](const Line& line) -> absl::Status {
    // The registry always has this relation. Parse checks params and
    // precondition (rule_form.h), and its errors begin with the JSON path in
    // the line.
    auto rule = FindRelation(kTrainCheckRelation)->Parse(line.content, "");
    if (!rule.ok()) return rule.status();
    Invariant invariant = MakeInvariant(*std::move(rule), line, experiments);
    // Lines of one content are one rule, which keeps where each of them stood.
    const auto found = by_id.find(invariant.id);
    if (found == by_id.end()) {
      ReadRule& rule = by_id[invariant.id];
      rule.invariant = std::move(invariant);
      rule.places[line.aside.dump()] = 0;
      return absl::OkStatus();
    }
    AddLine(line.number, line.aside, &found->second);
    uint64_t& support = found->second.invariant.support;
    support = std::max(support, invariant.support);
    return absl::OkStatus();
  };
  if (absl::Status status = EachLine(text, take); !status.ok()) return status;
  std::vector<Invariant> invariants;
  for (auto& [id, rule] : by_id) {
    invariants.push_back(std::move(rule.invariant));
  }
  return invariants;
}

absl::StatusOr<std::vector<RuleLine>> RuleLinesFromFileUntrusted(
    std::string_view text) {
  std::vector<RuleLine> lines;
  const auto take = [&lines](Line line) -> absl::Status {
    // The form alone: the caller judges the JSON itself, also lines that no
    // rule of ours stands for.
    absl::Status status = CheckRuleForm(line.content, "");
    if (!status.ok()) return status;
    lines.push_back({line.number, std::move(line.content)});
    return absl::OkStatus();
  };
  if (absl::Status status = EachLine(text, take); !status.ok()) return status;
  return lines;
}

// A line for each place at which the rule stood in its file, so that an
// imported file comes out with as many lines as it had.
RuleFile FileOfRules(const std::vector<Invariant>& invariants) {
  RuleFile file;
  std::vector<Written> written;
  for (const Invariant& invariant : invariants) {
    if (std::string_view(invariant.rule->relation_name()) ==
        kTrainCheckRelation) {
      WriteRule(invariant, &written);
    } else {
      ++file.left_out;
    }
  }
  // Rules that came from no line have the largest number, and keep their order.
  std::stable_sort(
      written.begin(), written.end(),
      [](const Written& a, const Written& b) { return a.line < b.line; });
  for (const Written& line : written) file.text += line.text + "\n";
  file.lines = written.size();
  return file;
}

}  // namespace traincheck
