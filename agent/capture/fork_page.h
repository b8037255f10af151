// What of this process's recorder a forked child must never use. The rings'
// memory is not there in a child; after fork() a handler sees to that
// (process_recorder.cc). But a child of a fork or clone system call that passes
// the C library by runs no handler: for it the kernel wipes this page, so that
// it finds recording off and no recorder, at no cost to whoever looks.
//
// Threads: GIL held, but for `recording`.
#ifndef TRAINCHECK_AGENT_CAPTURE_FORK_PAGE_H_
#define TRAINCHECK_AGENT_CAPTURE_FORK_PAGE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace traincheck::agent {

class ProcessRecorder;

inline constexpr size_t kForkPageBytes = 4096;

struct alignas(kForkPageBytes) ForkPage {
  std::atomic<bool> recording;
  uint32_t generation;
  ProcessRecorder* process;
};
static_assert(sizeof(ForkPage) == kForkPageBytes);
extern constinit ForkPage g_fork_page;

// The one switch: off, every wrapper is a plain call and no ring is made.
inline bool Recording() {
  return g_fork_page.recording.load(std::memory_order_relaxed);
}
void SetRecording(bool on);

// Counts the forks behind this process, from 1. Numbers of definitions that
// are kept outside ProcessRecorder are good only for the generation they were
// made in.
inline constexpr const uint32_t& g_generation = g_fork_page.generation;

// Asks the kernel to wipe the page in children; where it cannot (before Linux
// 4.14, larger pages) such a child may crash. Recording is on then.
void SetUpForkPage();

// As fork_page.process, also kept where a fork leaves it.
void SetProcessRecorder(ProcessRecorder* process);

// In a child of fork(), from the handler: recording as it was, another
// generation, no recorder. Returns the parent's recorder, or null. No
// allocation, no lock.
ProcessRecorder* RenewForkPage();

// Was the page wiped and not renewed?
bool ForkWasUnseen();

}  // namespace traincheck::agent

#endif  // TRAINCHECK_AGENT_CAPTURE_FORK_PAGE_H_
