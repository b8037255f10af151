#include "ctl/render/trace_import.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "ctl/text/table.h"

namespace traincheck::ctl {
namespace {

constexpr size_t kMaxSkippedShown = 20;

// Open calls are those of which the trace has no end.
std::string Processes(const TraceImport& import) {
  Table table({{"PID", Align::kRight},
               {"KIND"},
               {"RANK", Align::kRight},
               {"LINES", Align::kRight},
               {"SKIPPED", Align::kRight},
               {"RECORDS", Align::kRight},
               {"OPEN CALLS", Align::kRight}});
  for (const ImportedProcessRow& process : import.processes) {
    table.AddRow({absl::StrCat(process.pid), process.kind,
                  process.rank ? absl::StrCat(*process.rank) : "-",
                  absl::StrCat(process.lines), absl::StrCat(process.skipped),
                  absl::StrCat(process.records),
                  absl::StrCat(process.incomplete_calls)});
  }
  return table.Render();
}

std::string Skipped(const TraceImport& import) {
  if (import.skipped.empty()) return "";
  Table table({{"SKIPPED IN"}, {"LINE", Align::kRight}, {"BECAUSE"}});
  // Enough to see what is wrong with a file; JSON has all of them.
  const size_t shown = std::min(import.skipped.size(), kMaxSkippedShown);
  for (size_t i = 0; i < shown; ++i) {
    const SkippedLine& line = import.skipped[i];
    table.AddRow({line.file, absl::StrCat(line.line), line.reason});
  }
  std::string text = absl::StrCat("\n", table.Render());
  if (shown < import.skipped.size()) {
    absl::StrAppend(&text, "and ", import.skipped.size() - shown,
                    " more: see -o json\n");
  }
  return text;
}

Json ProcessJson(const ImportedProcessRow& process) {
  Json json;
  json["pid"] = process.pid;
  json["kind"] = process.kind;
  json["rank"] = process.rank ? Json(*process.rank) : Json();
  json["lines"] = process.lines;
  json["skipped"] = process.skipped;
  json["records"] = process.records;
  json["incomplete_calls"] = process.incomplete_calls;
  return json;
}

Json SkippedJson(const SkippedLine& line) {
  Json json;
  json["file"] = line.file;
  json["line"] = line.line;
  json["reason"] = line.reason;
  return json;
}

}  // namespace

std::string TraceImportText(const TraceImport& import) {
  std::string text = absl::StrCat(
      "run          ", import.run, "\nexperiment   ", import.experiment,
      "\nrole         ", import.role, "\nfiles        ", import.files,
      "\nlines        ", import.lines, ", imported ", import.imported(),
      ", skipped ", import.skipped.size(), "\nrecords      ", import.records,
      "\n\n", Processes(import), Skipped(import));
  // Not an error: the lines were imported, and records have no place for these
  // parts of them.
  if (!import.left_out.empty()) {
    Table table({{"HAS NO PLACE IN RECORDS"}, {"TIMES", Align::kRight}});
    for (const auto& [name, times] : import.left_out) {
      table.AddRow({name, absl::StrCat(times)});
    }
    absl::StrAppend(&text, "\n", table.Render());
  }
  return text;
}

// Sums first and lists behind them: the lists may be long.
Json TraceImportJson(const TraceImport& import) {
  Json json;
  json["run"] = import.run;
  json["experiment"] = import.experiment;
  json["role"] = import.role;
  json["files"] = import.files;
  json["lines"] = import.lines;
  json["imported"] = import.imported();
  json["skipped"] = import.skipped.size();
  json["records"] = import.records;
  json["processes"] = ArrayOf(import.processes, ProcessJson);
  json["skipped_lines"] = ArrayOf(import.skipped, SkippedJson);
  json["left_out"] = Json(import.left_out);
  return json;
}

}  // namespace traincheck::ctl
