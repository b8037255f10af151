#include "agent/capture/process_recorder.h"

#include <pthread.h>
#include <time.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "agent/capture/clock.h"
#include "agent/capture/log.h"

namespace traincheck {

std::atomic<bool> g_recording{true};
uint32_t g_generation = 1;
constinit thread_local ThreadRecorder* t_thread = nullptr;

namespace {

constexpr uint64_t kPollNs = 1'000'000;

ProcessRecorder* g_process = nullptr;
// The nearest process above that recorded; its memory is a copy that nobody
// changes any more.
const ProcessRecorder* g_ancestor = nullptr;
AgentSetup* g_setup = nullptr;

// Threads for which there is no ring: not asked for again. A generation, so
// that it ends with a fork.
constinit thread_local uint32_t t_refused = 0;

// Marks the ring of a thread that ends.
class ThreadEnd {
 public:
  void Arm() { armed_ = true; }
  ~ThreadEnd() {
    if (!armed_) return;
    if (t_thread != nullptr) t_thread->ring().MarkClosed();
    t_thread = nullptr;
    t_refused = g_generation;
  }

 private:
  bool armed_ = false;
};
thread_local ThreadEnd t_end;

}  // namespace

// In a forked child, from pthread_atfork: no allocation, no lock.
void ForgetParentsRecorder() {
  if (g_process != nullptr) {
    g_process->link_.Abandon();
    g_ancestor = g_process;
  }
  g_process = nullptr;
  t_thread = nullptr;
  ++g_generation;
}

void SetUpAgent(const AgentSetup& setup) {
  if (g_setup == nullptr) {
    g_setup = new AgentSetup;
    pthread_atfork(nullptr, nullptr, ForgetParentsRecorder);
  }
  *g_setup = setup;
}

ProcessRecorder* ProcessRecorder::GetIfMade() { return g_process; }

ProcessRecorder* ProcessRecorder::Get() {
  if (g_process != nullptr) return g_process;
  if (!Recording() || g_setup == nullptr) return nullptr;
  auto* process = new ProcessRecorder;
  const std::string error = process->Open(g_ancestor);
  if (!error.empty()) {
    delete process;
    g_recording.store(false, std::memory_order_relaxed);
    // Of workers there are many, and each would say the same.
    if (g_ancestor == nullptr) LogLine("recording is off: " + error);
    return nullptr;
  }
  g_process = process;
  return process;
}

std::string ProcessRecorder::Open(const ProcessRecorder* ancestor) {
  const System system = System::Real();
  if (ancestor != nullptr) {
    identity_ = IdentifyForkedChild(system, ancestor->identity_);
  } else {
    identity_ = IdentifyProcess(system);
    identity_.torch_version = g_setup->torch_version;
    identity_.python_version = g_setup->python_version;
  }
  identity_.first_recorded_ns = RealtimeNs();
  auto ring = RingWriter::Create(kDefinitionRing, kDefinitionRingBytes);
  if (ring == nullptr) {
    return std::string("no shared memory: ") + std::strerror(errno);
  }
  definitions_ = std::make_unique<Definitions>(std::move(ring));
  if (!definitions_->Process(identity_)) return "the process has no name";
  const std::string error =
      ancestor != nullptr ? link_.Join(ancestor->link_.address())
                          : link_.Start(g_setup->folder + "/traincheck-relay");
  if (error.empty()) link_.HandOver(&definitions_->ring());
  return error;
}

void ProcessRecorder::SetKind(ProcessKind kind, uint32_t worker_id) {
  if (identity_.kind == kind && identity_.worker_id == worker_id) return;
  identity_.kind = kind;
  identity_.worker_id = worker_id;
  if (kind == ProcessKind::kWorker && identity_.owner_pid == 0) {
    identity_.owner_pid = identity_.parent_pid;  // spawned, not forked
    identity_.owner_ticks = identity_.parent_ticks;
  }
  if (!definitions_->Process(identity_)) {
    LogOnce("process kind", "no room to say what kind of process this is");
  }
}

ThreadRecorder* ProcessRecorder::AddThread() {
  const uint32_t ring = static_cast<uint32_t>(threads_.size()) + 1;
  if (ring >= kMaxRingsPerProcess) {
    LogOnce("rings", "more threads than rings; further ones are not recorded");
    return nullptr;
  }
  auto writer =
      RingWriter::Create(ring, ring == 1 ? kMainRingBytes : kThreadRingBytes);
  if (writer == nullptr) {
    LogOnce("rings", std::string("no shared memory for a thread's ring: ") +
                         std::strerror(errno));
    return nullptr;
  }
  threads_.push_back(std::make_unique<ThreadRecorder>(std::move(writer)));
  ThreadRecorder* thread = threads_.back().get();
  link_.HandOver(&thread->ring());
  return thread;
}

bool ProcessRecorder::settled() const {
  if (!link_.alive()) return true;
  return definitions_->ring().drained() &&
         std::all_of(threads_.begin(), threads_.end(),
                     [](const auto& t) { return t->ring().drained(); });
}

ThreadRecorder* CurrentThreadSlow() {
  if (t_refused == g_generation) return nullptr;
  ProcessRecorder* process = ProcessRecorder::Get();
  if (process == nullptr) return nullptr;
  t_thread = process->AddThread();
  if (t_thread == nullptr) {
    t_refused = g_generation;
  } else {
    t_end.Arm();
  }
  return t_thread;
}

void WaitUntilSettled(double seconds) {
  ProcessRecorder* process = g_process;
  if (process == nullptr) return;
  const uint64_t deadline =
      MonotonicNs() + static_cast<uint64_t>(seconds * 1e9);
  process->RetryHandOver();
  while (!process->settled() && MonotonicNs() < deadline) {
    const timespec pause = {0, kPollNs};
    nanosleep(&pause, nullptr);
    process->RetryHandOver();
  }
}

}  // namespace traincheck
