#include "invariants/sets/set_json.h"

#include <algorithm>

#include "base/json_reader.h"
#include "invariants/relations/registry.h"
#include "invariants/rules/relation.h"
#include "invariants/sets/identity.h"

namespace traincheck {

namespace {

constexpr char kFormat[] = "traincheck-invariants";
constexpr uint64_t kFormatVersion = 1;

const char* ScopeName(Scope scope) {
  return scope == Scope::kGeneral ? "general" : "experiment";
}

// The precondition reads only facts that the rule offers. Any other is not
// filled in by the rule's windows: it would be unknown in each of them, and the
// rule never decided.
absl::Status CheckFacts(const Rule& rule, const Precondition& precondition,
                        const std::string& path) {
  const auto offered = [&rule](const Fact* fact) {
    return fact == nullptr ||
           std::find(rule.facts().begin(), rule.facts().end(), fact) !=
               rule.facts().end();
  };
  for (const Clause& clause : precondition.Clauses()) {
    if (offered(clause.fact) && offered(clause.other)) continue;
    const Fact* fact = offered(clause.fact) ? clause.other : clause.fact;
    return absl::InvalidArgumentError(path + ".all: " + fact->name +
                                      " is not a fact that this rule can read");
  }
  return absl::OkStatus();
}

// What a document says a rule is.
struct Content {
  std::string relation;
  const nlohmann::json& parameters;
  const nlohmann::json& precondition;
};

absl::Status ReadContent(const Content& content, const std::string& path,
                         Invariant* invariant) {
  const Relation* relation = FindRelation(content.relation);
  if (!relation) {
    return absl::InvalidArgumentError(path + "relation: \"" +
                                      content.relation.substr(0, 64) +
                                      "\" is not a relation of this version");
  }
  // The rule first: it says which facts the precondition may read.
  auto rule = relation->Parse(content.parameters, path + "parameters");
  if (!rule.ok()) return rule.status();
  auto precondition =
      Precondition::FromJson(content.precondition, path + "precondition");
  if (!precondition.ok()) return precondition.status();
  invariant->rule = *std::move(rule);
  invariant->precondition = *std::move(precondition);
  return CheckFacts(*invariant->rule, invariant->precondition,
                    path + "precondition");
}

absl::Status CheckId(const std::string& path, Invariant* invariant) {
  const std::string id = IdOf(*invariant);
  // A rule that somebody writes by hand need not have its id.
  if (invariant->id.empty()) invariant->id = id;
  if (invariant->id == id) return absl::OkStatus();
  return absl::InvalidArgumentError(path + "id: does not fit its content, " +
                                    "which has " + id);
}

absl::StatusOr<Invariant> Read(const nlohmann::json& json,
                               const std::string& path) {
  JsonReader reader(json, path);
  Invariant invariant;
  invariant.id = reader.OptionalString("id");
  const Content content{reader.String("relation"), reader.Object("parameters"),
                        reader.Object("precondition")};
  const std::string scope = reader.String("scope");
  if (scope == ScopeName(Scope::kGeneral)) {
    invariant.scope = Scope::kGeneral;
  } else if (scope != ScopeName(Scope::kExperiment)) {
    reader.Fail("scope", "neither \"general\" nor \"experiment\"");
  }
  invariant.experiments = reader.Strings("experiments");
  // In one order, so that equal sets have equal texts.
  std::sort(invariant.experiments.begin(), invariant.experiments.end());
  invariant.support = reader.Unsigned("support");
  // The text is for people who read the file. It is made anew from the rule:
  // whoever wrote the file could put words here that the rule does not say.
  (void)reader.OptionalString("text");
  if (reader.Has("origin")) invariant.origin = reader.Object("origin");
  if (absl::Status status = reader.Finish(); !status.ok()) return status;
  // A single invariant has no path above it (InvariantFromJson).
  const std::string prefix = path.empty() ? path : path + ".";
  absl::Status status = ReadContent(content, prefix, &invariant);
  if (status.ok()) status = CheckId(prefix, &invariant);
  if (!status.ok()) return status;
  invariant.text = TextOf(invariant);
  return invariant;
}

absl::Status ReadInvariants(const nlohmann::json& array, InvariantSet* set) {
  for (size_t i = 0; i < array.size(); ++i) {
    const std::string path = "invariants[" + std::to_string(i) + "]";
    auto invariant = Read(array[i], path);
    if (!invariant.ok()) return invariant.status();
    set->invariants.push_back(*std::move(invariant));
  }
  // By id, as MergeSets has them: what a check does must not depend on the
  // order in which somebody wrote the rules.
  std::sort(set->invariants.begin(), set->invariants.end(),
            [](const Invariant& a, const Invariant& b) { return a.id < b.id; });
  for (size_t i = 1; i < set->invariants.size(); ++i) {
    if (set->invariants[i].id == set->invariants[i - 1].id) {
      return absl::InvalidArgumentError("invariants: " + set->invariants[i].id +
                                        " is there twice");
    }
  }
  return absl::OkStatus();
}

}  // namespace

nlohmann::json ToJson(const Invariant& invariant) {
  nlohmann::json json = {{"id", invariant.id},
                         {"relation", invariant.rule->relation_name()},
                         {"parameters", invariant.rule->parameters()},
                         {"precondition", invariant.precondition.ToJson()},
                         {"scope", ScopeName(invariant.scope)},
                         {"experiments", invariant.experiments},
                         {"support", invariant.support},
                         {"text", invariant.text}};
  if (!invariant.origin.is_null()) json["origin"] = invariant.origin;
  return json;
}

nlohmann::json ToJson(const InvariantSet& set) {
  nlohmann::json invariants = nlohmann::json::array();
  for (const Invariant& invariant : set.invariants) {
    invariants.push_back(ToJson(invariant));
  }
  return {{"format", kFormat},
          {"format_version", kFormatVersion},
          {"name", set.name},
          {"version", set.version},
          {"runs", set.runs},
          {"created_unix_ns", set.created_unix_ns},
          {"invariants", std::move(invariants)}};
}

absl::StatusOr<Invariant> InvariantFromJson(const nlohmann::json& json) {
  return Read(json, "");
}

// The frame is read to its end before the rules: a file of another format is
// called that, whatever its rules look like.
absl::StatusOr<InvariantSet> SetFromJsonUntrusted(const std::string& text) {
  const absl::StatusOr<nlohmann::json> json = ParseJsonUntrusted(text);
  if (!json.ok()) return json.status();
  JsonReader reader(*json, "");
  InvariantSet set;
  if (reader.String("format") != kFormat) {
    reader.Fail("format", "not \"" + std::string(kFormat) + "\"");
  }
  if (reader.Unsigned("format_version") != kFormatVersion) {
    reader.Fail("format_version", "not a version that this build reads");
  }
  set.name = reader.String("name");
  const uint64_t version = reader.Unsigned("version");
  if (version > UINT32_MAX) reader.Fail("version", "too large");
  // A version that is too large has failed above, and nothing is returned then.
  set.version = static_cast<uint32_t>(version);
  set.runs = reader.Strings("runs");
  set.created_unix_ns = reader.Unsigned("created_unix_ns");
  const nlohmann::json& invariants = reader.Array("invariants");
  if (absl::Status status = reader.Finish(); !status.ok()) return status;
  if (absl::Status status = ReadInvariants(invariants, &set); !status.ok()) {
    return status;
  }
  return set;
}

}  // namespace traincheck
