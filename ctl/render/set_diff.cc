#include "ctl/render/set_diff.h"

#include <map>

#include "absl/strings/str_cat.h"
#include "ctl/render/invariant.h"
#include "ctl/text/table.h"

namespace traincheck::ctl {
namespace {

// Sorted by id, so that two sets always give the same text.
std::map<std::string, const v1::Invariant*> ById(const v1::SetDetail& set) {
  std::map<std::string, const v1::Invariant*> by_id;
  for (const v1::Invariant& invariant : set.invariants()) {
    by_id[invariant.id()] = &invariant;
  }
  return by_id;
}

Json NameJson(const v1::SetSummary& set) {
  Json json;
  json["name"] = set.name();
  json["version"] = set.version();
  return json;
}

std::string Line(char sign, const v1::Invariant& invariant,
                 const std::string& scope) {
  return absl::StrCat(std::string(1, sign), " ", invariant.id(), " ",
                      invariant.relation(), " (", scope,
                      "): ", OneLine(invariant.text()), "\n");
}

}  // namespace

// By ids alone: texts of rules may change from one version of this project to
// the next, ids do not.
SetDiff DiffSets(const v1::SetDetail& a, const v1::SetDetail& b) {
  SetDiff diff;
  diff.a = a.summary();
  diff.b = b.summary();
  const auto in_a = ById(a);
  const auto in_b = ById(b);
  for (const auto& [id, invariant] : in_a) {
    // An id is a hash of what the rule says. The scope is not part of it, so
    // the same rule may stand in both with another one.
    const auto other = in_b.find(id);
    if (other == in_b.end()) {
      diff.only_a.push_back(*invariant);
    } else if (other->second->scope() != invariant->scope()) {
      diff.rescoped.emplace_back(*invariant, *other->second);
    } else {
      ++diff.same;
    }
  }
  for (const auto& [id, invariant] : in_b) {
    if (in_a.count(id) == 0) diff.only_b.push_back(*invariant);
  }
  return diff;
}

Json SetDiffJson(const SetDiff& diff) {
  Json json;
  json["a"] = NameJson(diff.a);
  json["b"] = NameJson(diff.b);
  json["only_a"] = ArrayOf(diff.only_a, InvariantRowJson);
  json["only_b"] = ArrayOf(diff.only_b, InvariantRowJson);
  json["rescoped"] = Json::array();
  for (const auto& [a, b] : diff.rescoped) {
    Json row;
    row["id"] = a.id();
    row["relation"] = a.relation();
    row["text"] = a.text();
    row["a"] = a.scope();
    row["b"] = b.scope();
    json["rescoped"].push_back(std::move(row));
  }
  json["same"] = diff.same;
  return json;
}

std::string SetDiffText(const SetDiff& diff) {
  std::string text = absl::StrCat(
      "- ", OneLine(diff.a.name()), " version ", diff.a.version(), "\n+ ",
      OneLine(diff.b.name()), " version ", diff.b.version(), "\n");
  for (const v1::Invariant& invariant : diff.only_a) {
    absl::StrAppend(&text, Line('-', invariant, invariant.scope()));
  }
  for (const v1::Invariant& invariant : diff.only_b) {
    absl::StrAppend(&text, Line('+', invariant, invariant.scope()));
  }
  for (const auto& [a, b] : diff.rescoped) {
    absl::StrAppend(&text,
                    Line('~', a, absl::StrCat(a.scope(), ", now ", b.scope())));
  }
  absl::StrAppend(&text, diff.only_a.size(), " removed, ", diff.only_b.size(),
                  " added, ", diff.rescoped.size(), " of another scope, ",
                  diff.same, " the same\n");
  return text;
}

}  // namespace traincheck::ctl
