// Every limit on what a relay may send, in one place. What is over one of
// them ends the stream with an error that names field, size and limit.
#ifndef TRAINCHECK_SERVER_INGEST_LIMITS_H_
#define TRAINCHECK_SERVER_INGEST_LIMITS_H_

#include <cstddef>
#include <cstdint>

namespace traincheck::server {

// A whole message.
inline constexpr size_t kMaxMessageBytes = 2 << 20;
inline constexpr size_t kMaxPayloadBytes = 1 << 20;
inline constexpr uint32_t kMaxPlainBytes = 8 << 20;
inline constexpr int kMaxSlicesInBatch = 1024;
inline constexpr int kMaxRingReports = 1024;
// Ring ids are small numbers; this bounds the books of a process.
inline constexpr uint32_t kMaxRing = 1023;
// Batch numbers are counted up from 0; a larger one is a broken counter.
inline constexpr uint64_t kMaxBatchNumber = uint64_t{1} << 62;

inline constexpr size_t kMaxRunIdBytes = 128;
inline constexpr size_t kMaxTextBytes = 1024;  // every other text of Hello

// Compressed bytes of one stream that are not yet synced. Beyond it nothing
// more is read from the stream.
inline constexpr uint64_t kCreditBytes = 4 << 20;
// The same of all streams together. Beyond it messages stay as they came, and
// what gRPC holds has a limit of its own (kMaxWireBytes).
inline constexpr uint64_t kMaxUnsyncedBytes = 256 << 20;
// Messages up to this size are taken all the same: a Hello, a goodbye and
// reports are no burden, and who says them is not to look silent.
inline constexpr size_t kMaxSmallMessageBytes = 8 << 10;

// Streams that are open at once, in all and of one owner. Administrators, and
// so a single user, have all of them.
inline constexpr size_t kMaxStreams = 32'768;
inline constexpr size_t kMaxStreamsOfOwner = 16'384;

}  // namespace traincheck::server

#endif  // TRAINCHECK_SERVER_INGEST_LIMITS_H_
