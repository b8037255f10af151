#include "agent/capture/fork_page.h"

#include <sys/mman.h>
#include <unistd.h>

namespace traincheck::agent {

constinit ForkPage g_fork_page = {};

namespace {

#ifndef MADV_WIPEONFORK
constexpr int MADV_WIPEONFORK = 18;
#endif

// A copy of what the page has held, in memory that a fork does not wipe.
struct Kept {
  bool recording = false;
  uint32_t generation = 0;
  ProcessRecorder* process = nullptr;
};
constinit Kept g_kept = {};

}  // namespace

// Called with the GIL, but the page's flag is read by any thread.
void SetRecording(bool on) {
  // In both places, because a fork wipes the page alone.
  g_kept.recording = on;
  g_fork_page.recording.store(on, std::memory_order_relaxed);
}

void SetUpForkPage() {
  // Zeros of a library's memory are anonymous, so madvise accepts them. On a
  // system with larger pages the wiped page would hold variables of others.
  if (sysconf(_SC_PAGESIZE) == static_cast<long>(kForkPageBytes)) {
    madvise(&g_fork_page, kForkPageBytes, MADV_WIPEONFORK);
  }
  g_fork_page.generation = ++g_kept.generation;
  SetRecording(true);
}

void SetProcessRecorder(ProcessRecorder* process) {
  g_kept.process = process;
  g_fork_page.process = process;
}

// From the atfork handler. The order does not matter there: the child has one
// thread.
ProcessRecorder* RenewForkPage() {
  ProcessRecorder* parents = g_kept.process;
  SetProcessRecorder(nullptr);
  SetRecording(g_kept.recording);
  // Counted where no fork wipes it.
  g_fork_page.generation = ++g_kept.generation;
  return parents;
}

// The copy says that recording is on and the page says that it is off: the page
// was wiped, and no handler has run.
bool ForkWasUnseen() { return g_kept.recording && !Recording(); }

}  // namespace traincheck::agent
