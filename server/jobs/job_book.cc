#include "server/jobs/job_book.h"

#include <algorithm>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "server/jobs/limits.h"
#include "server/store/keys.h"

namespace traincheck::server {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(10);
constexpr char kStopped[] = "traincheckd stopped while it ran";

// "j17" <-> 17; 0: no id of a job.
std::string IdOf(uint64_t number) { return absl::StrCat("j", number); }

uint64_t NumberOf(const std::string& id) {
  uint64_t number = 0;
  const bool parsed =
      absl::StartsWith(id, "j") && absl::SimpleAtoi(id.substr(1), &number);
  // "j017" and "j+17" parse as well and stand for no job.
  return parsed && IdOf(number) == id ? number : 0;
}

}  // namespace

bool HasEnded(const v1::Job& job) {
  return job.status() != v1::JOB_STATUS_QUEUED &&
         job.status() != v1::JOB_STATUS_RUNNING;
}

absl::Status NoSuchJob(const std::string& id) {
  return absl::NotFoundError(absl::StrCat(
      "there is no job \"", id, "\": traincheckctl jobs list names all"));
}

absl::StatusOr<std::unique_ptr<JobBook>> JobBook::Load(Store* store,
                                                       Clock now) {
  std::unique_ptr<JobBook> book(new JobBook(store, std::move(now)));
  absl::MutexLock lock(&book->mutex_);
  if (absl::Status s = book->LoadEntries(); !s.ok()) return s;
  // Whatever it had learned went with the daemon.
  for (auto& [number, entry] : book->entries_) {
    if (entry.job.status() != v1::JOB_STATUS_RUNNING) continue;
    book->EndEntry(v1::JOB_STATUS_FAILED, kStopped, &entry);
  }
  return book;
}

absl::Status JobBook::LoadEntries() {
  absl::Status bad;
  const absl::Status scanned = store_.Scan(
      Table::kMeta, JobKey(0), JobKey(UINT32_MAX),
      [&](std::string_view key, std::string_view value)
          ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
            Entry entry;
            const bool parsed =
                entry.job.ParseFromArray(value.data(), value.size());
            const uint64_t number = NumberOf(entry.job.id());
            if (!parsed || number == 0 || !ParseJobKey(key, &entry.slot)) {
              bad = absl::DataLossError("a stored job does not parse");
              return false;
            }
            // The job with the largest number is among those that stay, so no
            // number is given again after a restart.
            next_number_ = std::max(next_number_, number + 1);
            entry.revision = ++revision_;
            entries_[number] = std::move(entry);
            return true;
          });
  return scanned.ok() ? bad : scanned;
}

absl::Status JobBook::CheckQueue() const {
  const auto waiting =
      std::count_if(entries_.begin(), entries_.end(), [](const auto& at) {
        return at.second.job.status() == v1::JOB_STATUS_QUEUED;
      });
  if (static_cast<size_t>(waiting) < kMaxQueuedJobs) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat(waiting, " jobs are waiting, the limit is ", kMaxQueuedJobs,
                   ": wait for some to end, or cancel some"));
}

// Keeps the list and the number of slots in the store bounded, however many
// jobs there ever were.
void JobBook::Trim() {
  // Jobs that wait or run are never forgotten, so those that are over are
  // counted apart.
  size_t ended = 0;
  for (const auto& [number, entry] : entries_) ended += HasEnded(entry.job);
  // Numbers ascend, so the first ones are the oldest.
  for (auto at = entries_.begin(); ended > kMaxEndedJobs;) {
    if (HasEnded(at->second.job)) {
      at = entries_.erase(at);
      --ended;
    } else {
      ++at;
    }
  }
}

// A job that is forgotten leaves its entry in the store to the next one.
uint32_t JobBook::FreeSlot() const {
  std::set<uint32_t> taken;
  for (const auto& [number, entry] : entries_) taken.insert(entry.slot);
  uint32_t slot = 0;
  while (taken.count(slot) > 0) ++slot;
  return slot;
}

// The client is given the job's id only once the job is durable: an id that a
// restart forgets could not be asked for.
absl::StatusOr<v1::Job> JobBook::Add(const v1::InferRequest& request,
                                     const std::string& owner) {
  // Shared with the store, which may be done after we gave up.
  auto durable = std::make_shared<absl::Notification>();
  v1::Job job;
  {
    absl::MutexLock lock(&mutex_);
    if (absl::Status s = CheckQueue(); !s.ok()) return s;
    // Before a slot is looked for: it may be that of a job forgotten here.
    Trim();
    Entry entry;
    entry.slot = FreeSlot();
    job.set_id(IdOf(next_number_));
    *job.mutable_request() = request;
    job.set_owner(owner);
    job.set_status(v1::JOB_STATUS_QUEUED);
    job.set_stage("waiting");
    job.set_queued_unix_ns(absl::ToUnixNanos(now_()));
    entry.job = job;
    // Saved and shown under one lock, so that the write of a later state is
    // queued behind this one.
    Save(entry, [durable] { durable->Notify(); });
    Changed(&(entries_[next_number_++] = std::move(entry)));
  }
  if (durable->WaitForNotificationWithTimeout(kPatience)) return job;
  const std::string reason =
      "the disk takes no writes: see traincheckctl status";
  // Its client hears that it failed, so it must not run later.
  End(job.id(), v1::JOB_STATUS_FAILED, reason);
  return absl::UnavailableError(reason);
}

std::optional<v1::Job> JobBook::TakeNext() {
  absl::MutexLock lock(&mutex_);
  for (auto& [number, entry] : entries_) {
    if (entry.job.status() != v1::JOB_STATUS_QUEUED) continue;
    entry.job.set_status(v1::JOB_STATUS_RUNNING);
    entry.job.set_stage("starting");
    entry.job.set_started_unix_ns(absl::ToUnixNanos(now_()));
    // Not waited for: a daemon that dies before it is on disk finds the job
    // waiting, and runs it again.
    Save(entry, nullptr);
    Changed(&entry);
    return entry.job;
  }
  return std::nullopt;
}

const JobBook::Entry* JobBook::FindEntry(const std::string& id) const {
  const auto at = entries_.find(NumberOf(id));
  return at == entries_.end() ? nullptr : &at->second;
}

JobBook::Entry* JobBook::Open(const std::string& id) {
  const auto at = entries_.find(NumberOf(id));
  if (at == entries_.end() || HasEnded(at->second.job)) return nullptr;
  return &at->second;
}

void JobBook::Changed(Entry* entry) { entry->revision = ++revision_; }

void JobBook::Save(const Entry& entry, Store::Done done) {
  WriteSet writes;
  writes.Put(Table::kMeta, JobKey(entry.slot), entry.job.SerializeAsString());
  store_.Write(std::move(writes), std::move(done));
}

void JobBook::EndEntry(v1::JobStatus status, const std::string& reason,
                       Entry* entry) {
  entry->job.set_status(status);
  entry->job.set_reason(reason);
  entry->job.set_ended_unix_ns(absl::ToUnixNanos(now_()));
  Save(*entry, nullptr);
  Changed(entry);
}

void JobBook::Report(const std::string& id, const std::string& stage,
                     double fraction) {
  absl::MutexLock lock(&mutex_);
  Entry* entry = Open(id);
  if (entry == nullptr) return;
  entry->job.set_stage(stage);
  entry->job.set_fraction(fraction);
  Changed(entry);
}

void JobBook::ReportPeak(const std::string& id, uint64_t bytes) {
  absl::MutexLock lock(&mutex_);
  // Wakes nobody: who watches sees it with the next progress.
  if (Entry* entry = Open(id)) entry->job.set_peak_bytes(bytes);
}

// A job may have ended by itself in the meantime: its first end stays.
void JobBook::End(const std::string& id, v1::JobStatus status,
                  const std::string& reason) {
  absl::MutexLock lock(&mutex_);
  if (Entry* entry = Open(id)) EndEntry(status, reason, entry);
}

// Called while the set is saved (SetCatalog::Companion); nothing shows it
// before Done.
v1::Job JobBook::Finished(const std::string& id, const v1::InferResult& result,
                          WriteSet* writes) const {
  absl::MutexLock lock(&mutex_);
  // It is there: no job is forgotten before it has ended.
  const Entry& entry = *FindEntry(id);
  v1::Job job = entry.job;
  job.set_status(v1::JOB_STATUS_DONE);
  job.set_stage("done");
  job.set_fraction(1);
  job.set_ended_unix_ns(absl::ToUnixNanos(now_()));
  *job.mutable_result() = result;
  writes->Put(Table::kMeta, JobKey(entry.slot), job.SerializeAsString());
  return job;
}

void JobBook::Done(const v1::Job& finished) {
  absl::MutexLock lock(&mutex_);
  Entry* entry = Open(finished.id());
  if (entry == nullptr) return;
  entry->job = finished;
  Changed(entry);
}

std::vector<v1::Job> JobBook::List() const {
  absl::MutexLock lock(&mutex_);
  std::vector<v1::Job> jobs;
  for (const auto& [number, entry] : entries_) jobs.push_back(entry.job);
  return jobs;
}

absl::StatusOr<v1::Job> JobBook::Find(const std::string& id) const {
  // Revisions begin at 1, so this does not wait.
  absl::StatusOr<Snapshot> now = Wait(id, 0, absl::ZeroDuration());
  if (!now.ok()) return now.status();
  return std::move(now->job);
}

// Clients follow a job by this call: each change raises the revision, so that
// none has to be compared.
absl::StatusOr<JobBook::Snapshot> JobBook::Wait(const std::string& id,
                                                uint64_t after,
                                                absl::Duration patience) const {
  absl::MutexLock lock(&mutex_);
  const auto changed = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const Entry* entry = FindEntry(id);
    // A job that was forgotten meanwhile ends the wait as well.
    return entry == nullptr || entry->revision > after;
  };
  mutex_.AwaitWithTimeout(absl::Condition(&changed), patience);
  const Entry* entry = FindEntry(id);
  if (entry == nullptr) return NoSuchJob(id);
  return Snapshot{.revision = entry->revision, .job = entry->job};
}

}  // namespace traincheck::server
