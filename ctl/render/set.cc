#include "ctl/render/set.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "ctl/render/invariant.h"
#include "ctl/render/names.h"
#include "ctl/text/table.h"
#include "ctl/text/terminal.h"

namespace traincheck::ctl {

Json SetRowJson(const v1::SetSummary& set) {
  Json json;
  json["name"] = set.name();
  json["version"] = set.version();
  json["invariants"] = set.invariants();
  json["created"] = TimeOrNull(set.created_unix_ns());
  // The runs that the set was learned from; none for one that was imported.
  json["runs"] = ArrayOf(set.runs());
  json["owner"] = TextOrNull(set.owner());
  return json;
}

Json SetDetailJson(const v1::SetDetail& set) {
  Json json = SetRowJson(set.summary());
  json["members"] = ArrayOf(set.invariants(), InvariantRowJson);
  return json;
}

// Also the answer to commands that make a set, which then has one row.
std::string SetsTable(const std::vector<v1::SetSummary>& sets) {
  Table table({{"NAME"},
               {"VERSION", Align::kRight},
               {"INVARIANTS", Align::kRight},
               {"CREATED"},
               {"RUNS"}});
  for (const v1::SetSummary& set : sets) {
    table.AddRow({set.name(), std::to_string(set.version()),
                  std::to_string(set.invariants()),
                  TimeOrUnknown(set.created_unix_ns()),
                  TextOrUnknown(absl::StrJoin(set.runs(), ","))});
  }
  return table.Render(StdoutColumns());
}

std::string SetDetailText(const v1::SetDetail& set) {
  const v1::SetSummary& summary = set.summary();
  return absl::StrCat(
      "set         ", OneLine(summary.name()), " version ", summary.version(),
      "\ncreated     ", TimeOrUnknown(summary.created_unix_ns()),
      "\nruns        ",
      TextOrUnknown(OneLine(absl::StrJoin(summary.runs(), ", "))),
      "\ninvariants  ", summary.invariants(), "\n\n", InvariantsTable(set));
}

}  // namespace traincheck::ctl
