#include "server/metrics/daemon_metrics.h"

#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "proto/state_names.h"
#include "server/control/version.h"
#include "server/metrics/process_usage.h"

namespace traincheck::server {
namespace {

constexpr auto kCounter = MetricType::kCounter;
constexpr auto kGauge = MetricType::kGauge;

// A status that this build does not know has no name and counts as unknown.
std::string LabelOf(std::string name) {
  return name.empty() ? "unknown" : name;
}

// A sample for each label, also where nothing has it: a series that comes and
// goes cannot be added up.
using CountByLabel = std::map<std::string, uint64_t>;

void AddSamples(const char* label, const CountByLabel& counts,
                Exposition* text) {
  for (const auto& [value, count] : counts) {
    text->Sample(static_cast<double>(count), {{label, value}});
  }
}

void AddCounts(const char* name, const char* help, const char* label,
               const CountByLabel& counts, Exposition* text) {
  text->Family(name, kGauge, help);
  AddSamples(label, counts, text);
}

void AddOne(const char* name, MetricType type, const char* help, double value,
            Exposition* text) {
  text->Family(name, type, help);
  text->Sample(value);
}

using Labels = Exposition::Labels;

Labels LabelsOf(const RunningRun& run) {
  return {{"run", run.id}, {"experiment", run.experiment}};
}

CountByLabel CountsOf(const ViolationBoard::ByGrade& counts) {
  return {{"alert", counts.alerts}, {"advice", counts.advice}};
}

// Summed over all runs: a label for each run would grow without bound.
CountByLabel CountsOf(const std::vector<RunningRun>& runs) {
  RunningRun::Processes all;
  for (const RunningRun& run : runs) {
    all.streaming += run.processes.streaming;
    all.disconnected += run.processes.disconnected;
    all.ended += run.processes.ended;
    all.lost += run.processes.lost;
  }
  return {{"streaming", all.streaming},
          {"disconnected", all.disconnected},
          {"ended", all.ended},
          {"lost", all.lost}};
}

void AddByRun(const std::vector<RunningRun>& runs, Exposition* text) {
  // All samples of a family stand together, as the format asks; so the runs are
  // gone over once for each.
  text->Family("traincheckd_run_last_step", kGauge,
               "Last step that closed on any rank of the run");
  for (const RunningRun& run : runs) {
    // A run before its first step has no sample: 0 would be a step.
    if (run.last_step.has_value()) {
      text->Sample(static_cast<double>(*run.last_step), LabelsOf(run));
    }
  }
  text->Family("traincheckd_run_dropped_records", kGauge,
               "Records that agents of the run could not write");
  for (const RunningRun& run : runs) {
    text->Sample(static_cast<double>(run.dropped_records), LabelsOf(run));
  }
}

}  // namespace

// Made anew for each scrape, on the thread of the HTTP server. All parts answer
// from memory, except for the size of the data directory.
std::string DaemonMetrics::Text() const {
  Exposition text;
  text.Family("traincheckd_build_info", kGauge, "Version of the daemon");
  text.Sample(1, {{"version", kServerVersion}});
  AddProcess(&text);
  AddStore(&text);
  AddIngest(&text);
  AddRuns(&text);
  AddMissing(&text);
  AddChecks(&text);
  AddJobs(&text);
  AddAlerts(&text);
  return text.text();
}

void DaemonMetrics::AddProcess(Exposition* text) const {
  AddOne("process_start_time_seconds", kGauge,
         "When the daemon started, in seconds since 1970",
         absl::ToDoubleSeconds(started_ - absl::UnixEpoch()), text);
  const std::optional<ProcessUsage> usage = UsageOfSelf();
  // Without /proc these are left out: 0 would look like a daemon that takes
  // nothing.
  if (!usage) return;
  AddOne("process_cpu_seconds_total", kCounter,
         "User and system time of the daemon", usage->cpu_seconds, text);
  AddOne("process_resident_memory_bytes", kGauge,
         "Resident memory of the daemon",
         static_cast<double>(usage->resident_bytes), text);
  AddOne("process_open_fds", kGauge, "Open files of the daemon",
         static_cast<double>(usage->open_files), text);
  AddOne("process_max_fds", kGauge, "How many files it may open",
         static_cast<double>(usage->max_files), text);
}

void DaemonMetrics::AddStore(Exposition* text) const {
  const StoreHealth health = use_.store->Health();
  AddOne("traincheckd_store_bytes", kGauge, "Size of the data directory",
         static_cast<double>(health.stored_bytes), text);
  AddOne("traincheckd_store_free_bytes", kGauge,
         "Free room on the disk of the data directory",
         static_cast<double>(health.free_bytes), text);
  AddOne("traincheckd_store_writable", kGauge,
         "1 if the store takes writes; 0: nothing is acknowledged just now",
         health.error.ok() ? 1 : 0, text);
}

// Counters since the start, which only rise; what waits for the disk is a
// gauge.
void DaemonMetrics::AddIngest(Exposition* text) const {
  const IngestCounts& counts = use_.registry->counts();
  text->Family("traincheckd_batches_total", kCounter,
               "Batches that came, by what became of them");
  text->Sample(static_cast<double>(counts.stored_batches),
               {{"fate", "stored"}});
  text->Sample(static_cast<double>(counts.duplicate_batches),
               {{"fate", "duplicate"}});
  text->Sample(static_cast<double>(counts.quarantined_batches),
               {{"fate", "quarantined"}});
  AddOne("traincheckd_stored_bytes_total", kCounter, "Bytes of stored batches",
         static_cast<double>(counts.bytes), text);
  AddOne("traincheckd_stored_records_total", kCounter,
         "Records of stored batches", static_cast<double>(counts.records),
         text);
  AddOne("traincheckd_waiting_batches", kGauge,
         "Batches that came and wait for the disk",
         static_cast<double>(counts.waiting_batches), text);
  AddOne("traincheckd_waiting_bytes", kGauge, "Bytes of these",
         static_cast<double>(counts.waiting_bytes), text);
  text->Family("traincheckd_acknowledge_seconds", MetricType::kSummary,
               "From when a batch came to when it was durable");
  text->Sample(1e-6 * static_cast<double>(counts.durable_us), {}, "_sum");
  text->Sample(static_cast<double>(counts.durable_batches), {}, "_count");
}

void DaemonMetrics::AddRuns(Exposition* text) const {
  const std::vector<RunningRun> runs = use_.registry->RunningRuns();
  AddOne("traincheckd_running_runs", kGauge, "Runs that have not ended",
         static_cast<double>(runs.size()), text);
  AddOne(
      "traincheckd_runs_in_memory", kGauge,
      "Runs whose processes are in memory: those that have not ended, or have "
      "a moment ago",
      static_cast<double>(use_.registry->RunsInMemory()), text);
  AddCounts("traincheckd_processes",
            "Processes of runs that have not ended, by state", "state",
            CountsOf(runs), text);
  // Only where it is asked for: each run is a label of its own, and names of
  // runs are shown to everybody who reaches the port.
  if (use_.by_run) AddByRun(runs, text);
}

// Counters and not sums over the runs that go on: what a run lacks would leave
// such a sum with the run, and no increase of it could be seen.
void DaemonMetrics::AddMissing(Exposition* text) const {
  const IngestCounts& counts = use_.registry->counts();
  AddOne("traincheckd_dropped_records_total", kCounter,
         "Records that agents could not write, since the daemon's start",
         static_cast<double>(counts.dropped_records), text);
  AddOne("traincheckd_lost_records_total", kCounter,
         "Records that were written and had not come when their process ended, "
         "since the daemon's start",
         static_cast<double>(counts.lost_records), text);
}

void DaemonMetrics::AddChecks(Exposition* text) const {
  AddOne("traincheckd_check_behind_batches", kGauge,
         "Stored batches of checked runs that no check has read yet",
         static_cast<double>(use_.checks->BatchesBehind()), text);
  const ViolationBoard::Counts counts = use_.board->Count();
  AddCounts("traincheckd_open_incidents",
            "Incidents of stored runs that have not ended, by grade", "grade",
            CountsOf(counts.open_incidents), text);
  AddCounts("traincheckd_violations", "Violations of stored runs, by grade",
            "grade", CountsOf(counts.violations), text);
  text->Family("traincheckd_violations_found_total", kCounter,
               "Violations that checks have found since the daemon's start");
  AddSamples("grade", CountsOf(counts.found), text);
}

void DaemonMetrics::AddJobs(Exposition* text) const {
  // Each status from the beginning, so that a rise from nothing is seen.
  CountByLabel jobs = {{"queued", 0},
                       {"running", 0},
                       {"done", 0},
                       {"failed", 0},
                       {"cancelled", 0}};
  for (const v1::Job& job : use_.jobs->book().List()) {
    ++jobs[LabelOf(JobStatusName(job.status()))];
  }
  AddCounts("traincheckd_jobs", "Inference jobs that are known, by status",
            "status", jobs, text);
}

// The first is a counter of this process; the others are of what the store
// holds and fall when runs are deleted.
void DaemonMetrics::AddAlerts(Exposition* text) const {
  const v1::AlertCalls calls = use_.caller->Calls();
  AddOne("traincheckd_alert_commands_failed_total", kCounter,
         "Commands for alerts that failed since the daemon's start",
         static_cast<double>(calls.failed()), text);
  AddCounts("traincheckd_alert_commands",
            "Incidents of stored runs for which a command was started, or held "
            "back by its hourly limit",
            "fate",
            {{"started", calls.started()}, {"held_back", calls.held_back()}},
            text);
}

}  // namespace traincheck::server
