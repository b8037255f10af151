#include "ctl/render/invariant.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "ctl/render/grade.h"
#include "ctl/render/names.h"
#include "ctl/text/table.h"
#include "ctl/text/terminal.h"
#include "invariants/rules/rule_notes.h"

namespace traincheck::ctl {
namespace {

// The whole rule as the daemon stores it; null if a newer daemon sends what
// this program cannot parse.
Json Definition(const v1::Invariant& invariant) {
  Json json = Json::parse(invariant.json(), nullptr, false);
  return json.is_discarded() ? Json() : json;
}

// The message has no grade: it is a note in the origin of the rule. A rule
// without notes is an alert.
const char* GradeOf(const v1::Invariant& invariant) {
  const Json definition = Definition(invariant);
  if (!definition.is_object() || !definition.contains("origin")) return kAlert;
  return NotesOf(definition["origin"]).advice ? kAdvice : kAlert;
}

}  // namespace

Json InvariantRowJson(const v1::Invariant& invariant) {
  Json json;
  json["id"] = invariant.id();
  json["relation"] = invariant.relation();
  json["text"] = invariant.text();
  json["scope"] = TextOrNull(invariant.scope());
  json["grade"] = GradeOf(invariant);
  json["support"] = invariant.support();
  return json;
}

Json InvariantDetailJson(const v1::Invariant& invariant) {
  Json json = InvariantRowJson(invariant);
  json["sets"] = ArrayOf(invariant.sets());
  json["definition"] = Definition(invariant);
  return json;
}

std::string InvariantsTable(const v1::SetDetail& set) {
  Table table(
      {{"ID"}, {"RELATION"}, {"SCOPE"}, {"SUPPORT", Align::kRight}, {"TEXT"}});
  for (const v1::Invariant& invariant : set.invariants()) {
    table.AddRow({invariant.id(), invariant.relation(),
                  TextOrUnknown(invariant.scope()),
                  std::to_string(invariant.support()), invariant.text()});
  }
  return table.Render(StdoutColumns());
}

std::string InvariantDetailText(const v1::Invariant& invariant) {
  return absl::StrCat(
      "invariant  ", OneLine(invariant.id()), "\nrule       ",
      OneLine(invariant.text()), "\nrelation   ", OneLine(invariant.relation()),
      "\nscope      ", TextOrUnknown(OneLine(invariant.scope())),
      "\nsupport    ", invariant.support(), " windows\nsets       ",
      TextOrUnknown(OneLine(absl::StrJoin(invariant.sets(), ", "))),
      "\ndefinition ", PrettyJson(Definition(invariant)));
}

}  // namespace traincheck::ctl
