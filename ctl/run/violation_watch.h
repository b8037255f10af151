// A thread that follows a run's violations while the training goes on. It
// outlasts servers that come, go and come back, and says nothing about that:
// the verdict at the end does.
#ifndef TRAINCHECK_CTL_RUN_VIOLATION_WATCH_H_
#define TRAINCHECK_CTL_RUN_VIOLATION_WATCH_H_

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "ctl/client.h"
#include "ctl/run/violation_printer.h"

namespace traincheck::ctl {

class ViolationWatch {
 public:
  // REQUIRES: client and printer outlive the watch.
  ViolationWatch(Client* client, const std::string& run,
                 ViolationPrinter* printer);
  // Ends the thread.
  ~ViolationWatch();
  ViolationWatch(const ViolationWatch&) = delete;
  ViolationWatch& operator=(const ViolationWatch&) = delete;

 private:
  void Follow();
  // Waits before the next try; false when it is time to end.
  bool Pause();

  Client& client_;
  const std::string run_;
  ViolationPrinter& printer_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool ending_ = false;                      // guarded by mutex_
  std::unique_ptr<ViolationStream> stream_;  // guarded by mutex_
  std::thread thread_;
};

}  // namespace traincheck::ctl

#endif  // TRAINCHECK_CTL_RUN_VIOLATION_WATCH_H_
