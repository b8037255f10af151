// Streams that are being made while the daemon's tick looks at all streams.
//
// Nothing but an allocation lies between the moments of making a stream, so
// this program's operator new holds the making thread up at each of them.
#include "server/ingest/ingest_service.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <functional>
#include <memory>
#include <new>
#include <thread>
#include <utility>

#include "absl/synchronization/mutex.h"
#include "server/store/memory_store_for_testing.h"

namespace traincheck::server {
namespace {

// What to do before each allocation of this thread.
thread_local const std::function<void()>* before_allocation = nullptr;

void BeforeAllocation() {
  const std::function<void()>* const act =
      std::exchange(before_allocation, nullptr);
  if (act == nullptr) return;
  (*act)();
  before_allocation = act;
}

}  // namespace
}  // namespace traincheck::server

void* operator new(size_t size) {
  traincheck::server::BeforeAllocation();
  if (void* const memory = std::malloc(size)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace traincheck::server {
namespace {

// The main thread's part: Tick whenever it is asked to.
class Ticker {
 public:
  explicit Ticker(IngestService* service)
      : service_(*service), thread_([this] { Loop(); }) {}
  ~Ticker() {
    {
      absl::MutexLock lock(&mutex_);
      stopping_ = true;
    }
    thread_.join();
  }

  // Returns once a whole Tick has passed. Where the caller holds a lock that
  // Tick needs none can pass; then a moment later.
  void TickOnce() {
    absl::MutexLock lock(&mutex_);
    const int before = done_;
    wanted_ = true;
    const auto ticked = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return done_ > before;
    };
    if (mutex_.AwaitWithTimeout(absl::Condition(&ticked),
                                absl::Milliseconds(200))) {
      ++passed_;
    }
  }
  int passed() const {
    absl::MutexLock lock(&mutex_);
    return passed_;
  }

 private:
  void Loop() {
    absl::MutexLock lock(&mutex_);
    while (true) {
      const auto due = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
        return wanted_ || stopping_;
      };
      mutex_.Await(absl::Condition(&due));
      if (stopping_) return;
      wanted_ = false;
      mutex_.Unlock();
      service_.Tick(absl::Now());
      mutex_.Lock();
      ++done_;
    }
  }

  IngestService& service_;
  mutable absl::Mutex mutex_;
  bool wanted_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  int done_ ABSL_GUARDED_BY(mutex_) = 0;
  int passed_ ABSL_GUARDED_BY(mutex_) = 0;
  std::thread thread_;
};

TEST(IngestServiceTest, AStreamThatIsBeingMadeMeetsTheTick) {
  MemoryStore store;
  const std::unique_ptr<Registry> registry = *Registry::Load(&store, {});
  RunPlans plans({.store = &store, .registry = registry.get()});
  const Gate gate(nullptr);
  IngestService service(registry.get(), &plans, &gate, store.id(), {});
  Ticker ticker(&service);
  grpc::CallbackServerContext context;
  const std::function<void()> tick = [&] { ticker.TickOnce(); };
  before_allocation = &tick;
  const auto* const stream = service.Stream(&context);
  before_allocation = nullptr;
  EXPECT_NE(stream, nullptr);
  // The stream, its session, its place in the set and what these hold.
  EXPECT_GE(ticker.passed(), 3);
}

}  // namespace
}  // namespace traincheck::server
