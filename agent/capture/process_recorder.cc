#include "agent/capture/process_recorder.h"

#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "agent/capture/capture_mode.h"
#include "agent/capture/clock.h"
#include "agent/capture/log.h"
#include "proto/record_format.h"

namespace traincheck::agent {

constinit thread_local ThreadRecorder* t_thread = nullptr;

namespace {

// Other processes than the main one look after their relay at most this often.
constexpr uint64_t kTendChildNs = 10'000'000;

// The nearest process above that recorded; its memory is a copy that nobody
// changes any more.
const ProcessRecorder* g_ancestor = nullptr;
AgentSetup* g_setup = nullptr;

// Field 22 of /proc/PID/stat, counted behind the name, which may hold spaces
// and brackets. 0: the process is gone.
uint64_t StartTicks(uint32_t pid) {
  constexpr int kFieldsBehindName = 20;
  const std::string stat = System::Real().proc_file(pid, "stat");
  size_t at = stat.rfind(')');
  for (int i = 0; i < kFieldsBehindName && at != std::string::npos; ++i) {
    at = stat.find(' ', at + 1);
  }
  return at == std::string::npos ? 0 : std::strtoull(&stat[at], nullptr, 10);
}

// 0: the system gives none (a filter of system calls).
uint64_t RandomNumber() {
  uint64_t number = 0;
  const long bytes = syscall(SYS_getrandom, &number, sizeof number, 0);
  return bytes == sizeof number ? number : 0;
}

std::string RelayProgram() { return g_setup->folder + "/traincheck-relay"; }

// The generation in which this thread was refused a ring, so that it does not
// ask again at each record. A forked child has another generation and asks
// anew.
constinit thread_local uint32_t t_refused = 0;

// Its destructor runs when the thread ends and leaves the ring to the next
// thread.
class ThreadEnd {
 public:
  void Arm() { armed_ = true; }
  ~ThreadEnd() {
    if (!armed_) return;
    // No recorder: a child of a fork that nobody has seen.
    if (t_thread != nullptr && g_fork_page.process != nullptr) t_thread->End();
    t_thread = nullptr;
    t_refused = g_generation;
  }

 private:
  bool armed_ = false;
};
thread_local ThreadEnd t_end;

}  // namespace

// Runs in a forked child, from pthread_atfork, where only the forking thread
// exists and locks may be held: no allocation, no lock.
void ForgetParentsRecorder() {
  if (ProcessRecorder* parents = RenewForkPage()) {
    parents->link_.Abandon();
    g_ancestor = parents;
  }
  t_thread = nullptr;
  // The child's records carry no mark of the parent's mode, so the child begins
  // with the full one, unless recording is off.
  if (g_capture_mode != CaptureMode::kOff) g_capture_mode = CaptureMode::kAll;
  g_rotation = {};
}

void SetUpAgent(const AgentSetup& setup) {
  if (g_setup == nullptr) {
    g_setup = new AgentSetup;
    SetUpForkPage();
    pthread_atfork(nullptr, nullptr, ForgetParentsRecorder);
  }
  *g_setup = setup;
}

ProcessRecorder* ProcessRecorder::GetIfMade() { return g_fork_page.process; }

// The recorder is made when something is recorded first, not at import: until
// then a process has no rings and no relay.
ProcessRecorder* ProcessRecorder::Get() {
  if (g_fork_page.process != nullptr) return g_fork_page.process;
  if (!Recording() || g_setup == nullptr) return nullptr;
  auto* process = new ProcessRecorder;
  const std::string error = process->Open(g_ancestor);
  if (!error.empty()) {
    delete process;
    // Off for good: each further record would fail in the same way.
    SetRecording(false);
    // Of workers there are many, and each would say the same.
    if (g_ancestor == nullptr) LogLine("recording is off: " + error);
    return nullptr;
  }
  SetProcessRecorder(process);
  return process;
}

// "": all is ready. The ProcessDef is committed first and the relay is
// connected last, so that a relay which reads at once finds out whom it serves.
std::string ProcessRecorder::Open(const ProcessRecorder* ancestor) {
  const System system = System::Real();
  if (ancestor != nullptr) {
    identity_ = IdentifyForkedChild(system, ancestor->identity_);
    identity_.owner_step = ancestor->step_rules_.step();
  } else {
    identity_ = IdentifyProcess(system);
    identity_.torch_version = g_setup->torch_version;
    identity_.python_version = g_setup->python_version;
  }
  identity_.first_recorded_ns = RealtimeNs();
  identity_.image = RandomNumber();
  auto ring = RingWriter::Create(kDefinitionRing, kDefinitionRingBytes);
  if (ring == nullptr) {
    return std::string("no shared memory: ") + std::strerror(errno);
  }
  definitions_ = std::make_unique<Definitions>(std::move(ring));
  definitions_->OnBlocked([this](bool blocked) { RefuseEvents(blocked); });
  if (!definitions_->Process(identity_)) return "the process has no name";
  forked_ = ancestor != nullptr;
  std::string error = "no relay yet";
  // A child of fork uses the relay that is there: of loaders' workers there are
  // many.
  if (forked_) error = link_.Join(ancestor->link_);
  // The ancestor's may be dead.
  if (!error.empty()) error = link_.Start(RelayProgram());
  if (error.empty()) link_.HandOver(&definitions_->ring());
  return error;
}

// The parent of a worker may be a server that only forks: then the owner is
// not the parent.
void ProcessRecorder::SetOwner(uint32_t owner_pid) {
  if (owner_pid == 0) owner_pid = identity_.owner_pid;
  if (owner_pid == 0) owner_pid = identity_.parent_pid;
  if (owner_pid == identity_.owner_pid) return;
  identity_.owner_pid = owner_pid;
  identity_.owner_ticks = owner_pid == identity_.parent_pid
                              ? identity_.parent_ticks
                              : StartTicks(owner_pid);
}

// A process learns late what it is: a worker is known only when its loop
// begins. The ProcessDef is then written again.
void ProcessRecorder::SetKind(ProcessKind kind, uint32_t worker_id,
                              uint32_t owner_pid,
                              std::optional<uint64_t> pass_seed) {
  if (identity_.kind == kind && identity_.worker_id == worker_id) return;
  identity_.pass_seed = pass_seed;
  identity_.kind = kind;
  identity_.worker_id = worker_id;
  if (kind == ProcessKind::kWorker) SetOwner(owner_pid);
  if (!definitions_->Process(identity_)) {
    LogOnce("process kind",
            "definition ring full: the kind of this process is not recorded");
  }
  Tend();
}

// The relay waits for this before it says Hello to the daemon, since no run is
// renamed.
void ProcessRecorder::SettleRun(const std::string& run) {
  if (!identity_.run_is_provisional) return;
  identity_.run_is_provisional = false;
  if (!run.empty()) identity_.run = run;
  if (!definitions_->Process(identity_)) {
    LogOnce("run",
            "definition ring full: the run of this process is not recorded");
  }
}

// In a thread's first record, with the GIL.
ThreadRecorder* ProcessRecorder::AddThread() {
  Tend();
  ThreadRecorder* free = nullptr;
  // A ring of a thread that has ended is used again, so that a program which
  // makes threads without end needs few. The emptiest one loses least.
  for (const auto& thread : threads_) {
    if (thread->in_use()) continue;
    if (free == nullptr || thread->ring().backlog() < free->ring().backlog()) {
      free = thread.get();
    }
  }
  // Half full: then rather a new one, while there are any.
  const bool roomy = free != nullptr && free->ring().backlog() <=
                                            free->ring().capacity_bytes() / 2;
  if (roomy) return TakeOver(free);
  if (ThreadRecorder* thread = NewThread()) return thread;
  return free != nullptr ? TakeOver(free) : OverflowThread();
}

ThreadRecorder* ProcessRecorder::TakeOver(ThreadRecorder* thread) {
  // A thread that was ended within a backward leaves it open.
  std::erase_if(open_backwards_, [&](const OpenBackward& backward) {
    return backward.ring == thread->ring().ring();
  });
  thread->TakeOver();
  return thread;
}

std::unique_ptr<RingWriter> ProcessRecorder::NewRing(uint32_t number,
                                                     uint64_t bytes) {
  auto ring = RingWriter::Create(number, bytes);
  if (ring == nullptr) {
    LogOnce("rings", std::string("no shared memory for a thread's ring: ") +
                         std::strerror(errno));
  }
  return ring;
}

// One ring for each thread that records, up to kMaxThreadRings.
ThreadRecorder* ProcessRecorder::NewThread() {
  const uint32_t number = static_cast<uint32_t>(rings_.size()) + 1;
  if (number > kMaxThreadRings) return nullptr;
  auto ring = NewRing(number, number == 1 ? kMainRingBytes : kThreadRingBytes);
  if (ring == nullptr) return nullptr;
  rings_.push_back(std::move(ring));
  // The recorder writes a ClockSync at once, even while events are refused: it
  // needs no definition.
  RingWriter* writer = rings_.back().get();
  threads_.push_back(
      std::make_unique<ThreadRecorder>(writer, definitions_.get()));
  // The other rings were stopped when the tables became blocked.
  writer->Refuse(definitions_->blocked());
  link_.HandOver(writer);
  return threads_.back().get();
}

// All further threads share a ring that refuses every record: its counters say
// how much is missing.
ThreadRecorder* ProcessRecorder::OverflowThread() {
  LogOnce("rings", "more than " + std::to_string(kMaxThreadRings) +
                       " threads record at a time: what further ones do is "
                       "counted as dropped");
  if (overflow_ring_ == nullptr) {
    overflow_ring_ = NewRing(kOverflowRing, kOverflowRingBytes);
    if (overflow_ring_ == nullptr) return nullptr;
  }
  for (const auto& thread : overflow_threads_) {
    if (!thread->in_use()) return TakeOver(thread.get());
  }
  const bool first = overflow_threads_.empty();
  overflow_threads_.push_back(std::make_unique<ThreadRecorder>(
      overflow_ring_.get(), definitions_.get()));
  if (first) {
    overflow_ring_->Refuse(true);  // all but the ClockSync that it begins with
    link_.HandOver(overflow_ring_.get());
  }
  return overflow_threads_.back().get();
}

// While definitions have no room, no event may be committed that would refer to
// them.
void ProcessRecorder::RefuseEvents(bool refuse) {
  for (const auto& ring : rings_) ring->Refuse(refuse);
}

void ProcessRecorder::Tend() {
  // First: while definitions wait for room every event is refused.
  definitions_->Retry();
  // The overflow ring refuses all records, and so reports its drops only here.
  if (overflow_ring_ != nullptr) overflow_ring_->ReportDrops();
  if (link_.Tend() == RelayLink::State::kDead && !gave_up_) RestartRelay();
}

void ProcessRecorder::TendChild() {
  if (identity_.kind == ProcessKind::kMain) return;
  // Calls with hooks may come by the thousand in a second, and each look at the
  // relay is a system call.
  const uint64_t now_ns = MonotonicNs();
  if (now_ns - tended_ns_ < kTendChildNs) return;
  tended_ns_ = now_ns;
  Tend();
}

// Called when the socket is at its end.
void ProcessRecorder::RestartRelay() {
  std::string why = "it died again";
  if (definitions_->ring().fd() < 0) {
    why = "the program has closed the files of its rings";
  } else if (link_.may_restart()) {
    // The new relay has to know whom it serves.
    [[maybe_unused]] const bool told = definitions_->Process(identity_);
    why = link_.Restart(RelayProgram());
    // A start that failed is tried again at a later mark.
    if (why.empty() || link_.may_restart()) return;
  }
  gave_up_ = true;
  // Of forked children there are many, and each would say the same.
  if (forked_) return;
  LogLine("the relay died and cannot be replaced (" + why +
          "): records of this process are dropped from now on");
}

// Waited for at exit, in ExitFlush.
bool ProcessRecorder::Settled() {
  definitions_->Retry();
  // Without a relay nothing more is taken, and waiting would be for nothing.
  if (link_.Tend() != RelayLink::State::kAlive) return true;
  const auto drained = [](const auto& ring) { return ring->drained(); };
  return definitions_->ring().drained() &&
         std::all_of(rings_.begin(), rings_.end(), drained) &&
         (overflow_ring_ == nullptr || overflow_ring_->drained());
}

// A child of a raw clone() has no recorder, and its rings are not mapped:
// nothing can be recorded, and nobody would know why.
void SayIfForkWasUnseen() {
  static constinit bool said = false;
  if (said || !ForkWasUnseen()) return;
  said = true;
  LogLine("process " + std::to_string(getpid()) +
          " was forked without fork() of the C library: it is not recorded");
}

// The slow path of CurrentThread: once for each thread and generation.
ThreadRecorder* CurrentThreadSlow() {
  if (t_refused == g_generation) return nullptr;
  ProcessRecorder* process = ProcessRecorder::Get();
  if (process == nullptr) return nullptr;
  t_thread = process->AddThread();
  if (t_thread == nullptr) {
    t_refused = g_generation;
  } else {
    // A destructor runs only in threads that have touched the object: it frees
    // the ring for the next thread.
    t_end.Arm();
  }
  return t_thread;
}

}  // namespace traincheck::agent
