// A store whose writes stop where a killed daemon's would.
//
// Threads: as the store under it.
#ifndef TRAINCHECK_SERVER_CHECKING_MORTAL_STORE_FOR_TESTING_H_
#define TRAINCHECK_SERVER_CHECKING_MORTAL_STORE_FOR_TESTING_H_

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "server/store/store.h"

namespace traincheck::server {

// The disk of a daemon that may be killed: what is written from then on never
// gets there.
class MortalStore : public Store {
 public:
  explicit MortalStore(std::unique_ptr<Store> disk) : disk_(std::move(disk)) {}
  void Kill() { dead_ = true; }

  const std::string& id() const override { return disk_->id(); }
  void Write(WriteSet writes, Done done) override {
    if (!dead_) disk_->Write(std::move(writes), std::move(done));
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
  std::unique_ptr<Store> disk_;
  std::atomic<bool> dead_{false};
};

}  // namespace traincheck::server

#endif  // TRAINCHECK_SERVER_CHECKING_MORTAL_STORE_FOR_TESTING_H_
