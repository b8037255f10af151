#include "ctl/render/offline_check.h"

#include <algorithm>
#include <map>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "ctl/render/names.h"
#include "ctl/text/table.h"

namespace traincheck::ctl {
namespace {

// Of the lines that are not checkable for one reason.
constexpr size_t kMaxLinesShown = 20;

struct VerdictName {
  LineVerdict verdict;
  const char* name;
};

// As TrainCheck's own result files are called.
constexpr VerdictName kVerdicts[] = {
    {LineVerdict::kFailed, "failed"},
    {LineVerdict::kPassed, "passed"},
    {LineVerdict::kNotTriggered, "not_triggered"},
    {LineVerdict::kNotCheckable, "not_checkable"},
};

// These names are keys and values of the JSON output, on which scripts rely.
const char* NameOf(LineVerdict verdict) {
  const auto* found =
      std::find_if(std::begin(kVerdicts), std::end(kVerdicts),
                   [&](const VerdictName& v) { return v.verdict == verdict; });
  // All verdicts are in the table.
  return found->name;
}

std::vector<std::string> Cells(const std::string& relation,
                               const LineCounts& counts) {
  return {relation, absl::StrCat(counts.failed), absl::StrCat(counts.passed),
          absl::StrCat(counts.not_triggered),
          absl::StrCat(counts.not_checkable)};
}

std::string Summary(const OfflineCheck& check) {
  Table table({{"RELATION"},
               {"FAILED", Align::kRight},
               {"PASSED", Align::kRight},
               {"NOT TRIGGERED", Align::kRight},
               {"NOT CHECKABLE", Align::kRight}});
  std::map<std::string, LineCounts> relations;
  for (const JudgedLine& line : check.lines) {
    relations[line.relation].Add(line.verdict);
  }
  for (const auto& [relation, counts] : relations) {
    table.AddRow(Cells(relation, counts));
  }
  // One relation is its own sum.
  if (relations.size() > 1) table.AddRow(Cells("all", CountLines(check)));
  return table.Render();
}

// The file and the line to look at, and for people which process and step that
// was.
std::string Where(const TracePlace& place) {
  return absl::StrCat(
      place.file, " line ", place.line, ": ", place.what, ", process ",
      place.pid, place.step.empty() ? "" : absl::StrCat(", step ", place.step));
}

// Each failed line with the first place at which it fails, where TrainCheck
// stops.
std::string Failed(const OfflineCheck& check) {
  std::string text;
  for (const JudgedLine& line : check.lines) {
    if (line.verdict != LineVerdict::kFailed) continue;
    absl::StrAppend(&text, "\nline ", line.line,
                    " failed: ", OneLine(line.text), "\n  ",
                    OneLine(line.reason), "\n");
    for (const TracePlace& place : line.where) {
      absl::StrAppend(&text, "  ", OneLine(Where(place)), "\n");
    }
  }
  return text;
}

// Many lines are not checkable for one reason.
std::string NotCheckable(const OfflineCheck& check) {
  std::map<std::string, std::vector<uint64_t>> reasons;
  for (const JudgedLine& line : check.lines) {
    if (line.verdict == LineVerdict::kNotCheckable) {
      reasons[line.reason].push_back(line.line);
    }
  }
  std::string text;
  for (const auto& [reason, lines] : reasons) {
    const size_t shown = std::min(lines.size(), kMaxLinesShown);
    absl::StrAppend(&text, "\n", Counted(lines.size(), "line"),
                    " not checkable: ", OneLine(reason), "\n  line ",
                    absl::StrJoin(lines.begin(), lines.begin() + shown, ", "));
    if (shown < lines.size()) {
      absl::StrAppend(&text, " and ", lines.size() - shown,
                      " more: see -o json");
    }
    absl::StrAppend(&text, "\n");
  }
  return text;
}

// With process, thread and time as the trace has them, so that the line can be
// found again in TrainCheck's own files.
Json PlaceJson(const TracePlace& place) {
  Json json;
  json["file"] = place.file;
  json["line"] = place.line;
  json["what"] = place.what;
  json["process_id"] = place.pid;
  json["thread_id"] = place.thread;
  json["time"] = place.time;
  json["step"] = TextOrNull(place.step);
  return json;
}

Json LineJson(const JudgedLine& line) {
  Json json;
  json["line"] = line.line;
  json["relation"] = line.relation;
  json["text"] = line.text;
  json["verdict"] = NameOf(line.verdict);
  json["reason"] = TextOrNull(line.reason);
  json["where"] = ArrayOf(line.where, PlaceJson);
  return json;
}

}  // namespace

void LineCounts::Add(LineVerdict verdict) {
  switch (verdict) {
    case LineVerdict::kFailed:
      ++failed;
      break;
    case LineVerdict::kPassed:
      ++passed;
      break;
    case LineVerdict::kNotTriggered:
      ++not_triggered;
      break;
    case LineVerdict::kNotCheckable:
      ++not_checkable;
      break;
  }
}

LineCounts CountLines(const OfflineCheck& check) {
  LineCounts counts;
  for (const JudgedLine& line : check.lines) counts.Add(line.verdict);
  return counts;
}

// A trace that TrainCheck refuses needs no line of its own: all lines of the
// file are not checkable for that reason.
std::string OfflineCheckText(const OfflineCheckResult& result) {
  const OfflineCheck& check = result.check;
  return absl::StrCat("trace        ", OneLine(result.trace), ", ",
                      Counted(check.files, "file"), ", ",
                      Counted(check.trace_lines, "line"), "\ninvariants   ",
                      OneLine(result.invariants), ", ",
                      Counted(check.lines.size(), "line"), "\n\n",
                      Summary(check), Failed(check), NotCheckable(check));
}

Json OfflineCheckJson(const OfflineCheckResult& result) {
  const OfflineCheck& check = result.check;
  Json json;
  json["compat"] = "traincheck";
  json["trace"] = result.trace;
  json["invariants"] = result.invariants;
  json["files"] = check.files;
  json["trace_lines"] = check.trace_lines;
  json["refused"] = TextOrNull(check.refused);
  Json& by_line = json["verdicts_by_line"];
  for (const VerdictName& verdict : kVerdicts) {
    // All verdicts are keys, also those that no line has.
    by_line[verdict.name] = Json::array();
  }
  for (const JudgedLine& line : check.lines) {
    by_line[NameOf(line.verdict)].push_back(line.line);
  }
  json["lines"] = ArrayOf(check.lines, LineJson);
  return json;
}

}  // namespace traincheck::ctl
