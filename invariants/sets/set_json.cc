#include "invariants/sets/set_json.h"

#include <algorithm>

#include "base/json_reader.h"
#include "invariants/relations/registry.h"
#include "invariants/rules/precondition.h"
#include "invariants/sets/identity.h"

namespace traincheck {

namespace {

constexpr char kFormat[] = "traincheck-invariants";
constexpr uint64_t kFormatVersion = 1;

const char* ScopeName(Scope scope) {
  return scope == Scope::kGeneral ? "general" : "experiment";
}

// The precondition reads only facts that its relation offers for such rules.
absl::Status CheckFacts(const Relation& relation, const Invariant& invariant,
                        const Precondition& precondition,
                        const std::string& path) {
  const auto facts = relation.FactsFor(invariant.parameters);
  const auto offered = [&facts](const Fact* fact) {
    return fact == nullptr ||
           std::find(facts.begin(), facts.end(), fact) != facts.end();
  };
  for (const Clause& clause : precondition.Clauses()) {
    if (offered(clause.fact) && offered(clause.other)) continue;
    const Fact* fact = offered(clause.fact) ? clause.other : clause.fact;
    return absl::InvalidArgumentError(path + ".all: " + fact->name +
                                      " is no fact that this rule can read");
  }
  return absl::OkStatus();
}

absl::Status CheckContent(const std::string& path, Invariant* invariant) {
  const Relation* relation = FindRelation(invariant->relation);
  if (!relation) {
    return absl::InvalidArgumentError(path + "relation: \"" +
                                      invariant->relation.substr(0, 64) +
                                      "\" is not a relation of this version");
  }
  absl::Status status =
      relation->Check(invariant->parameters, path + "parameters");
  if (!status.ok()) return status;
  auto precondition =
      Precondition::FromJson(invariant->precondition, path + "precondition");
  if (!precondition.ok()) return precondition.status();
  status =
      CheckFacts(*relation, *invariant, *precondition, path + "precondition");
  if (!status.ok()) return status;
  invariant->precondition = precondition->ToJson();
  const std::string id = IdOf(*invariant);
  if (invariant->id.empty()) invariant->id = id;
  if (invariant->id != id) {
    return absl::InvalidArgumentError(path + "id: does not fit its content, " +
                                      "which has " + id);
  }
  invariant->text = TextOf(*invariant);
  return absl::OkStatus();
}

absl::StatusOr<Invariant> Read(const nlohmann::json& json,
                               const std::string& path) {
  JsonReader reader(json, path);
  Invariant invariant;
  invariant.id = reader.OptionalString("id");
  invariant.relation = reader.String("relation");
  invariant.parameters = reader.Object("parameters");
  invariant.precondition = reader.Object("precondition");
  const std::string scope = reader.String("scope");
  if (scope == ScopeName(Scope::kGeneral)) {
    invariant.scope = Scope::kGeneral;
  } else if (scope != ScopeName(Scope::kExperiment)) {
    reader.Fail("scope", "neither \"general\" nor \"experiment\"");
  }
  invariant.experiments = reader.Strings("experiments");
  std::sort(invariant.experiments.begin(), invariant.experiments.end());
  invariant.support = reader.Unsigned("support");
  // For people who read the file. Who wrote it could say what the rule does
  // not.
  (void)reader.OptionalString("text");
  if (reader.Has("origin")) invariant.origin = reader.Object("origin");
  if (absl::Status status = reader.Finish(); !status.ok()) return status;
  const absl::Status status =
      CheckContent(path.empty() ? path : path + ".", &invariant);
  if (!status.ok()) return status;
  return invariant;
}

absl::Status ReadInvariants(const nlohmann::json& array, InvariantSet* set) {
  for (size_t i = 0; i < array.size(); ++i) {
    const std::string path = "invariants[" + std::to_string(i) + "]";
    auto invariant = Read(array[i], path);
    if (!invariant.ok()) return invariant.status();
    set->invariants.push_back(*std::move(invariant));
  }
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
                         {"relation", invariant.relation},
                         {"parameters", invariant.parameters},
                         {"precondition", invariant.precondition},
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
