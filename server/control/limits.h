// Limits on what clients of control may hold open, in one place. Each such
// call holds a thread; what is over a limit is refused with an error that
// names it.
#ifndef TRAINCHECK_SERVER_CONTROL_LIMITS_H_
#define TRAINCHECK_SERVER_CONTROL_LIMITS_H_

#include <cstddef>

namespace traincheck::server {

// Calls that wait for what comes: WatchViolations and Infer.
inline constexpr int kMaxWaitingCalls = 256;
// The last so many of them are kept for owners who hold fewer than so many:
// nobody's watchers shut everybody else's out.
inline constexpr int kWaitingCallsForOthers = 64;
inline constexpr int kWaitingCallsForEach = 4;
// Calls that answer with a list. They end by themselves, but a client may be
// slow to take it.
inline constexpr int kMaxListCalls = 64;
// CheckRun: each keeps a processor busy.
inline constexpr int kMaxCheckCalls = 2;
// CompareRuns, likewise.
inline constexpr int kMaxCompareCalls = 2;
// ShowZoom: reads a run from its first record.
inline constexpr int kMaxZoomCalls = 4;
// Sets on their way in: each is held and parsed as a whole.
inline constexpr int kMaxImportCalls = 4;
// JSON of one of these; more than a job may learn.
inline constexpr size_t kMaxSetBytes = 96 << 20;
// Violations that one watcher takes from the board at once.
inline constexpr size_t kMaxChanges = 256;
// A whole message. Sets that older clients import are the largest; ingest has a
// limit of its own.
inline constexpr int kMaxReceiveBytes = 16 << 20;

}  // namespace traincheck::server

#endif  // TRAINCHECK_SERVER_CONTROL_LIMITS_H_
