#include "invariants/traincheck/trace_folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "invariants/relations/traincheck_rules/names.h"
#include "invariants/traincheck/function_kind.h"
#include "invariants/traincheck/trace_files.h"

namespace traincheck {

namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// A line is held and parsed as a whole, and LinePlace has 32 bits for its size.
constexpr uint64_t kMaxLineBytes = 64u << 20;

// A number, also where an older version wrote it as text.
std::optional<int32_t> SmallNumber(const json& value) {
  int64_t number = -1;
  if (value.is_number_integer()) {
    number = value.get<int64_t>();
  } else if (!value.is_string() ||
             !absl::SimpleAtoi(value.get_ref<const std::string&>(), &number)) {
    return std::nullopt;
  }
  // One below the largest, because SettlePlaces adds 1 to a rank.
  if (number < 0 || number > std::numeric_limits<int32_t>::max() - 1) {
    return std::nullopt;
  }
  return static_cast<int32_t>(number);
}

// The number in {"int": 8}.
std::optional<int32_t> NumberOf(const json& arguments, const char* name) {
  const auto found = arguments.find(name);
  if (found == arguments.end() || !found->is_object() || found->empty()) {
    return std::nullopt;
  }
  return SmallNumber(*found->begin());
}

void LearnPlace(const TraceLine& line, TraceProcess* process) {
  const json& meta = line.Object("meta_vars");
  if (meta.is_object()) {
    for (const auto& [name, value] : meta.items()) {
      if (!absl::EndsWith(name, "DATA_PARALLEL_RANK")) continue;
      const auto rank = SmallNumber(value);
      // What init_process_group was given counts before it: among all ranks,
      // and not those of one group.
      if (rank && !process->rank) process->rank = rank;
    }
  }
  if (line.kind != TraceLineKind::kCallBegin ||
      !absl::EndsWith(line.function(), ".init_process_group")) {
    return;
  }
  const json& arguments = line.Object("kwargs");
  if (!arguments.is_object()) return;
  const auto rank = NumberOf(arguments, "rank");
  const auto world = NumberOf(arguments, "world_size");
  if (rank) process->rank = rank;
  if (world) process->world = *world;
}

// A process with one of these calls trains; the others of a trace are
// launchers, loaders' workers and helpers (IdentityOf).
bool OnlyTrainingCalls(const TraceLine& line) {
  const bool bound = line.Any("is_bound_method") == true;
  const std::string category =
      KindOfFunction(OurFunctionName(line.function()), bound).category;
  return category == "backward" || category == "optimizer_init" ||
         category == "optimizer_step" || category == "init_process_group";
}

}  // namespace

// Takes the lines of all files, one file after the other.
// The first of the two readings. What is wrong with a line is found here, so
// that the second reading meets only lines that can be parsed.
class TraceFolder::Indexer {
 public:
  explicit Indexer(TraceFolder* folder) : folder_(*folder) {}

  absl::Status AddFile(const std::string& path, const std::string& name) {
    // Stays open for Read, so that the second look is at this file, whatever
    // its name stands for by then.
    const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) return Unreadable(path);
    file_ = static_cast<uint32_t>(folder_.files_.size());
    folder_.files_.push_back({name, fd});
    struct stat status = {};
    if (fstat(fd, &status) == 0) {
      const uint64_t changed =
          static_cast<uint64_t>(status.st_mtim.tv_sec) * 1'000'000'000 +
          static_cast<uint64_t>(status.st_mtim.tv_nsec);
      folder_.changed_unix_ns_ = std::max(folder_.changed_unix_ns_, changed);
    }
    // Calls are in order within a file, not across files.
    last_call_ns_ = 0;
    std::ifstream in(path, std::ios::binary);
    LinePlace place;
    place.file = file_;
    for (std::string text; std::getline(in, text);) {
      ++place.line;
      // A last line without an end is taken if it can be read, and is called
      // cut off if it cannot.
      Take(text, /*whole=*/!in.eof(), place);
      place.offset += text.size() + 1;
    }
    // getline stops at an error of the disk as at the end of the file; bad()
    // shows which of the two it was.
    return in.bad() ? Unreadable(path) : absl::OkStatus();
  }

  void Finish() {
    for (auto& [pid, process] : processes_) {
      // Lines of one time stay as the files have them.
      std::stable_sort(process.lines.begin(), process.lines.end(),
                       [](const LinePlace& a, const LinePlace& b) {
                         return a.order_ns < b.order_ns;
                       });
      process.first_ns = process.lines.front().order_ns;
      process.last_ns = process.lines.back().order_ns;
      folder_.processes_.push_back(std::move(process));
    }
  }

 private:
  static absl::Status Unreadable(const std::string& path) {
    return absl::NotFoundError("cannot read \"" + path +
                               "\": " + std::strerror(errno));
  }

  void Skip(const LinePlace& place, std::string reason) {
    folder_.skipped_.push_back(
        {folder_.files_[file_].name, place.line, std::move(reason)});
  }

  void Take(const std::string& text, bool whole, LinePlace place) {
    ++folder_.lines_;
    if (text.find_first_not_of(" \t\r") == std::string::npos) {
      return Skip(place, "an empty line");
    }
    if (text.size() > kMaxLineBytes) {
      return Skip(place, "longer than 64 MiB");
    }
    const absl::StatusOr<TraceLine> line = ParseTraceLineUntrusted(text);
    if (!line.ok()) {
      return Skip(place, whole ? std::string(line.status().message())
                               : "the last line, cut off in the middle");
    }
    place.bytes = static_cast<uint32_t>(text.size());
    place.order_ns = line->time_ns;
    if (line->is_call()) {
      // Calls of a file stand in their order; a variable's time is that of
      // its last change, which may lie before the line above it.
      last_call_ns_ = std::max(last_call_ns_, line->time_ns);
      place.order_ns = last_call_ns_;
    }
    Learn(*line, place);
  }

  // What the first reading keeps of a line: its place, and what it says of its
  // process as a whole. The line itself is read again later.
  void Learn(const TraceLine& line, const LinePlace& place) {
    TraceProcess& process = processes_[line.pid];
    process.pid = line.pid;
    uint64_t& first = first_ns_[line.pid];
    // Files come one after the other, so that an earlier line may come later.
    // Calls count before states: the first call replaces what states have said,
    // and only an earlier call replaces that.
    const bool first_call = line.is_call() && !process.has_calls;
    const bool earlier = process.lines.empty() || place.order_ns < first;
    if (first_call || (earlier && line.is_call() == process.has_calls)) {
      first = place.order_ns;
      process.main_thread = line.thread;
    }
    process.has_calls |= line.is_call();
    process.lines.push_back(place);
    LearnPlace(line, &process);
    process.trains = process.trains || IsOfTraining(line);
  }

  bool IsOfTraining(const TraceLine& line) {
    if (!line.is_call()) return true;
    // Each function is matched against the patterns once, and not each of its
    // calls.
    const auto [known, added] = of_training_.try_emplace(line.function());
    if (added) known->second = OnlyTrainingCalls(line);
    return known->second;
  }

  TraceFolder& folder_;
  uint32_t file_ = 0;
  uint64_t last_call_ns_ = 0;
  std::map<uint32_t, TraceProcess> processes_;
  std::map<uint32_t, uint64_t> first_ns_;    // of what settles main_thread
  std::map<std::string, bool> of_training_;  // by function
};

TraceFolder::~TraceFolder() {
  for (const File& file : files_) close(file.fd);
}

// All ranks of a trace are one world. Some processes name its size
// (init_process_group), others only a rank of theirs (meta_vars), so the
// largest size that any of them implies holds for all.
void TraceFolder::SettlePlaces() {
  int32_t world = 0;
  for (const TraceProcess& process : processes_) {
    world = std::max(world, process.world);
    if (process.rank) world = std::max(world, *process.rank + 1);
  }
  for (TraceProcess& process : processes_) {
    if (process.rank) process.world = world;
  }
}

absl::StatusOr<std::unique_ptr<TraceFolder>> TraceFolder::Open(
    const std::string& path) {
  const absl::StatusOr<std::vector<std::string>> names = TraceFilesIn(path);
  if (!names.ok()) return names.status();
  std::unique_ptr<TraceFolder> folder(new TraceFolder);
  Indexer indexer(folder.get());
  for (const std::string& name : *names) {
    absl::Status status = indexer.AddFile((fs::path(path) / name).string(),  //
                                          name);
    if (!status.ok()) return status;
  }
  indexer.Finish();
  folder->SettlePlaces();
  return folder;
}

const std::string& TraceFolder::FileName(const LinePlace& place) const {
  return files_[place.file].name;
}

absl::StatusOr<TraceLine> TraceFolder::Read(const LinePlace& place) const {
  std::string text(place.bytes, '\0');
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t n =
        pread(files_[place.file].fd, text.data() + done, text.size() - done,
              static_cast<off_t>(place.offset + done));
    if (n < 0 && errno == EINTR) continue;
    // The file ends before the line does: somebody has shortened it since it
    // was indexed.
    if (n <= 0) {
      return absl::DataLossError(files_[place.file].name +
                                 " has changed while it was read");
    }
    done += static_cast<size_t>(n);
  }
  // Checked once more: other bytes may stand there by now.
  return ParseTraceLineUntrusted(text);
}

}  // namespace traincheck
