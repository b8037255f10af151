#include "invariants/traincheck/invariant_file.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <utility>

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
// Keys of a line that are no content, in the order in which TrainCheck writes
// them around it.
constexpr char kDescription[] = "text_description";
constexpr const char* kCounts[] = {"num_positive_examples",
                                   "num_negative_examples"};

bool IsBlank(std::string_view line) {
  return line.find_first_not_of(" \t\r") == std::string_view::npos;
}

// A line in its two parts.
struct Line {
  RulePtr rule;  // of relation, params, precondition
  json aside;    // the rest
};

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

absl::StatusOr<Line> ReadLine(const std::string& text) {
  absl::StatusOr<json> line = ParseExactJsonUntrusted(text);
  if (!line.ok()) return line.status();
  if (absl::Status status = CheckLine(*line); !status.ok()) return status;
  json content = json::object();
  json aside = json::object();
  for (auto& [key, value] : line->items()) {
    const bool of_rule =
        key == "relation" || key == "params" || key == "precondition";
    (of_rule ? content : aside)[key] = std::move(value);
  }
  auto rule = FindRelation(kTrainCheckRelation)->Parse(content, "");
  if (!rule.ok()) return rule.status();
  return Line{*std::move(rule), std::move(aside)};
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

// The same rule once more: a line of one that says the same beside it, else a
// copy of its own.
void AddLine(uint64_t line, const json& aside, json* origin) {
  const auto same = [&aside](json entry) {
    entry.erase("format");
    entry.erase("copies");
    entry.erase("lines");
    // 1 and 1.0 are equal to the library, and two texts in a file.
    return entry.dump() == aside.dump();
  };
  if (same(*origin)) return (*origin)["lines"].push_back(line);
  json& copies = (*origin)["copies"];
  for (json& copy : copies) {
    if (same(copy)) return copy["lines"].push_back(line);
  }
  copies.push_back(OriginOf(line, aside));
}

Invariant MakeInvariant(Line line, uint64_t number,
                        const std::vector<std::string>& experiments) {
  Invariant invariant;
  invariant.rule = std::move(line.rule);
  if (NamesTorchOnly(invariant.rule->parameters())) {
    invariant.scope = Scope::kGeneral;
  } else {
    invariant.experiments = experiments;
    std::sort(invariant.experiments.begin(), invariant.experiments.end());
  }
  invariant.support = Support(line.aside);
  invariant.origin = OriginOf(number, line.aside);
  invariant.origin["format"] = kFormat;
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
  std::map<std::string, Invariant> by_id;
  uint64_t number = 0;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view part = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    ++number;
    if (IsBlank(part)) continue;
    absl::StatusOr<Line> line = ReadLine(std::string(part));
    if (!line.ok()) {
      return absl::InvalidArgumentError("line " + std::to_string(number) +
                                        ": " +
                                        std::string(line.status().message()));
    }
    const json aside = line->aside;
    Invariant invariant = MakeInvariant(*std::move(line), number, experiments);
    const auto found = by_id.find(invariant.id);
    if (found == by_id.end()) {
      by_id.emplace(invariant.id, std::move(invariant));
      continue;
    }
    AddLine(number, aside, &found->second.origin);
    found->second.support = std::max(found->second.support, invariant.support);
  }
  if (by_id.empty()) {
    return absl::InvalidArgumentError("the file has no rules");
  }
  std::vector<Invariant> invariants;
  for (auto& [id, invariant] : by_id) {
    invariants.push_back(std::move(invariant));
  }
  return invariants;
}

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
  std::stable_sort(
      written.begin(), written.end(),
      [](const Written& a, const Written& b) { return a.line < b.line; });
  for (const Written& line : written) file.text += line.text + "\n";
  file.lines = written.size();
  return file;
}

}  // namespace traincheck
