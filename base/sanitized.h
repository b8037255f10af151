// Is this program instrumented by AddressSanitizer or ThreadSanitizer? They
// take address space without measure, keep what was freed and end a process
// that gets no memory themselves: limits of memory do not hold then.
#ifndef TRAINCHECK_BASE_SANITIZED_H_
#define TRAINCHECK_BASE_SANITIZED_H_

namespace traincheck {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

// Under ThreadSanitizer each word that a library without it has written is a
// race that is suppressed, which takes the longer the more there were: tens of
// MiB through gRPC take for ever.
#if defined(__SANITIZE_THREAD__)
inline constexpr bool kThreadSanitized = true;
#else
inline constexpr bool kThreadSanitized = false;
#endif

}  // namespace traincheck

#endif  // TRAINCHECK_BASE_SANITIZED_H_
