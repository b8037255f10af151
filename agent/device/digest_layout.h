// What the agent and its kernel (digest_kernel.cu) give each other: tables of
// tensors, sums, and the arguments of a launch. Plain data, the same for the
// host's compiler and the device's; no #include, because the kernel is
// compiled without other headers.
//
//   launch: items, dims  ->  [kernel]  ->  sums, copies, done   (pinned host
//                                                                memory)
//
// Threads: plain values.
#ifndef TRAINCHECK_AGENT_DEVICE_DIGEST_LAYOUT_H_
#define TRAINCHECK_AGENT_DEVICE_DIGEST_LAYOUT_H_

namespace traincheck::agent {

using DeviceWord = unsigned long long;  // 64 bits; an address too

// What a warp takes at a time: 16 KiB. Even, so that a chunk begins on 16 bytes
// where its tensor does.
inline constexpr unsigned kChunkWords = 2048;
inline constexpr unsigned kBlockThreads = 256;
inline constexpr unsigned kWarpThreads = 32;

struct DigestDim {
  DeviceWord size;
  DeviceWord stride_bytes;
};

// One tensor. Dense and without lazy signs: its bytes in memory. Otherwise its
// elements are gathered in logical order.
struct DigestItem {
  DeviceWord address;  // of the first element
  DeviceWord bytes;    // of the content
  // Flipped in each word of even and of odd number: lazy negation and
  // conjugation. 0 of a dense item.
  DeviceWord flip_even;
  DeviceWord flip_odd;
  // Of each word the bits that are all set in an element that is NaN or
  // infinite, with the place of a sign above each element's; 0: no such bits.
  DeviceWord exponents;
  unsigned first_chunk;    // chunks of all items before
  unsigned first_dim;      // in the table of dimensions
  unsigned ndim;           // 0: dense
  unsigned element_bytes;  // 1, 2, 4, 8 or 16
  // Its words go into the copies behind so many less one; 0: it is not copied.
  // REQUIRES, where it is: not dense.
  unsigned copy_at;
  unsigned reserved;
};
static_assert(sizeof(DigestItem) == 64);

enum DigestFlag : unsigned {
  kDigestNotZero = 1,    // some bit is set
  kDigestNotFinite = 2,  // an element has all bits of its exponent
};

// Over the words of one item: the sum is that of agent/torch/word_sum.h.
struct DigestWords {
  DeviceWord sum;
  DeviceWord flags;  // DigestFlag
};

// Where a launch stands, on the device: zero before it and after it.
struct DigestProgress {
  unsigned done_blocks;
  unsigned reserved;
  DeviceWord begin;  // complement of the device's time of its first block
};

// What a launch leaves last, in pinned host memory.
struct DigestDone {
  volatile DeviceWord launch;     // its number: everything else is there
  volatile DeviceWord device_ns;  // from the first block's begin on
};

// The kernel's one argument. Addresses are the device's.
struct DigestLaunch {
  const DigestItem* items;
  const DigestDim* dims;
  DigestWords* sums;         // on the device, zero before the launch and after
  DigestProgress* progress;  // likewise
  DigestWords* host_sums;    // one for each item
  DeviceWord* host_copies;   // of the items that are copied; null: none is
  DigestDone* host_done;
  DeviceWord number;  // of this launch, never 0
  unsigned count;     // of items
  unsigned chunks;    // of all items
};

}  // namespace traincheck::agent

#endif  // TRAINCHECK_AGENT_DEVICE_DIGEST_LAYOUT_H_
