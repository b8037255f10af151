// Debian's absl is not instrumented, so that ThreadSanitizer does not see what
// its mutex and notifications order and would call every use of guarded data a
// race. The linker sends the calls here (--wrap, in .bazelrc under tsan), and
// these say what they do: unlocking and notifying release, locking and waiting
// acquire.
//
// The names are those of Debian's absl; where it changes them, the tsan build
// reports races of everything, which nobody overlooks.
#include <sanitizer/tsan_interface.h>

#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

#define MUTEX(method) _ZN4absl7debian35Mutex##method
#define CONDVAR(method) _ZN4absl7debian37CondVar##method
#define NOTIFICATION(method) _ZN4absl7debian312Notification##method
#define WAIT_FOR_NOTIFICATION \
  _ZNK4absl7debian312Notification19WaitForNotificationEv
#define WAIT_FOR_NOTIFICATION_FOR \
  _ZNK4absl7debian312Notification30WaitForNotificationWithTimeoutENS0_8DurationE
#define JOIN2(a, b) a##b
#define JOIN(a, b) JOIN2(a, b)
#define REAL(name) JOIN(__real_, name)
#define WRAP(name) JOIN(__wrap_, name)

using absl::Condition;
using absl::Duration;
using absl::Mutex;
using absl::Time;

extern "C" {

#define WRAP_LOCK(method)               \
  void REAL(MUTEX(method))(Mutex*);     \
  void WRAP(MUTEX(method))(Mutex * m) { \
    REAL(MUTEX(method))(m);             \
    __tsan_acquire(m);                  \
  }
#define WRAP_UNLOCK(method)             \
  void REAL(MUTEX(method))(Mutex*);     \
  void WRAP(MUTEX(method))(Mutex * m) { \
    __tsan_release(m);                  \
    REAL(MUTEX(method))(m);             \
  }

WRAP_LOCK(4LockEv)
WRAP_LOCK(10ReaderLockEv)
WRAP_UNLOCK(6UnlockEv)
WRAP_UNLOCK(12ReaderUnlockEv)

bool REAL(MUTEX(7TryLockEv))(Mutex*);
bool WRAP(MUTEX(7TryLockEv))(Mutex* m) {
  const bool locked = REAL(MUTEX(7TryLockEv))(m);
  if (locked) __tsan_acquire(m);
  return locked;
}

void REAL(MUTEX(8LockWhenERKNS0_9ConditionE))(Mutex*, const Condition&);
void WRAP(MUTEX(8LockWhenERKNS0_9ConditionE))(Mutex* m, const Condition& c) {
  REAL(MUTEX(8LockWhenERKNS0_9ConditionE))(m, c);
  __tsan_acquire(m);
}

void REAL(MUTEX(5AwaitERKNS0_9ConditionE))(Mutex*, const Condition&);
void WRAP(MUTEX(5AwaitERKNS0_9ConditionE))(Mutex* m, const Condition& c) {
  __tsan_release(m);
  REAL(MUTEX(5AwaitERKNS0_9ConditionE))(m, c);
  __tsan_acquire(m);
}

#define AWAIT_FOR MUTEX(16AwaitWithTimeoutERKNS0_9ConditionENS0_8DurationE)
bool REAL(AWAIT_FOR)(Mutex*, const Condition&, Duration);
bool WRAP(AWAIT_FOR)(Mutex* m, const Condition& c, Duration timeout) {
  __tsan_release(m);
  const bool holds = REAL(AWAIT_FOR)(m, c, timeout);
  __tsan_acquire(m);
  return holds;
}

void REAL(CONDVAR(4WaitEPNS0_5MutexE))(void*, Mutex*);
void WRAP(CONDVAR(4WaitEPNS0_5MutexE))(void* condition, Mutex* m) {
  __tsan_release(m);
  REAL(CONDVAR(4WaitEPNS0_5MutexE))(condition, m);
  __tsan_acquire(m);
}

#define WAIT_FOR CONDVAR(15WaitWithTimeoutEPNS0_5MutexENS0_8DurationE)
bool REAL(WAIT_FOR)(void*, Mutex*, Duration);
bool WRAP(WAIT_FOR)(void* condition, Mutex* m, Duration timeout) {
  __tsan_release(m);
  const bool expired = REAL(WAIT_FOR)(condition, m, timeout);
  __tsan_acquire(m);
  return expired;
}

#define WAIT_UNTIL CONDVAR(16WaitWithDeadlineEPNS0_5MutexENS0_4TimeE)
bool REAL(WAIT_UNTIL)(void*, Mutex*, Time);
bool WRAP(WAIT_UNTIL)(void* condition, Mutex* m, Time deadline) {
  __tsan_release(m);
  const bool expired = REAL(WAIT_UNTIL)(condition, m, deadline);
  __tsan_acquire(m);
  return expired;
}

void REAL(NOTIFICATION(6NotifyEv))(void*);
void WRAP(NOTIFICATION(6NotifyEv))(void* n) {
  __tsan_release(n);
  REAL(NOTIFICATION(6NotifyEv))(n);
}

void REAL(WAIT_FOR_NOTIFICATION)(const void*);
void WRAP(WAIT_FOR_NOTIFICATION)(const void* n) {
  REAL(WAIT_FOR_NOTIFICATION)(n);
  __tsan_acquire(const_cast<void*>(n));
}

bool REAL(WAIT_FOR_NOTIFICATION_FOR)(const void*, Duration);
bool WRAP(WAIT_FOR_NOTIFICATION_FOR)(const void* n, Duration timeout) {
  const bool notified = REAL(WAIT_FOR_NOTIFICATION_FOR)(n, timeout);
  if (notified) __tsan_acquire(const_cast<void*>(n));
  return notified;
}

}  // extern "C"
