// How long a daemon takes to start on a data directory with many stored runs,
// and how much memory it then holds.
//
//   tests/bench/run.sh start_bench [RUNS [PROCESSES [EACH]]]    100000 4 20
//
// The runs have ended: PROCESSES processes each with two rings, a check of 60
// rules that has finished, and each EACHth run has three violations. Shown
// is the time from the start of the real traincheckd until it listens.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "proto/traincheck/v1/control.pb.h"
#include "server/store/keys.h"
#include "server/store/rocksdb_store.h"
#include "server/store/stored.pb.h"
#include "tests/bench/daemon_process.h"

namespace traincheck::server {
namespace {

using Clock = std::chrono::steady_clock;

constexpr uint64_t kStart = 1'700'000'000'000'000'000;
constexpr uint64_t kHour = 3'600'000'000'000;
constexpr int kRings = 2;
constexpr int kSteps = 1000;
constexpr uint64_t kRunsOfAWrite = 500;
constexpr int kViolations = 3;
constexpr uint32_t kRules = 60;
// After so many seconds the checks of all runs have been looked at.
constexpr int kSettled = 15;

uint64_t EndOfRun(uint64_t run) { return kStart + (run + 1) * kHour; }

std::string IdOf(uint64_t run) { return absl::StrFormat("20231114-%06d", run); }

stored::Run RunRow(uint64_t run) {
  stored::Run row;
  row.set_number(run);
  row.set_id(IdOf(run));
  row.set_experiment(absl::StrCat("projects/model-", run % 50));
  row.set_role(1);
  row.set_check_set("builtin");
  row.set_script("/home/user/projects/train.py");
  row.set_started_unix_ns(kStart + run * kHour);
  row.set_ended_unix_ns(EndOfRun(run));
  return row;
}

stored::Process ProcessRow(uint64_t run, uint32_t number, int processes) {
  stored::Process row;
  row.set_number(number);
  row.set_host(absl::StrCat("node-", number / 8, ".cluster.example.org"));
  row.set_boot_id("0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0");
  row.set_pid(1000 + number);
  row.set_start_ticks(run * 1000);
  row.set_kind(1);
  row.set_rank(static_cast<int32_t>(number));
  row.set_world(processes);
  row.set_state(stored::STATE_CLEAN);
  row.set_state_since_unix_ns(EndOfRun(run));
  row.set_first_step(0);
  row.set_last_step(kSteps);
  row.set_clean_exit_seen(true);
  row.set_counters_final(true);
  row.set_next_batch(kSteps);
  row.set_stored_records(kSteps * 100);
  row.set_stored_bytes(kSteps * 2000);
  row.set_agent_version("0.1.0");
  row.set_torch_version("2.5.1+cu124");
  row.set_python_version("3.11.9");
  row.set_started_unix_ns(kStart + run * kHour);
  for (uint32_t ring = 0; ring < kRings; ++ring) {
    stored::Ring& books = *row.add_rings();
    books.set_ring(ring);
    books.set_tid(1000 + ring);
    books.set_offered(kSteps * 50);
    books.set_committed(kSteps * 50);
    books.set_stored_records(kSteps * 50);
    books.set_stored_position(kSteps * 1000);
  }
  return row;
}

stored::Check CheckRow(int processes) {
  stored::Check row;
  row.set_set("builtin@1");
  row.set_finished(true);
  row.set_processes(processes);
  row.set_batches(static_cast<uint64_t>(processes) * kSteps);
  row.set_total(kRules);
  row.set_decided(kRules / 2);
  row.set_no_occasion(kRules / 2);
  for (int process = 0; process < processes; ++process) {
    (*row.mutable_reported())[process] = kSteps;
    (*row.mutable_ends())[process] = 1;
  }
  (*row.mutable_reported_steps())[0] = kSteps;
  return row;
}

v1::Violation ViolationRow(uint64_t run, int number, uint64_t revision) {
  v1::Violation row;
  row.set_id(absl::StrFormat("%012x%04x", run, number));
  row.set_run(IdOf(run));
  row.set_invariant_id("0123456789abcdef");
  row.set_relation("APIArg");
  row.set_text("Whenever an optimizer steps, gradients were cleared.");
  row.set_first_step(number);
  row.set_last_step(kSteps);
  row.set_count(kSteps);
  row.add_ranks(0);
  row.add_apis("torch.optim.adam.Adam.step");
  row.add_sites("/home/user/projects/train.py:120");
  row.set_status("ended");
  row.set_seen("gradients are never cleared");
  row.set_expected("gradients are cleared since the last step");
  row.set_first_seen_unix_ns(EndOfRun(run));
  row.set_revision(revision);
  row.set_why("Each step uses the sum of all gradients so far.");
  row.set_fix("Call optimizer.zero_grad() once a step.");
  row.set_grade("alert");
  row.set_headline("Since step 1 gradients are never cleared");
  row.set_incident(absl::StrFormat("%012x%04x", run, 0));
  row.set_cause(row.incident());
  row.set_incident_grade("alert");
  row.set_rung("call");
  return row;
}

void AddRun(uint64_t run, int processes, uint64_t violated, uint64_t* revision,
            WriteSet* out) {
  out->Put(Table::kRuns, RunKey(run), RunRow(run).SerializeAsString());
  for (int process = 0; process < processes; ++process) {
    out->Put(Table::kRuns, ProcessKey(run, process),
             ProcessRow(run, process, processes).SerializeAsString());
  }
  out->Put(Table::kRuns, CheckKey(run),
           CheckRow(processes).SerializeAsString());
  if (run % violated != 0) return;
  for (int number = 0; number < kViolations; ++number) {
    const v1::Violation row = ViolationRow(run, number, ++*revision);
    out->Put(Table::kViolations, ViolationKey(run, row.id()),
             row.SerializeAsString());
  }
}

// Every `violated`th run has violations.
bool Fill(const std::string& folder, uint64_t runs, int processes,
          uint64_t violated) {
  const auto store = OpenRocksdbStore(folder);
  if (!store.ok()) return false;
  uint64_t revision = 0;
  for (uint64_t run = 0; run < runs;) {
    WriteSet writes;
    for (uint64_t i = 0; i < kRunsOfAWrite && run < runs; ++i, ++run) {
      AddRun(run, processes, violated, &revision, &writes);
    }
    writes.Put(Table::kMeta, kNextRunKey, absl::StrCat(run));
    if (!(*store)->WriteAndWait(std::move(writes), absl::Minutes(1)).ok()) {
      return false;
    }
  }
  (*store)->Close();
  return true;
}

int Main(int argc, char** argv) {
  const uint64_t runs = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 100000;
  const int processes = argc > 2 ? std::atoi(argv[2]) : 4;
  const uint64_t violated = argc > 3 ? std::strtoull(argv[3], nullptr, 10) : 20;
  const std::string program =
      std::string(argv[0]) + ".runfiles/traincheckd/server/traincheckd";
  const std::string folder =
      std::filesystem::temp_directory_path() / "traincheck-start-bench";
  std::filesystem::remove_all(folder);
  if (runs > 0) {
    std::filesystem::create_directories(folder);
    if (!Fill(folder + "/data", runs, processes, violated)) {
      std::fprintf(stderr, "start_bench: %s cannot be filled\n",
                   folder.c_str());
      return 1;
    }
  }
  std::printf(
      "| runs | processes a run | start | seconds | resident MiB | %d s later "
      "|\n"
      "|---|---|---|---|---|---|\n",
      kSettled);
  for (int start = 1; start <= 3; ++start) {
    const Clock::time_point begin = Clock::now();
    const DaemonProcess daemon(program, folder);
    const std::chrono::duration<double> took = Clock::now() - begin;
    const long begun = daemon.Status("VmRSS");
    std::this_thread::sleep_for(std::chrono::seconds(kSettled));
    std::printf("| %llu | %d | %d | %.2f | %ld | %ld |\n",
                static_cast<unsigned long long>(runs), processes, start,
                took.count(), begun / 1024, daemon.Status("VmRSS") / 1024);
  }
  std::filesystem::remove_all(folder);
  return 0;
}

}  // namespace
}  // namespace traincheck::server

int main(int argc, char** argv) { return traincheck::server::Main(argc, argv); }
