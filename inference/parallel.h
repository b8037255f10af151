// Runs independent tasks on several threads.
#ifndef TRAINCHECK_INFERENCE_PARALLEL_H_
#define TRAINCHECK_INFERENCE_PARALLEL_H_

#include <atomic>
#include <cstddef>
#include <functional>
#include <thread>
#include <vector>

namespace traincheck {

// Calls task(0) ... task(tasks - 1), each once, on at most `threads` threads,
// this one among them, and returns when all have. Tasks must not throw.
inline void RunInParallel(size_t tasks, size_t threads,
                          const std::function<void(size_t)>& task) {
  std::atomic<size_t> next{0};
  const auto work = [&] {
    for (size_t i = next++; i < tasks; i = next++) task(i);
  };
  std::vector<std::thread> others;
  for (size_t i = 1; i < threads && i < tasks; ++i) others.emplace_back(work);
  work();
  for (std::thread& other : others) other.join();
}

}  // namespace traincheck

#endif  // TRAINCHECK_INFERENCE_PARALLEL_H_
