// A store whose writes stop where a killed daemon's would.
//
// Threads: as the store under it.
#ifndef TRAINCHECK_SERVER_CHECKING_MORTAL_STORE_FOR_TESTING_H_
#define TRAINCHECK_SERVER_CHECKING_MORTAL_STORE_FOR_TESTING_H_

#include <atomic>
#include <utility>

#include "server/store/forwarding_store_for_testing.h"

namespace traincheck::server {

// The disk of a daemon that may be killed: what is written from then on never
// gets there.
class MortalStore : public ForwardingStore {
 public:
  using ForwardingStore::ForwardingStore;
  void Kill() { dead_ = true; }

  void Write(WriteSet writes, Done done) override {
    if (!dead_) ForwardingStore::Write(std::move(writes), std::move(done));
  }

 private:
  std::atomic<bool> dead_{false};
};

}  // namespace traincheck::server

#endif  // TRAINCHECK_SERVER_CHECKING_MORTAL_STORE_FOR_TESTING_H_
