// Every limit on inference jobs, in one place. What is over one of them is
// refused with an error that names it.
#ifndef TRAINCHECK_SERVER_JOBS_LIMITS_H_
#define TRAINCHECK_SERVER_JOBS_LIMITS_H_

#include <cstddef>
#include <cstdint>

namespace traincheck::server {

inline constexpr int kMaxRunsInJob = 1000;
// Names in one request, repeated ones among them.
inline constexpr int kMaxRelationsInJob = 64;
inline constexpr int kMaxPatterns = 256;  // of one kind
inline constexpr size_t kMaxQueuedJobs = 100;
// Of the jobs that have ended the latest ones stay on the list.
inline constexpr size_t kMaxEndedJobs = 1000;

// A message between the daemon and a job's process: a stored batch on the way
// there, a set on the way back.
inline constexpr uint32_t kMaxWorkerMessageBytes = 64 << 20;
// JSON of a set that a job makes; less than what can be imported, so that it
// can be taken out and in again.
inline constexpr size_t kMaxLearnedSetBytes = 60 << 20;
// Below this not even a short run can be learned from.
inline constexpr uint64_t kMinJobMemoryBytes = 128 << 20;

}  // namespace traincheck::server

#endif  // TRAINCHECK_SERVER_JOBS_LIMITS_H_
