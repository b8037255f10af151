// A store in front of another one, for tests that need one call to be special.
//
// Threads: as the store behind it.
#ifndef TRAINCHECK_SERVER_STORE_FORWARDING_STORE_FOR_TESTING_H_
#define TRAINCHECK_SERVER_STORE_FORWARDING_STORE_FOR_TESTING_H_

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "server/store/store.h"

namespace traincheck::server {

class ForwardingStore : public Store {
 public:
  explicit ForwardingStore(std::unique_ptr<Store> disk)
      : disk_(std::move(disk)) {}

  const std::string& id() const override { return disk_->id(); }
  void Write(WriteSet writes, Done done) override {
    disk_->Write(std::move(writes), std::move(done));
  }
  absl::Status WriteAndWait(WriteSet writes, absl::Duration patience) override {
    return disk_->WriteAndWait(std::move(writes), patience);
  }
  absl::StatusOr<std::optional<std::string>> Get(
      Table table, const std::string& key) const override {
    return disk_->Get(table, key);
  }
  absl::Status Scan(Table table, const std::string& from, const std::string& to,
                    const Visitor& visitor) const override {
    return disk_->Scan(table, from, to, visitor);
  }
  absl::Status Erase(const WriteSet& deletions) override {
    return disk_->Erase(deletions);
  }
  absl::Status Reclaim(const std::string& from, const std::string& to,
                       std::atomic<bool>* cancel) override {
    return disk_->Reclaim(from, to, cancel);
  }
  absl::StatusOr<uint64_t> Backup(const std::string& folder) override {
    return disk_->Backup(folder);
  }
  StoreHealth Health() const override { return disk_->Health(); }
  void Close() override { disk_->Close(); }

 private:
  const std::unique_ptr<Store> disk_;
};

// A disk that stalls: what is written meanwhile is queued, and who waits for it
// gives up at once.
class StallingStore : public ForwardingStore {
 public:
  using ForwardingStore::ForwardingStore;
  void Stall() {
    absl::MutexLock lock(&mutex_);
    stalls_ = true;
  }
  // Returns when all that was queued is durable.
  absl::Status GoOn() {
    {
      absl::MutexLock lock(&mutex_);
      stalls_ = false;
      for (auto& [writes, done] : queue_) {
        ForwardingStore::Write(std::move(writes), std::move(done));
      }
      queue_.clear();
    }
    return ForwardingStore::WriteAndWait(WriteSet(), absl::Minutes(1));
  }

  void Write(WriteSet writes, Done done) override {
    absl::MutexLock lock(&mutex_);
    if (stalls_) {
      queue_.emplace_back(std::move(writes), std::move(done));
    } else {
      ForwardingStore::Write(std::move(writes), std::move(done));
    }
  }
  absl::Status WriteAndWait(WriteSet writes, absl::Duration patience) override {
    {
      absl::MutexLock lock(&mutex_);
      if (stalls_) {
        queue_.emplace_back(std::move(writes), nullptr);
        return absl::UnavailableError("the disk stalls");
      }
    }
    return ForwardingStore::WriteAndWait(std::move(writes), patience);
  }

 private:
  absl::Mutex mutex_;
  bool stalls_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::pair<WriteSet, Done>> queue_ ABSL_GUARDED_BY(mutex_);
};

// WriteAndWait succeeds only if another thread can read meanwhile: who writes
// must hold nothing that readers need.
class OvertakenStore : public StallingStore {
 public:
  using StallingStore::StallingStore;
  ~OvertakenStore() override {
    for (std::thread& reader : readers_) reader.join();
  }
  void ReadBeforeWrites(std::function<void()> read) { read_ = std::move(read); }

  absl::Status WriteAndWait(WriteSet writes, absl::Duration patience) override {
    auto done = std::make_shared<absl::Notification>();
    readers_.emplace_back([read = read_, done] {
      if (read) read();
      done->Notify();
    });
    if (!done->WaitForNotificationWithTimeout(absl::Seconds(5))) {
      return absl::UnavailableError("a reader waits for who writes");
    }
    return StallingStore::WriteAndWait(std::move(writes), patience);
  }

 private:
  std::function<void()> read_;
  std::vector<std::thread> readers_;
};

}  // namespace traincheck::server

#endif  // TRAINCHECK_SERVER_STORE_FORWARDING_STORE_FOR_TESTING_H_
