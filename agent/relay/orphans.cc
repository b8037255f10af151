#include "agent/relay/orphans.h"

#include <ctime>
#include <filesystem>
#include <utility>

#include "agent/relay/identity.h"
#include "agent/relay/limits.h"
#include "agent/relay/process_liveness.h"
#include "base/logging.h"

namespace traincheck::agent {

// One file at a time: orphans must not compete with the processes of this
// relay.
void Orphans::Turn(TimePoint now, bool streaming) {
  // Without a stream of another process nothing says that the server is there,
  // and a file would be taken for nothing.
  if (streaming && now >= next_scan_) Scan(now);
  if (current_ == nullptr && streaming) StartNext(now);
  if (current_ == nullptr) return;
  current_->Turn(now);
  if (current_->done()) {
    spdlog::info("left spool file delivered file={}", current_->path());
    current_.reset();
  } else if (current_->refused()) {
    spdlog::warn("left spool file {} stays where it is: {}", current_->path(),
                 std::string(current_->last_error().message()));
    // This relay would hear the same again. The file waits for another relay,
    // or for `traincheckctl spool send`.
    left_alone_.insert(current_->path());
    current_.reset();
  } else if (current_->stuck(now)) {
    current_.reset();  // found again by a later scan
  }
}

// Files that other relays are making or deliver meanwhile cost nothing here:
// they are judged when their turn comes.
void Orphans::Scan(TimePoint now) {
  next_scan_ = now + kOrphanScanPeriod;
  found_.clear();
  // Only files that are still there stay known, so that the table does not grow
  // with all files that ever were.
  std::map<std::string, SpoolOwner> still_there;
  for (std::string& path : directory_->Files()) {
    if (auto known = owners_.extract(path))
      still_there.insert(std::move(known));
    if (left_alone_.count(path) == 0) found_.push_back(std::move(path));
  }
  owners_ = std::move(still_there);
}

void Orphans::StartNext(TimePoint now) {
  while (current_ == nullptr && !found_.empty()) {
    const std::string path = std::move(found_.back());
    found_.pop_back();
    current_ = Take(path, now);
  }
}

// Decides about a file. Most files belong to processes that live, here or on
// another node. For those of this boot the name says so; all others are opened
// once.
SpoolVerdict Orphans::Judge(const std::string& path) {
  const std::string name = std::filesystem::path(path).filename();
  if (const auto process = ProcessOfSpoolName(name, BootId())) {
    if (StartTicks(process->pid()) == process->start_ticks()) {
      return {SpoolFate::kInUse, "its process still runs"};
    }
  }
  const auto known = owners_.find(path);
  if (known != owners_.end()) {
    return JudgeSpool(path, known->second, std::time(nullptr));
  }
  absl::StatusOr<SpoolOwner> owner = ReadSpoolOwner(path);
  // A file whose beginning cannot be read yet may be in the making: it is
  // opened again.
  if (owner.ok()) owners_.emplace(path, *owner);
  return JudgeSpool(path, owner, std::time(nullptr));
}

// Null for a file that is not to be delivered now. What is wrong with it is
// logged once.
std::unique_ptr<OrphanDelivery> Orphans::Take(const std::string& path,
                                              TimePoint now) {
  const SpoolVerdict verdict = Judge(path);
  if (verdict.fate == SpoolFate::kInUse || verdict.fate == SpoolFate::kGone) {
    return nullptr;
  }
  if (verdict.fate == SpoolFate::kDamaged) {
    spdlog::error("damaged spool file set aside as {}: {}",
                  SetDamagedAside(path), verdict.why);
    return nullptr;
  }
  if (verdict.fate == SpoolFate::kUnreadable) {
    spdlog::warn("left spool file cannot be read: {}", verdict.why);
    left_alone_.insert(path);
    return nullptr;
  }
  absl::StatusOr<LoadedSpool> loaded = LoadSpool(directory_, path);
  // Another relay was faster.
  if (!loaded.ok()) return nullptr;
  spdlog::info("left spool file taken file={} batches={}", path,
               loaded->batches.size());
  return std::make_unique<OrphanDelivery>(dependencies_, *std::move(loaded),
                                          now);
}

}  // namespace traincheck::agent
