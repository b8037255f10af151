#include "invariants/traincheck/trace_records.h"

#include <algorithm>
#include <utility>

#include "invariants/traincheck/conversion.h"
#include "invariants/traincheck/trace_calls.h"
#include "invariants/traincheck/trace_states.h"

namespace traincheck {

namespace {

using nlohmann::json;

// The clock ticks after boot in which Linux counts, 100 a second.
constexpr uint64_t kTickNs = 10'000'000;
// More than that in one go is a broken counter.
constexpr uint64_t kMaxStepsAtOnce = 1'000'000;

struct StageName {
  const char* theirs;
  UserStage ours;
};

// A stage that is not in the table (checkpointing, preprocessing, ...) has no
// counterpart here, so calls in it have no stage (StageOf).
constexpr StageName kStages[] = {
    {"init", UserStage::kInit},
    {"training", UserStage::kTraining},
    {"evaluation", UserStage::kEvaluation},
    {"testing", UserStage::kEvaluation},
    {"inference", UserStage::kEvaluation},
};

UserStage StageOf(const std::string& name) {
  for (const StageName& stage : kStages) {
    if (name == stage.theirs) return stage.ours;
  }
  return UserStage::kNone;
}

// TraceFolder has read it already (LearnPlace), so it is not left out.
bool IsPlaceName(const std::string& name) {
  constexpr char kRank[] = "DATA_PARALLEL_RANK";
  const size_t size = sizeof kRank - 1;
  return name.size() >= size &&
         name.compare(name.size() - size, size, kRank) == 0;
}

// One process on its way.
class Converter {
 public:
  Converter(const TraceFolder& folder, const TraceProcess& process,
            const ImportedProcess& identity, RecordStream::Deliver deliver)
      : folder_(folder),
        process_(process),
        is_main_(identity.kind == ProcessKind::kMain),
        stream_(process.first_ns, AheadNs(process, identity),
                std::move(deliver)),
        definitions_(identity, &stream_),
        conversion_(&definitions_, &stream_, process.main_thread),
        calls_(&conversion_),
        states_(&conversion_, process.has_calls) {}

  absl::Status Run() {
    TraceThread* main = conversion_.Thread(process_.main_thread);
    // Before all events: they are then of a rank that is known.
    WritePlace(*main);
    for (const LinePlace& place : process_.lines) {
      const absl::StatusOr<TraceLine> line = folder_.Read(place);
      if (!line.ok()) return line.status();
      stream_.SetTime(place.order_ns);
      const std::string reason = Take(*line);
      if (!reason.empty()) {
        report_.skipped.push_back(
            {folder_.FileName(place), place.line, reason});
      }
      stream_.CutIfFull();
      if (!stream_.status().ok()) return stream_.status();
    }
    // A trace does not say how its process ended: it counts as one that ended
    // in order.
    conversion_.Mark(main, MarkKind::kCleanExit, 0, 0);
    stream_.Cut();
    return stream_.status();
  }

  ProcessReport TakeReport() {
    report_.lines = process_.lines.size();
    report_.records = stream_.records();
    report_.incomplete_calls = conversion_.CountOpenCalls();
    report_.left_out = conversion_.left_out();
    report_.rings = stream_.totals();
    return std::move(report_);
  }

 private:
  static int64_t AheadNs(const TraceProcess& process,
                         const ImportedProcess& identity) {
    return static_cast<int64_t>(identity.started_unix_ns) -
           static_cast<int64_t>(process.first_ns);
  }

  void WritePlace(const TraceThread& main) {
    // A training without a rank is rank 0 of 1. What does not train has no
    // place.
    PlaceRecord place = {};
    place.local_rank = -1;
    if (process_.rank) {
      place.rank = *process_.rank;
      place.world_size = process_.world;
      place.source = static_cast<uint32_t>(PlaceSource::kProcessGroup);
    } else if (is_main_) {
      place.world_size = 1;
      place.source = static_cast<uint32_t>(PlaceSource::kSingle);
    } else {
      return;
    }
    stream_.Write(main.ring, RecordType::kPlace, 0, place);
  }

  // Why nothing became of it; "": it did.
  // A reason is shown to the user with file and line; it never ends the import.
  std::string Take(const TraceLine& line) {
    TraceThread* thread = conversion_.Thread(line.thread);
    if (thread == nullptr) {
      return "the process has more threads than can be numbered";
    }
    // Where there are calls, they say when steps end: a variable's time is
    // older than what stands beside it. What a line says of step and stage
    // holds for the line itself, so it comes first.
    if (line.is_call() || !process_.has_calls) FollowMeta(line, thread);
    if (line.is_call()) return calls_.Take(line, thread);
    states_.Take(line, *thread, calls_.stepped());
    return "";
  }

  void FollowMeta(const TraceLine& line, TraceThread* thread) {
    const json& meta = line.Object("meta_vars");
    if (!meta.is_object()) return;
    for (const auto& [name, value] : meta.items()) {
      if (name == "step" && value.is_number_unsigned()) {
        // On one thread alone, so that each step ends once.
        if (thread->ring == kMainRing) FollowStep(value, thread);
      } else if (name == "stage" && value.is_string()) {
        FollowStage(value, thread);
      } else if (!IsPlaceName(name)) {
        conversion_.LeaveOut("meta_vars." + name);
      }
    }
  }

  void FollowStep(uint64_t step, TraceThread* thread) {
    if (CountsAnew(step, *thread)) {
      step_ = step;
      conversion_.Mark(thread, MarkKind::kUserStep, 0, 0);
      return;
    }
    // Otherwise a counter that falls ends no step.
    const uint64_t before = std::exchange(step_, std::max(step, step_));
    // Where the counter stood at first says nothing of steps in this trace.
    if (!has_step_) {
      has_step_ = true;
      return;
    }
    const uint64_t ended = step_ - before;
    for (uint64_t i = 0; i < std::min(ended, kMaxStepsAtOnce); ++i) {
      conversion_.Mark(thread, MarkKind::kUserStep, 0, 0);
      stream_.CutIfFull();
    }
  }

  // Has an epoch begun that counts its own steps? An evaluation may do so, too,
  // with the same counter. Lines of variables may be late.
  bool CountsAnew(uint64_t step, const TraceThread& thread) const {
    return process_.has_calls && step <= 1 && step < step_ &&
           thread.stage != UserStage::kEvaluation;
  }

  void FollowStage(const std::string& name, TraceThread* thread) {
    const UserStage stage = StageOf(name);
    if (stage == thread->stage) return;
    thread->stage = stage;
    conversion_.Mark(thread, MarkKind::kUserStage, 0,
                     static_cast<uint64_t>(stage));
  }

  const TraceFolder& folder_;
  const TraceProcess& process_;
  const bool is_main_;
  RecordStream stream_;
  DefinitionWriter definitions_;
  Conversion conversion_;
  TraceCalls calls_;
  TraceStates states_;
  uint64_t step_ = 0;
  bool has_step_ = false;
  ProcessReport report_;
};

// The trace's own clock began at boot, and nothing says when that was: the
// last line of all is taken to be as old as the files.
uint64_t StartedUnixNs(const TraceFolder& folder, const TraceProcess& process) {
  uint64_t last_ns = 0;
  for (const TraceProcess& other : folder.processes()) {
    last_ns = std::max(last_ns, other.last_ns);
  }
  const uint64_t age_ns = last_ns - process.first_ns;
  const uint64_t changed = folder.changed_unix_ns();
  return changed > age_ns ? changed - age_ns : 1;
}

}  // namespace

ImportedProcess IdentityOf(const TraceFolder& folder,
                           const TraceProcess& process, bool alone) {
  ImportedProcess identity;
  identity.pid = process.pid;
  // The trace has no start time: its first line stands for it.
  identity.start_ticks = std::max<uint64_t>(1, process.first_ns / kTickNs);
  // A trace of one process alone is that of the training, whatever shows in it.
  const bool is_main = process.rank || process.trains || alone;
  identity.kind = is_main ? ProcessKind::kMain : ProcessKind::kOther;
  identity.started_unix_ns = StartedUnixNs(folder, process);
  return identity;
}

absl::StatusOr<ProcessReport> ConvertProcess(const TraceFolder& folder,
                                             const TraceProcess& process,
                                             const ImportedProcess& identity,
                                             RecordStream::Deliver deliver) {
  Converter converter(folder, process, identity, std::move(deliver));
  if (absl::Status status = converter.Run(); !status.ok()) return status;
  return converter.TakeReport();
}

}  // namespace traincheck
