// A folder that TrainCheck wrote: trace_API_*, trace_VAR_*, proxy_log.json.
//
// It is read twice. The first time each line is parsed and only its place is
// kept, by process and time; the second time the lines of one process are read
// in that order. So memory grows by 40 bytes a line, whatever a line holds.
//
// Threads: one object, one thread at a time.
#ifndef TRAINCHECK_INVARIANTS_TRAINCHECK_TRACE_FOLDER_H_
#define TRAINCHECK_INVARIANTS_TRAINCHECK_TRACE_FOLDER_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "invariants/traincheck/trace_line.h"

namespace traincheck {

// A line of which nothing could be made.
struct SkippedLine {
  std::string file;
  uint64_t line = 0;  // from 1
  std::string reason;
};

// Where a line stands.
struct LinePlace {
  uint64_t order_ns = 0;  // its time; of calls never before that of the last
  uint64_t offset = 0;
  uint64_t line = 0;
  uint32_t bytes = 0;
  uint32_t file = 0;
};

struct TraceProcess {
  uint32_t pid = 0;
  std::vector<LinePlace> lines;  // as they follow each other
  uint64_t first_ns = 0;
  uint64_t last_ns = 0;
  uint64_t main_thread = 0;  // that of its first call, else its first line
  bool has_calls = false;
  // Does it do what only a process that trains does?
  bool trains = false;
  // As init_process_group or meta_vars say it.
  std::optional<int32_t> rank;
  int32_t world = 0;  // 0: not told
};

class TraceFolder {
 public:
  // NotFound: no such folder, or nothing of a trace in it. Lines that are
  // malformed are no error: see skipped().
  static absl::StatusOr<std::unique_ptr<TraceFolder>> Open(
      const std::string& path);
  ~TraceFolder();
  TraceFolder(const TraceFolder&) = delete;
  TraceFolder& operator=(const TraceFolder&) = delete;

  // By pid. The worlds of ranks without one are as large as their ranks.
  const std::vector<TraceProcess>& processes() const { return processes_; }
  size_t files() const { return files_.size(); }
  // Of all files, those skipped among them.
  uint64_t lines() const { return lines_; }
  const std::vector<SkippedLine>& skipped() const { return skipped_; }
  // Nanoseconds after 1970: the last change of any of the files.
  uint64_t changed_unix_ns() const { return changed_unix_ns_; }

  const std::string& FileName(const LinePlace& place) const;
  // The line once more; an error if the file has changed since.
  absl::StatusOr<TraceLine> Read(const LinePlace& place) const;

 private:
  struct File {
    std::string name;
    int fd = -1;
  };
  class Indexer;

  TraceFolder() = default;
  void SettlePlaces();

  std::vector<File> files_;
  std::vector<TraceProcess> processes_;
  std::vector<SkippedLine> skipped_;
  uint64_t lines_ = 0;
  uint64_t changed_unix_ns_ = 0;
};

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_TRAINCHECK_TRACE_FOLDER_H_
