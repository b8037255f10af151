// What became of a folder that was imported as a run.
#ifndef TRAINCHECK_CTL_RENDER_TRACE_IMPORT_H_
#define TRAINCHECK_CTL_RENDER_TRACE_IMPORT_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "ctl/render/json.h"
#include "invariants/traincheck/trace_folder.h"

namespace traincheck::ctl {

struct ImportedProcessRow {
  uint32_t pid = 0;
  std::string kind;  // "main", "other"
  std::optional<int32_t> rank;
  uint64_t lines = 0;    // of its own
  uint64_t skipped = 0;  // of these
  uint64_t records = 0;
  uint64_t incomplete_calls = 0;
};

struct TraceImport {
  std::string run;
  std::string experiment;
  std::string role;
  uint64_t files = 0;
  uint64_t lines = 0;  // of all files
  uint64_t records = 0;
  std::vector<ImportedProcessRow> processes;
  std::vector<SkippedLine> skipped;
  // What records have no place for, by name.
  std::map<std::string, uint64_t> left_out;

  // Each line is one or the other.
  uint64_t imported() const { return lines - skipped.size(); }
};

// Tables for people, with the first skipped lines only.
std::string TraceImportText(const TraceImport& import);
Json TraceImportJson(const TraceImport& import);

}  // namespace traincheck::ctl

#endif  // TRAINCHECK_CTL_RENDER_TRACE_IMPORT_H_
