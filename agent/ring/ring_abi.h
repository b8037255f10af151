// Layout of a ring in shared memory: one page of header, then capacity bytes
// of records. One writer (a thread of the training process), one reader (the
// relay). RING_ABI.md has the picture and the rules; nothing in here may
// change without a new kRingVersion.
//
// Positions are byte counts since the ring's creation and never wrap; the byte
// of position p lies at data[p % capacity]. A record never crosses the end of
// the data area: the writer fills up with a kPadding record first.
#ifndef TRAINCHECK_AGENT_RING_RING_ABI_H_
#define TRAINCHECK_AGENT_RING_RING_ABI_H_

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace traincheck::agent {

inline constexpr uint64_t kRingMagic = 0x31474e4952435254;  // "TRCRING1"
inline constexpr uint32_t kRingVersion = 1;
inline constexpr size_t kRingHeaderBytes = 4096;
inline constexpr uint64_t kMainRingBytes = 4u << 20;
inline constexpr uint64_t kThreadRingBytes = 256u << 10;
inline constexpr uint64_t kDefinitionRingBytes = 1u << 20;
inline constexpr uint32_t kMaxRingsPerProcess = 64;
// Of all threads that find no ring of their own: counts and holds nothing.
inline constexpr uint32_t kOverflowRing = kMaxRingsPerProcess - 1;
inline constexpr uint32_t kMaxThreadRings = kMaxRingsPerProcess - 2;
inline constexpr uint64_t kOverflowRingBytes = 4096;

struct RingHeader {
  // Written once, before the ring is handed over.
  uint64_t magic;
  uint32_t version;
  uint32_t ring;  // kDefinitionRing; 1: first thread that recorded; 2, ...
  uint64_t capacity_bytes;  // power of two
  uint32_t pid;
  uint32_t tid;  // of the first thread that wrote into it
  uint8_t reserved0[32];

  // The writer's line. head: bytes before it are whole records; stored with
  // release after the record's bytes. Counters are in records, padding not
  // counted: offered = committed + dropped at every quiet moment.
  alignas(64) std::atomic<uint64_t> head;
  std::atomic<uint64_t> offered_records;
  std::atomic<uint64_t> committed_records;
  std::atomic<uint64_t> dropped_records;
  std::atomic<uint32_t> closed;  // 1: the writer is gone; another may come
  uint8_t reserved1[28];

  // The reader's line. tail: bytes before it may be overwritten, because they
  // are acknowledged by the server or in the spool.
  alignas(64) std::atomic<uint64_t> tail;
  uint8_t reserved2[56];
};
static_assert(sizeof(RingHeader) == 192);
static_assert(offsetof(RingHeader, head) == 64);
static_assert(offsetof(RingHeader, tail) == 128);
static_assert(std::atomic<uint64_t>::is_always_lock_free);
static_assert(std::atomic<uint32_t>::is_always_lock_free);

// What an agent process tells the relay on its SOCK_SEQPACKET connection: one
// message a ring, the ring's memfd attached (SCM_RIGHTS). The relay checks the
// peer's user (SO_PEERCRED), the magic, the version and the memfd's size.
// The relay answers kRelayHasRing once it holds the ring.
struct RingHandover {
  uint64_t magic;  // kRingMagic
  uint32_t version;
  uint32_t ring;
  uint64_t capacity_bytes;
  uint32_t pid;
  uint32_t tid;
};
static_assert(sizeof(RingHandover) == 32);

inline constexpr uint32_t kRelayHasRing = 0x474e4952;  // "RING"

// What the relay tells an agent process on the same connection: a change of the
// capture plan. Attached (SCM_RIGHTS) is a memfd of `bytes` bytes with the plan
// as JSON (docs/capture-plan.md), sealed against writing, growing and
// shrinking.
inline constexpr char kPlanMagic[4] = {'P', 'L', 'A', 'N'};
inline constexpr uint32_t kMaxPlanBytes = 1u << 20;

struct PlanMessage {
  char magic[4];  // kPlanMagic
  uint32_t bytes;
  uint64_t version;    // grows
  uint64_t from_step;  // begins to hold here, or at once if it has passed
};
static_assert(sizeof(PlanMessage) == 24);

}  // namespace traincheck::agent

#endif  // TRAINCHECK_AGENT_RING_RING_ABI_H_
