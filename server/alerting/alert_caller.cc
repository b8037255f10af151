#include "server/alerting/alert_caller.h"

#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/logging.h"
#include "base/printable_text.h"
#include "base/shell_command.h"
#include "proto/alert_variables.h"
#include "server/feedback/silenced_incidents.h"
#include "server/store/keys.h"
#include "server/store/named_entries.h"
#include "server/store/stored.pb.h"

namespace traincheck::server {
namespace {

// How soon a command that has ended is taken leave of, and Stop returns.
constexpr absl::Duration kLookAround = absl::Milliseconds(200);
// For the disk. A daemon that stops waits for that, too.
constexpr absl::Duration kPatience = absl::Seconds(2);
// Violations that are looked at in one go.
constexpr size_t kMaxChanges = 1000;

std::string Message(const absl::Status& status) {
  return QuotePrintable(std::string(status.message()));
}

bool IsOfAlert(const v1::Violation& violation) {
  // "" (older) is an alert.
  return violation.incident_grade() != "advice";
}

std::string HowItEnded(int status) {
  if (WIFSIGNALED(status)) {
    return absl::StrCat("killed by signal ", WTERMSIG(status), " (",
                        strsignal(WTERMSIG(status)), ")");
  }
  return absl::StrCat("exit code ", WEXITSTATUS(status));
}

}  // namespace

absl::StatusOr<std::unique_ptr<AlertCaller>> AlertCaller::Load(
    const Dependencies& dependencies, const AlertCommandOptions& options) {
  std::unique_ptr<AlertCaller> caller(new AlertCaller(dependencies, options));
  if (absl::Status s = caller->ReadCalls(); !s.ok()) return s;
  if (absl::Status s = caller->ReadCursor(); !s.ok()) return s;
  return caller;
}

absl::Status AlertCaller::ReadCalls() {
  std::map<std::string, stored::AlertCall> calls;
  absl::Status read = ReadEntries(*use_.store, kAlertCallPrefix, &calls);
  if (!read.ok()) return read;
  const absl::Time hour_ago = absl::Now() - absl::Hours(1);
  absl::MutexLock lock(&mutex_);
  // Shown also where no command is given: people see that nobody is called.
  calls_.set_configured(!options_.command.empty());
  calls_.set_per_hour(options_.per_hour);
  for (const auto& [key, call] : calls) {
    if (call.held_back()) {
      calls_.set_held_back(calls_.held_back() + 1);
      continue;
    }
    calls_.set_started(calls_.started() + 1);
    const absl::Time at =
        absl::FromUnixNanos(static_cast<int64_t>(call.unix_ns()));
    // The limit of an hour holds over restarts.
    if (at > hour_ago) last_hour_.push_back(at);
  }
  // The store has them by run and violation; the oldest is to leave first.
  std::sort(last_hour_.begin(), last_hour_.end());
  return absl::OkStatus();
}

absl::Status AlertCaller::ReadCursor() {
  const absl::StatusOr<std::optional<std::string>> stored =
      use_.store->Get(Table::kMeta, kAlertCursorKey);
  if (!stored.ok()) return stored.status();
  const uint64_t newest = use_.board->Revision();
  WriteSet writes;
  if (options_.command.empty()) {
    // Nobody looks from now on, and nobody is to be called for that later.
    writes.Delete(Table::kMeta, kAlertCursorKey);
  } else {
    // Deleted runs take the revisions of their violations with them.
    uint64_t known = newest;
    if (stored->has_value() && !absl::SimpleAtoi(**stored, &known)) {
      return absl::DataLossError(
          absl::StrCat("stored ", kAlertCursorKey, " is not a number"));
    }
    MoveCursor(std::min(known, newest), &writes);
  }
  use_.store->Write(std::move(writes), nullptr);
  return absl::OkStatus();
}

void AlertCaller::MoveCursor(uint64_t revision, WriteSet* writes) {
  cursor_ = revision;
  writes->Put(Table::kMeta, kAlertCursorKey, absl::StrCat(revision));
}

void AlertCaller::Start() {
  if (options_.command.empty()) return;
  thread_ = std::thread([this] { Loop(); });
}

// Commands at work go on; nobody waits for them.
void AlertCaller::Stop() {
  stopping_ = true;
  if (thread_.joinable()) thread_.join();
}

// Threads that answer for the status and the metrics ask for these numbers.
v1::AlertCalls AlertCaller::Calls() const {
  absl::MutexLock lock(&mutex_);
  return calls_;
}

void AlertCaller::Loop() {
  while (!stopping_) {
    // With each turn, so that a command that hangs is killed though nothing
    // changes.
    Reap();
    CallQueued();
    if (absl::Status s = Look(); !s.ok()) {
      spdlog::error("alerts are not looked at just now error={}", Message(s));
      absl::SleepFor(kLookAround);
    }
    use_.board->WaitForChange(cursor_, kLookAround);
  }
}

absl::Status AlertCaller::Look() {
  const auto changes = use_.violations->ChangedRunsAfter(cursor_, kMaxChanges);
  if (!changes.ok()) return changes.status();
  // Nothing new, so nothing is written: a daemon at rest leaves the disk alone.
  if (changes->revision == cursor_) return absl::OkStatus();
  for (const auto& [run, changed] : changes->runs) {
    const absl::Status looked =
        changed.ok() ? LookAt(run, *changed) : changed.status();
    // The disk refuses just now, for all runs.
    if (absl::IsUnavailable(looked)) return looked;
    SayWhetherRead(run, looked);
  }
  WriteSet writes;
  // Behind all runs: what an error has cut short is looked at again. It is not
  // waited for: a daemon that dies before it is on disk looks again and knows
  // whom it has called.
  MoveCursor(changes->revision, &writes);
  use_.store->Write(std::move(writes), nullptr);
  return absl::OkStatus();
}

void AlertCaller::SayWhetherRead(const std::string& run,
                                 const absl::Status& looked) {
  if (looked.ok()) {
    unreadable_.erase(run);
  } else if (unreadable_.insert(run).second) {
    spdlog::error(
        "nobody is called for a run that cannot be read run={} error={}", run,
        Message(looked));
  }
}

absl::Status AlertCaller::LookAt(const std::string& run,
                                 const ViolationView::Violations& changed) {
  const std::optional<uint64_t> number = use_.registry->NumberOf(run);
  if (!number.has_value()) return absl::OkStatus();  // it is being deleted
  // All of them, and not the changed ones alone: the lead of an incident may be
  // one that has not changed.
  const auto all = use_.violations->List(run);
  if (!all.ok()) return all.status();
  const absl::StatusOr<std::set<std::string>> called =
      ViolationsCalledFor(*number);
  if (!called.ok()) return called.status();
  std::set<std::string> changed_ids;
  for (const v1::Violation& violation : changed) {
    changed_ids.insert(violation.id());
  }
  struct Incident {
    const v1::Violation* lead = nullptr;
    std::vector<std::string> violations;
    bool changed = false;
    bool known = false;
  };
  std::map<std::string, Incident> incidents;
  for (const v1::Violation& violation : *all) {
    Incident& incident = incidents[IncidentOf(violation)];
    incident.violations.push_back(violation.id());
    incident.changed |= changed_ids.contains(violation.id());
    // By any of its violations: another one may lead since.
    incident.known |= called->contains(violation.id());
    const bool leads = IncidentOf(violation) == violation.id();
    if (leads && !IsSilenced(violation)) incident.lead = &violation;
  }
  for (const auto& [id, incident] : incidents) {
    // An incident that has not changed is over or was looked at: a silence that
    // ends, or a command that is new, calls nobody for it.
    if (!incident.changed || incident.known || incident.lead == nullptr ||
        !IsOfAlert(*incident.lead)) {
      continue;
    }
    absl::Status s = Call(*number, *incident.lead, incident.violations);
    if (!s.ok()) return s;
  }
  return absl::OkStatus();
}

absl::StatusOr<std::set<std::string>> AlertCaller::ViolationsCalledFor(
    uint64_t run) const {
  std::map<std::string, stored::AlertCall> calls;
  // Read anew each time. They are few for one run, and they are deleted with
  // it.
  absl::Status read = ReadEntries(*use_.store, AlertCallKey(run, ""), &calls);
  if (!read.ok()) return read;
  std::set<std::string> violations;
  for (const auto& [lead, call] : calls) {
    violations.insert(call.violations().begin(), call.violations().end());
  }
  for (const Queued& call : queued_) {
    if (call.run != run) continue;
    violations.insert(call.violations.begin(), call.violations.end());
  }
  return violations;
}

bool AlertCaller::HasRoomInHour(absl::Time now) {
  while (!last_hour_.empty() && last_hour_.front() <= now - absl::Hours(1)) {
    last_hour_.pop_front();
  }
  return last_hour_.size() < options_.per_hour;
}

absl::Status AlertCaller::Call(uint64_t run, const v1::Violation& lead,
                               const std::vector<std::string>& incident) {
  const absl::Time now = absl::Now();
  stored::AlertCall call;
  call.set_unix_ns(absl::ToUnixNanos(now));
  call.mutable_violations()->Assign(incident.begin(), incident.end());
  // Held back for good: the next hour has alerts of its own, and people see the
  // number in the status.
  const bool held_back = !HasRoomInHour(now);
  call.set_held_back(held_back);
  WriteSet writes;
  writes.Put(Table::kMeta, AlertCallKey(run, lead.id()),
             call.SerializeAsString());
  // Once for an incident: it stays queued until the disk takes it.
  if (!held_back) last_hour_.push_back(now);
  const auto durable = std::make_shared<std::atomic<bool>>(false);
  queued_.push_back({run, lead, incident, held_back, durable});
  const absl::Status written = use_.store->WriteAndApply(
      std::move(writes), [durable] { *durable = true; }, kPatience);
  CallQueued();
  return written;
}

// In the order in which they were queued, which is that of the store.
void AlertCaller::CallQueued() {
  while (!queued_.empty() && *queued_.front().durable) {
    const Queued call = std::move(queued_.front());
    queued_.pop_front();
    if (!call.held_back) {
      StartCommand(call.lead);
      continue;
    }
    spdlog::warn(
        "alert held back, nobody is called run={} incident={} per_hour={}",
        call.lead.run(), call.lead.id(), options_.per_hour);
    absl::MutexLock lock(&mutex_);
    calls_.set_held_back(calls_.held_back() + 1);
  }
}

void AlertCaller::StartCommand(const v1::Violation& lead) {
  {
    absl::MutexLock lock(&mutex_);
    calls_.set_started(calls_.started() + 1);
  }
  const absl::StatusOr<pid_t> pid =
      StartShellCommand({options_.command, AlertVariables(lead)});
  if (!pid.ok()) {
    // It counts as started: what is in the store already says so, and nobody is
    // called twice.
    return Fail(lead.id(), std::string(pid.status().message()));
  }
  spdlog::info("alert command started run={} incident={} pid={}", lead.run(),
               lead.id(), *pid);
  running_.push_back({*pid, lead.id(), absl::Now() + options_.patience});
}

// Without it ended commands would stay zombies, and one that hangs would run
// for ever.
void AlertCaller::Reap() {
  std::vector<Running> still;
  for (Running& one : running_) {
    int status = 0;
    const pid_t ended = waitpid(one.pid, &status, WNOHANG);
    if (ended == 0) {
      if (absl::Now() > one.kill_at) {
        // The group, so that what the shell started ends as well.
        kill(-one.pid, SIGKILL);
        Fail(one.incident,
             absl::StrCat("killed after ",
                          absl::FormatDuration(options_.patience)));
        // Only to be taken leave of.
        one.kill_at = absl::InfiniteFuture();
        one.incident.clear();
      }
      still.push_back(one);
    } else if (ended == one.pid && status != 0 && !one.incident.empty()) {
      Fail(one.incident, HowItEnded(status));
    }
  }
  running_ = std::move(still);
}

void AlertCaller::Fail(const std::string& incident, const std::string& how) {
  spdlog::error("alert command failed incident={} how={}", incident,
                QuotePrintable(how));
  absl::MutexLock lock(&mutex_);
  calls_.set_failed(calls_.failed() + 1);
  calls_.set_last_failure(how);
}

}  // namespace traincheck::server
