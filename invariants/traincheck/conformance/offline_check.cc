#include "invariants/traincheck/conformance/offline_check.h"

#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "invariants/relations/traincheck_rules/rule_words.h"
#include "invariants/traincheck/conformance/checked_line.h"
#include "invariants/traincheck/conformance/conformance_trace.h"
#include "invariants/traincheck/conformance/line_relations.h"

namespace traincheck {

namespace {

using nlohmann::json;

struct RelationCheck {
  const char* name;
  LineResult (*check)(const CheckedLine& line, ConformanceTrace* trace);
};

// By TrainCheck's names. VarPeriodicChangeRelation, which CheckRuleForm knows
// as well, is disabled in its checker and so not in the table.
constexpr RelationCheck kRelations[] = {
    {"APIContainRelation", CheckContain},
    {"ConsistencyRelation", CheckConsistency},
    {"ConsistentOutputRelation", CheckOutput},
    {"ConsistentInputOutputRelation", CheckInputOutput},
    {"ThresholdRelation", CheckThreshold},
    {"FunctionCoverRelation", CheckCover},
    {"FunctionLeadRelation", CheckLead},
    {"DistinctArgumentRelation", CheckDistinct},
};

// FailedPrecondition stands for every place at which TrainCheck raises an
// error.
LineResult CheckLine(const json& rule, ConformanceTrace* trace) {
  for (const RelationCheck& relation : kRelations) {
    if (rule.at("relation") != relation.name) continue;
    const absl::StatusOr<CheckedLine> line =
        ReadCheckedLine(rule, &trace->table());
    if (!line.ok()) return line.status();
    return relation.check(*line, trace);
  }
  return absl::FailedPreconditionError("TrainCheck has this relation disabled");
}

TracePlace PlaceOf(const TableRow& row, const TraceTable& table) {
  TracePlace place;
  place.file = table.files()[row.file];
  place.line = row.line;
  place.pid = row.pid;
  place.thread = row.thread;
  place.time = row.time;
  const PyValue step = table.At(row, "meta_vars.step");
  if (!step.absent()) place.step = PyValueText(step);
  place.what = row.function != nullptr ? *row.function
                                       : table.At(row, "var_name").text();
  return place;
}

void Judge(const json& rule, ConformanceTrace* trace, JudgedLine* line) {
  LineResult result = CheckLine(rule, trace);
  // Where TrainCheck ends with an error, this line alone has no verdict. Those
  // behind it are judged all the same.
  if (!result.ok()) {
    line->verdict = LineVerdict::kNotCheckable;
    line->reason = std::string(result.status().message());
    return;
  }
  line->verdict = result->verdict;
  line->reason = std::move(result->why);
  for (const TableRow* row : result->rows) {
    line->where.push_back(PlaceOf(*row, trace->table()));
  }
}

}  // namespace

// Errors are only of files that cannot be read; everything that TrainCheck
// itself would refuse or stop at becomes a verdict.
absl::StatusOr<OfflineCheck> CheckOfflineUntrusted(
    const std::string& folder, const std::vector<RuleLine>& rules) {
  absl::StatusOr<std::unique_ptr<TraceTable>> table =
      TraceTable::ReadUntrusted(folder);
  if (!table.ok()) return table.status();
  OfflineCheck check;
  check.files = (*table)->files().size();
  // Before Load takes lines out of it.
  check.trace_lines = (*table)->rows().size();
  const absl::StatusOr<std::unique_ptr<ConformanceTrace>> trace =
      ConformanceTrace::Load(*std::move(table));
  // A refused trace is a result and not an error of this function: every line
  // gets the verdict "not checkable" for this reason.
  if (!trace.ok()) check.refused = std::string(trace.status().message());
  // One after the other, in the order of the file: what a line writes into
  // records is seen by those behind it (trace_record.h).
  for (const RuleLine& rule : rules) {
    JudgedLine& line = check.lines.emplace_back();
    line.line = rule.number;
    line.relation = rule.content.at("relation").get<std::string>();
    line.text = DescribeRule(rule.content);
    if (trace.ok()) {
      Judge(rule.content, trace->get(), &line);
    } else {
      line.verdict = LineVerdict::kNotCheckable;
      line.reason = absl::StrCat("TrainCheck refuses the trace: ",
                                 trace.status().message());
    }
  }
  return check;
}

}  // namespace traincheck
