// A long job of many ranks that starts again and again under one run id:
// simulated ranks stream a step a second to the real traincheckd, which checks
// it against the built-in rules and those learned from two ranks.
//
//   tests/bench/run.sh ranks_soak [MINUTES [RESTARTS [RANKS]]]      100 20 64
//
// Each step has another learning rate. Of the starts every other one ends
// without a goodbye, and every third one has an error: from a step on, one
// rank's gradients are not synchronised. Exit code 1: that is not one incident
// that names rank and step, or something else is violated; a rule that the
// reference run decides is not decided in some start; a record is lost; or the
// daemon's memory grew: its median of the last quarter is more than 8 MiB above
// that of the first, after a third of the time as warm-up.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/bench/daemon_process.h"
#include "tests/bench/simulated_job.h"
#include "tests/bench/simulated_start.h"

namespace traincheck::server {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr char kRun[] = "soak";
constexpr char kLearned[] = "learned";
constexpr int kChannels = 20;
constexpr milliseconds kPace = seconds(1);
constexpr auto kSampleEvery = seconds(10);
constexpr auto kMostBehind = seconds(60);
constexpr double kMostGrowthMib = 8;
// For what lies between two starts.
constexpr int kStepsLess = 4;
constexpr double kFirstRate = 0.1;
constexpr double kLastRate = 0.0001;

struct Options {
  double minutes = 100;
  uint32_t restarts = 20;
  int32_t ranks = 64;

  uint32_t starts() const { return restarts + 1; }
  double seconds_a_start() const { return 60 * minutes / starts(); }
  int steps() const {
    return std::max(8, static_cast<int>(seconds_a_start()) - kStepsLess);
  }
};

bool IsFaulty(const StartPlan& plan) {
  return plan.training.fault != TrainingFault::kNone;
}

StartPlan PlanOf(const Options& options, uint32_t number) {
  StartPlan plan;
  plan.number = number;
  plan.in_order = number % 2 == 0;
  TrainingOptions& training = plan.training;
  training.ranks = options.ranks;
  training.steps = options.steps();
  training.seed = number + 1;
  const int all = training.steps * static_cast<int>(options.starts());
  training.rate_decay = std::pow(kLastRate / kFirstRate, 1.0 / all);
  const int before = training.steps * static_cast<int>(number);
  training.rate = kFirstRate * std::pow(training.rate_decay, before);
  if (number % 3 != 2) return plan;
  training.fault = TrainingFault::kNoSyncOnOneRank;
  training.fault_rank = static_cast<int32_t>(number * 7 + 3) % options.ranks;
  const int third = training.steps / 3;
  training.fault_step = third + static_cast<int>(number) % third;
  return plan;
}

// The daemon's resident memory over time.
class Memory {
 public:
  explicit Memory(const DaemonProcess* daemon) : daemon_(*daemon) {}

  // A sample, if it is time for one.
  void Sample() {
    if (Clock::now() < next_) return;
    next_ += kSampleEvery;
    mib_.push_back(static_cast<double>(daemon_.Status("VmRSS")) / 1024);
  }

  // The median of a part of the samples behind the warm-up, in quarters.
  double MedianOfQuarter(size_t quarter) const {
    const size_t warm = mib_.size() / 3;
    const size_t size = (mib_.size() - warm) / 4;
    std::vector<double> part(mib_.begin() + static_cast<long>(warm),
                             mib_.end());
    part = {part.begin() + static_cast<long>(quarter * size),
            part.begin() + static_cast<long>((quarter + 1) * size)};
    std::sort(part.begin(), part.end());
    return part.empty() ? 0 : part[part.size() / 2];
  }
  double last() const { return mib_.empty() ? 0 : mib_.back(); }
  double most() const {
    return mib_.empty() ? 0 : *std::max_element(mib_.begin(), mib_.end());
  }
  size_t samples() const { return mib_.size(); }

 private:
  const DaemonProcess& daemon_;
  Clock::time_point next_ = Clock::now();
  std::vector<double> mib_;
};

// The whole soak: one daemon, one run, start after start.
class Soak {
 public:
  Soak(const Options& options, const DaemonProcess& daemon)
      : options_(options),
        channels_(Connect(daemon.address(), kChannels)),
        stub_(v1::Control::NewStub(channels_[0])),
        memory_(&daemon) {}

  // True if all was as it must be.
  bool Run();

 private:
  void RunStart(const StartPlan& plan);
  v1::Run GetRun();
  // The run, once the daemon has stored and checked what was sent.
  v1::Run AwaitCaughtUp();
  std::vector<v1::Violation> Violations();

  void Judge(const StartPlan& plan, const v1::Run& run);
  void ChooseRules();
  // How many the start has.
  size_t JudgeViolations(const StartPlan& plan);
  void JudgeBooks(const v1::Run& run);
  void JudgeMemory();
  void Wrong(const std::string& what);

  const Options options_;
  const Channels channels_;
  const std::unique_ptr<v1::Control::Stub> stub_;
  Memory memory_;
  std::string rules_;
  uint32_t decidable_ = 0;  // of the rules, in a run of this program
  uint64_t records_ = 0;
  std::string problem_;  // why the run could not be read; "": it was
  size_t wrong_ = 0;
};

void Soak::Wrong(const std::string& what) {
  std::printf("WRONG: %s\n", what.c_str());
  ++wrong_;
}

v1::Run Soak::GetRun() {
  grpc::ClientContext context;
  v1::GetRunRequest request;
  request.set_run(kRun);
  v1::Run run;
  problem_ = stub_->GetRun(&context, request, &run).error_message();
  return run;
}

v1::Run Soak::AwaitCaughtUp() {
  const auto end = Clock::now() + kMostBehind;
  v1::Run run = GetRun();
  while ((run.records() < records_ || !run.check().caught_up()) &&
         Clock::now() < end) {
    std::this_thread::sleep_for(milliseconds(50));
    run = GetRun();
  }
  if (!run.check().caught_up()) Wrong("the check is behind " + problem_);
  return run;
}

std::vector<v1::Violation> Soak::Violations() {
  grpc::ClientContext context;
  v1::ListViolationsRequest request;
  request.set_run(kRun);
  const auto stream = stub_->ListViolations(&context, request);
  std::vector<v1::Violation> violations;
  for (v1::Violation one; stream->Read(&one);) violations.push_back(one);
  if (!stream->Finish().ok()) Wrong("the violations could not be listed");
  return violations;
}

// Does it say that this rank is the one apart?
bool Names(const v1::Violation& violation, int32_t rank) {
  std::string text = violation.headline() + "\n" + violation.seen() + "\n";
  for (const std::string& line : violation.evidence()) text += line + "\n";
  const std::string name = "rank " + std::to_string(rank);
  for (size_t at = 0; (at = text.find(name, at)) != std::string::npos; ++at) {
    const char next = text[at + name.size()];
    if (next < '0' || next > '9') return true;
  }
  return false;
}

// Of the error, which is seen in the step itself and, where its values are
// looked at again, as the next one begins.
bool IsOf(const v1::Violation& violation, const StartPlan& plan) {
  const int64_t late = violation.first_step() - plan.training.fault_step;
  return IsFaulty(plan) && violation.has_first_step() && late >= 0 &&
         late <= 1 && Names(violation, plan.training.fault_rank);
}

size_t Soak::JudgeViolations(const StartPlan& plan) {
  const std::string start = "start " + std::to_string(plan.number);
  size_t found = 0;
  size_t leads = 0;
  for (const v1::Violation& violation : Violations()) {
    if (violation.attempt() != plan.number) continue;
    ++found;
    if (!IsOf(violation, plan)) Wrong(start + ": " + violation.DebugString());
    if (violation.incident() != violation.id()) continue;
    ++leads;
    if (violation.first_step() != plan.training.fault_step) {
      Wrong(start + ": the incident begins at another step");
    }
  }
  if (leads != (IsFaulty(plan) ? 1 : 0)) {
    Wrong(start + " has " + std::to_string(leads) + " incidents");
  }
  return found;
}

void Soak::Judge(const StartPlan& plan, const v1::Run& run) {
  const v1::CheckProgress& check = run.check();
  // A rule that was violated in an earlier start counts as decided for ever.
  const std::string here = "attempt " + std::to_string(plan.number) + " ";
  bool all = check.decided() == decidable_;
  for (const v1::UnknownReason& partly : check.partly_unknown()) {
    all = all && partly.reason().compare(0, here.size(), here) != 0;
  }
  if (!all) {
    Wrong("start " + std::to_string(plan.number) +
          ": not all rules are decided: " + check.ShortDebugString());
  }
  const size_t found = JudgeViolations(plan);
  if (!IsFaulty(plan)) return;
  std::printf("  error on rank %d from step %d on: %zu violations\n",
              plan.training.fault_rank, plan.training.fault_step, found);
}

void Soak::RunStart(const StartPlan& plan) {
  v1::Hello hello = HelloOf(kRun, v1::RUN_ROLE_TARGET);
  hello.set_check_set(rules_);
  SimulatedStart start(channels_, hello, plan);
  start.Train(kPace, [this] { memory_.Sample(); });
  const uint64_t before = records_;
  records_ = before + start.records();
  const v1::Run run = AwaitCaughtUp();
  std::printf(
      "start %u: %d steps, %lu k records so far, %u of %u rules decided, "
      "slowest step stored after %ld ms, memory %.1f MiB, ends %s\n",
      plan.number, plan.training.steps,
      static_cast<unsigned long>(records_ / 1000), run.check().decided(),
      decidable_, static_cast<long>(start.slowest().count()), memory_.last(),
      plan.in_order ? "in order" : "without goodbye");
  Judge(plan, run);
  start.End();
  records_ = before + start.records();
  std::fflush(stdout);
}

void Soak::JudgeBooks(const v1::Run& run) {
  std::printf(
      "%lu records sent, %lu stored, %lu dropped, %lu lost, %d processes "
      "in %u attempts\n",
      static_cast<unsigned long>(records_),
      static_cast<unsigned long>(run.records()),
      static_cast<unsigned long>(run.dropped()),
      static_cast<unsigned long>(run.lost()), run.processes_size(),
      run.attempts());
  if (run.records() != records_ || run.dropped() != 0 || run.lost() != 0 ||
      run.quarantined_batches() != 0) {
    Wrong("the books do not show each record once");
  }
  if (run.attempts() != options_.starts() || run.missing_size() != 0 ||
      run.processes_size() !=
          static_cast<int>(options_.starts()) * options_.ranks) {
    Wrong("a start is not an attempt with all its ranks");
  }
}

void Soak::JudgeMemory() {
  std::printf(
      "resident memory of the daemon, %zu samples, at most %.1f MiB; "
      "medians of the quarters after the warm-up:",
      memory_.samples(), memory_.most());
  for (size_t quarter = 0; quarter < 4; ++quarter) {
    std::printf(" %.1f", memory_.MedianOfQuarter(quarter));
  }
  std::printf(" MiB\n");
  const double grown = memory_.MedianOfQuarter(3) - memory_.MedianOfQuarter(0);
  if (grown > kMostGrowthMib) {
    Wrong("the daemon grew by " + std::to_string(grown) + " MiB");
  }
}

// The built-in rules and the learned ones, without those on the course of the
// rate over a program's first steps: a start that goes on with a lower rate has
// none. Of them the reference run shows how many this program decides.
void Soak::ChooseRules() {
  rules_ = std::string("builtin,") + kLearned;
  grpc::ClientContext get;
  v1::GetSetRequest set_request;
  set_request.set_name(kLearned);
  v1::SetDetail set;
  stub_->GetSet(&get, set_request, &set);
  for (const v1::Invariant& rule : set.invariants()) {
    if (rule.relation() == "RateSchedule") rules_ += ",-" + rule.id();
  }
  grpc::ClientContext check;
  v1::CheckRunRequest request;
  request.set_run("reference");
  request.set_set(rules_);
  const auto stream = stub_->CheckRun(&check, request);
  for (v1::CheckRunProgress progress; stream->Read(&progress);) {
    decidable_ = progress.result().coverage().decided();
  }
  const grpc::Status status = stream->Finish();
  if (!status.ok())
    Wrong("the reference run is not checked: " + status.error_message());
}

bool Soak::Run() {
  Learn(channels_, kLearned);
  ChooseRules();
  const auto begin = Clock::now();
  for (uint32_t number = 0; number < options_.starts(); ++number) {
    const std::chrono::duration<double> offset(number *
                                               options_.seconds_a_start());
    std::this_thread::sleep_until(
        begin + std::chrono::duration_cast<Clock::duration>(offset));
    RunStart(PlanOf(options_, number));
  }
  const v1::Run run = AwaitChecked(channels_, kRun);
  for (uint32_t number = 0; number < options_.starts(); ++number) {
    JudgeViolations(PlanOf(options_, number));
  }
  JudgeBooks(run);
  JudgeMemory();
  std::printf("%.0f minutes, %u restarts, %d ranks: %zu things wrong\n",
              options_.minutes, options_.restarts, options_.ranks, wrong_);
  return wrong_ == 0;
}

bool RunSoak(const std::string& program, const Options& options) {
  char folder[] = "/tmp/ranks-soak-XXXXXX";
  if (mkdtemp(folder) == nullptr) return false;
  bool good = false;
  {
    const DaemonProcess daemon(program, folder);
    good = Soak(options, daemon).Run();
  }
  std::filesystem::remove_all(folder);
  return good;
}

}  // namespace
}  // namespace traincheck::server

int main(int argc, char** argv) {
  traincheck::server::Options options;
  if (argc > 1) options.minutes = std::atof(argv[1]);
  if (argc > 2) options.restarts = static_cast<uint32_t>(std::atoi(argv[2]));
  if (argc > 3) options.ranks = std::atoi(argv[3]);
  const std::string program =
      std::string(argv[0]) + ".runfiles/traincheckd/server/traincheckd";
  return traincheck::server::RunSoak(program, options) ? 0 : 1;
}
