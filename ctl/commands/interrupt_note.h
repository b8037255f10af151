// What a waiting command says when the user interrupts it: the work goes on
// at the server.
//
// Threads: made before any other thread, so that no other takes the signal.
// SetJob on any thread.
#ifndef TRAINCHECK_CTL_COMMANDS_INTERRUPT_NOTE_H_
#define TRAINCHECK_CTL_COMMANDS_INTERRUPT_NOTE_H_

#include <mutex>
#include <string>

namespace traincheck::ctl {

class InterruptNote {
 public:
  // From now on SIGINT and SIGTERM say that the job goes on, how to see and
  // how to cancel it, and end the process with 128 and the signal's number.
  // One for each process, which it outlives.
  InterruptNote();
  InterruptNote(const InterruptNote&) = delete;
  InterruptNote& operator=(const InterruptNote&) = delete;

  void SetJob(const std::string& id);

 private:
  [[noreturn]] void Await();

  std::mutex mutex_;
  std::string job_;  // guarded by mutex_
};

}  // namespace traincheck::ctl

#endif  // TRAINCHECK_CTL_COMMANDS_INTERRUPT_NOTE_H_
