// Bounds of the relay, all in one place.
#ifndef TRAINCHECK_AGENT_RELAY_LIMITS_H_
#define TRAINCHECK_AGENT_RELAY_LIMITS_H_

#include <chrono>
#include <cstddef>
#include <cstdint>

#include "proto/record_format.h"

namespace traincheck::agent {

using std::chrono::milliseconds;
using std::chrono::seconds;

// A batch goes out when this much lies in the rings ...
inline constexpr size_t kEnoughForABatchBytes = 64u << 10;
// ... or something has lain this long. With the poll period on top, nothing
// lies longer than 50 ms ...
inline constexpr milliseconds kMaxLie{45};
// ... unless a server that many share asks for fewer batches, up to this.
inline constexpr milliseconds kMostGathered{2000};
inline constexpr size_t kMaxBatchPlainBytes = 512u << 10;
static_assert(kMaxBatchPlainBytes > kMaxRecordBytes);
// What the server accepts at most; a zstd frame of kMaxBatchPlainBytes stays
// below it, because zstd grows incompressible data by less than 1%.
inline constexpr size_t kMaxPayloadBytes = 1u << 20;
inline constexpr int kCompressionLevel = 1;

// Poll periods: while records come, and once none has come for kActiveFor.
inline constexpr milliseconds kActivePoll{5};
inline constexpr milliseconds kIdlePoll{50};
inline constexpr milliseconds kActiveFor{100};
// Batches of one process built in one turn, so that others get theirs.
inline constexpr int kBatchesPerTurn = 8;

// A process that lives and records nothing for so long is told to be quiet, at
// first this often, then with growing pauses, and after an hour no more.
inline constexpr seconds kQuietAfter{10};
inline constexpr seconds kMaxQuietPause{60};
inline constexpr seconds kQuietForGood{3600};

// Unacknowledged batches of one process in memory, compressed bytes.
inline constexpr size_t kMaxMemoryBytes = 8u << 20;
// A batch that is not acknowledged by then goes to the spool and frees its
// ring space.
inline constexpr milliseconds kMaxUnacknowledged{200};

// The first record that says who the process is must lie within this.
inline constexpr size_t kIdentitySearchBytes = 64u << 10;
// A process whose run may still get another name is waited for no longer.
inline constexpr seconds kRunAgreement{30};

inline constexpr milliseconds kFirstBackoff{100};
inline constexpr milliseconds kMaxBackoff{2000};
inline constexpr milliseconds kKeepalive{10000};
inline constexpr milliseconds kKeepaliveTimeout{5000};
// Without a Welcome for so long the server counts as not reachable ...
inline constexpr seconds kNoAnswer{2};
// ... and a server that took the stream but does not answer is asked anew
// after this.
inline constexpr seconds kWelcomeTimeout{10};
// Counters of the rings are told so often, but not more often than this many
// batches.
inline constexpr seconds kReportPeriod{1};
inline constexpr int kBatchesAReport = 5;
// A process that closed its socket is looked at this often: does it run another
// program by now?
inline constexpr milliseconds kLookForProgram{1000};

// A server that cannot or will not talk to this version or user is asked again
// after this.
inline constexpr seconds kRetryUnwelcome{30};
// But so often in a row with the usual back-off where the token is not known: a
// daemon that starts writes a new one only after it has begun to listen.
inline constexpr int kRetriesWithToken = 6;
// So often a server may end the stream over one and the same batch before that
// batch is given up.
inline constexpr int kMaxStrikes = 3;

// Definitions kept for a server with a new store, compressed; a chunk of them
// plain.
inline constexpr size_t kMaxDefinitionTableBytes = 16u << 20;
inline constexpr size_t kDefinitionChunkBytes = 256u << 10;

// Spool files that dead relays left are looked for this often ...
inline constexpr seconds kOrphanScanPeriod{60};
// ... and taken from another pid namespace or another boot, in which nobody can
// see who lives, when nothing was written to them for this long.
inline constexpr seconds kForeignOrphanAge{600};
// A file without a valid beginning is called damaged after this; before, it may
// be in the making.
inline constexpr seconds kUnfinishedSpoolAge{60};
// An orphan's delivery that moves nothing for so long waits for another time.
inline constexpr seconds kOrphanPatience{15};

// A relay that nobody connects to ends.
inline constexpr seconds kFirstClientTimeout{10};
// Whoever reads the training's stderr to its end waits for the relay no longer
// than this after the training.
inline constexpr milliseconds kKeepStderr{500};
// After SIGTERM there is this much left to deliver; the rest is spooled.
inline constexpr seconds kGraceAfterTerm{2};
inline constexpr uint32_t kMaxClients = 256;

// Relays keep count of their own spool files. One of them looks at all files of
// the folder this often ...
inline constexpr seconds kSpoolCountPeriod{60};
// ... and this often while there is no room.
inline constexpr seconds kSpoolCountAtLimit{10};
// In memory (tmpfs) the spool takes no more than this if nobody sets a limit:
// it is the training's memory, too.
inline constexpr uint64_t kMemorySpoolBytes = 128u << 20;
// The spool leaves this share of its disk free.
inline constexpr int kKeepFreePercent = 5;

}  // namespace traincheck::agent

#endif  // TRAINCHECK_AGENT_RELAY_LIMITS_H_
