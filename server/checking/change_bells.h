// Lets those who wait for changes of one run, or of all runs, sleep until there
// is something to look at.
//
//   ChangeBells::Bell bell(&bells, run);
//   while (...) {
//     Look();               // what rings meanwhile is not missed
//     bell.Wait(deadline);
//   }
//
// Threads: safe on any thread; one bell, one thread. Bells must not outlive
// their ChangeBells.
#ifndef TRAINCHECK_SERVER_CHECKING_CHANGE_BELLS_H_
#define TRAINCHECK_SERVER_CHECKING_CHANGE_BELLS_H_

#include <set>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace traincheck::server {

class ChangeBells {
 public:
  class Bell {
   public:
    // For `run`; empty: for all.
    Bell(ChangeBells* bells, std::string run);
    ~Bell();
    Bell(const Bell&) = delete;
    Bell& operator=(const Bell&) = delete;

    // Returns once it has rung since it was made, or since the last return that
    // said so. False: it has not, until `deadline`.
    bool Wait(absl::Time deadline);

   private:
    friend class ChangeBells;
    ChangeBells& bells_;
    const std::string run_;
    absl::CondVar rings_;
    bool has_rung_ = false;  // guarded by bells_.mutex_, as rings_
  };

  ChangeBells() = default;
  ChangeBells(const ChangeBells&) = delete;
  ChangeBells& operator=(const ChangeBells&) = delete;

  // For those who wait for the run, and for all runs.
  void Ring(const std::string& run);
  void RingAll();

 private:
  static void Ring(Bell* bell) {
    bell->has_rung_ = true;
    bell->rings_.Signal();
  }

  absl::Mutex mutex_;
  std::set<Bell*> all_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace traincheck::server

#endif  // TRAINCHECK_SERVER_CHECKING_CHANGE_BELLS_H_
