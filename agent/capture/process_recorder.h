// Everything that this process records into: the definitions, a ring for each
// thread that records, the connection to the relay and the step rules. Made at
// the first record; a forked child makes its own and never touches its
// parent's.
//
// A thread that ends leaves its ring to the next one. Threads beyond
// kMaxThreadRings at a time share the overflow ring, which only counts.
//
//   if (ThreadRecorder* thread = CurrentThread()) thread->Append(...);
//
// Threads: GIL held, unless a function says otherwise. CurrentThread's result
// belongs to the calling thread.
#ifndef TRAINCHECK_AGENT_CAPTURE_PROCESS_RECORDER_H_
#define TRAINCHECK_AGENT_CAPTURE_PROCESS_RECORDER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agent/capture/definitions.h"
#include "agent/capture/fork_page.h"
#include "agent/capture/open_backwards.h"
#include "agent/capture/process_identity.h"
#include "agent/capture/relay_link.h"
#include "agent/capture/thread_recorder.h"
#include "proto/step_rule.h"

namespace traincheck::agent {

// What only the loader of the agent knows.
struct AgentSetup {
  std::string folder;  // of the relay's program
  std::string torch_version;
  std::string python_version;
};
void SetUpAgent(const AgentSetup& setup);

class ProcessRecorder {
 public:
  // This process's; made now if there is none. nullptr: recording is off, for
  // a reason that has been logged.
  static ProcessRecorder* Get();
  // This process's, if it is there already.
  static ProcessRecorder* GetIfMade();

  Definitions& definitions() { return *definitions_; }
  StepRules& step_rules() { return step_rules_; }
  uint64_t closed_steps() const { return step_rules_.step(); }

  const ProcessIdentity& identity() const { return identity_; }
  // Writes the ProcessDef again if it changes. `owner_pid`: whom a worker
  // serves; 0: its parent. `pass_seed`: see ProcessIdentity.
  void SetKind(ProcessKind kind, uint32_t worker_id, uint32_t owner_pid,
               std::optional<uint64_t> pass_seed);
  // The run's name is final: `run`, or the one that it has if that is "".
  void SettleRun(const std::string& run);

  // Calls of category backward that are open on any thread.
  std::vector<OpenBackward>& open_backwards() { return open_backwards_; }

  // What is due now and then, at marks and closed steps: hands over what a
  // busy relay had no room for, and starts another one in place of one that
  // died, at most kMaxRelayRestarts times. Under a microsecond while the relay
  // lives, some milliseconds where one is started.
  void Tend();
  // For processes that may set no mark: every now and then, from calls that
  // have hooks. Does nothing in a main process.
  void TendChild();

  // A change of plan that the relay has sent; see relay_link.h.
  std::optional<PlanChange> TakePlan() { return link_.TakePlan(); }

  // Has the relay acknowledged or spooled all that was committed, or died?
  bool Settled();

 private:
  friend ThreadRecorder* CurrentThreadSlow();
  friend void ForgetParentsRecorder();

  ProcessRecorder() = default;
  // The link to the relay first: the ancestor's, else one of our own.
  std::string Open(const ProcessRecorder* ancestor);
  // For the calling thread; nullptr: nothing left for it.
  ThreadRecorder* AddThread();
  ThreadRecorder* NewThread();
  ThreadRecorder* OverflowThread();
  void SetOwner(uint32_t owner_pid);
  ThreadRecorder* TakeOver(ThreadRecorder* thread);
  std::unique_ptr<RingWriter> NewRing(uint32_t number, uint64_t bytes);
  void RefuseEvents(bool refuse);
  void RestartRelay();

  ProcessIdentity identity_;
  RelayLink link_;
  std::unique_ptr<Definitions> definitions_;
  // rings_[i] has number i + 1 and is that of threads_[i].
  std::vector<std::unique_ptr<RingWriter>> rings_;
  std::vector<std::unique_ptr<ThreadRecorder>> threads_;
  std::unique_ptr<RingWriter> overflow_ring_;
  std::vector<std::unique_ptr<ThreadRecorder>> overflow_threads_;
  bool forked_ = false;
  bool gave_up_ = false;
  uint64_t tended_ns_ = 0;
  StepRules step_rules_;
  std::vector<OpenBackward> open_backwards_;
};

// Recorder of the calling thread, null if recording is off for the process or
// the thread. Made at first use.
extern constinit thread_local ThreadRecorder* t_thread;
ThreadRecorder* CurrentThreadSlow();
void SayIfForkWasUnseen();
inline ThreadRecorder* CurrentThread() {
  if (!Recording()) [[unlikely]] {
    SayIfForkWasUnseen();
    return nullptr;
  }
  ThreadRecorder* thread = t_thread;
  return thread != nullptr ? thread : CurrentThreadSlow();
}

}  // namespace traincheck::agent

#endif  // TRAINCHECK_AGENT_CAPTURE_PROCESS_RECORDER_H_
