// The digest of docs/digest.md for many tensors in one launch.
//
// Work is cut into chunks of kChunkWords words. A warp takes every (warps in
// the grid)-th chunk, keeps its sum in registers while the tensor stays the
// same, and adds it to the tensor's sums where it changes. The block that ends
// last hands the sums to the host, clears them for the next launch, and then
// writes the launch's number: the host polls this one word, and no event is
// needed. Sums are modulo 2^64, so the order of warps does not matter.
//
// tools/device_kernel.py makes digest_kernel.ptx of it. A C++ compiler takes it
// behind kernel_shim_for_testing.h, which stands in for the device.
#include "agent/device/digest_layout.h"

#ifdef __CUDACC_RTC__
#define TRAINCHECK_DEVICE __device__ __forceinline__
#define TRAINCHECK_DEVICE_CALL __device__ __noinline__
#endif

namespace traincheck::agent {
namespace {

using Byte = unsigned char;

#ifdef __CUDACC_RTC__
struct WordPair {
  DeviceWord first;
  DeviceWord second;
};

// Read once: the first to leave the cache. REQUIRES: aligned to the size.
TRAINCHECK_DEVICE WordPair LoadPair(const Byte* at) {
  const ulonglong2 pair = __ldcs(reinterpret_cast<const ulonglong2*>(at));
  return {pair.x, pair.y};
}
TRAINCHECK_DEVICE DeviceWord LoadWord(const Byte* at) {
  return __ldcs(reinterpret_cast<const DeviceWord*>(at));
}

TRAINCHECK_DEVICE DeviceWord Nanoseconds() {
  DeviceWord now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}

// Adds what the lanes of a warp have.
TRAINCHECK_DEVICE void AddWarp(DigestWords* to, unsigned lane,
                               DigestWords part) {
  constexpr unsigned kAll = 0xffffffff;
  for (int i = kWarpThreads / 2; i != 0; i /= 2) {
    part.sum += __shfl_xor_sync(kAll, part.sum, i);
  }
  DeviceWord flags = 0;
  if (__any_sync(kAll, part.flags & kDigestNotZero)) flags |= kDigestNotZero;
  if (__any_sync(kAll, part.flags & kDigestNotFinite)) {
    flags |= kDigestNotFinite;
  }
  if (lane != 0) return;
  atomicAdd(&to->sum, part.sum);
  if (flags != 0) atomicOr(&to->flags, flags);
}

// Past the cache of this multiprocessor: other blocks have added to it.
TRAINCHECK_DEVICE DeviceWord LoadShared(const DeviceWord* at) {
  return __ldcg(at);
}
#endif

constexpr DeviceWord kG = 0x9e3779b97f4a7c15;
constexpr DeviceWord kC1 = 0xd6e8feb86659fd93;
constexpr DeviceWord kC2 = 0xc2b2ae3d27d4eb4f;
// Loads of a lane that are on their way together.
constexpr int kUnroll = 8;

TRAINCHECK_DEVICE DeviceWord Mix(DeviceWord x) {
  x ^= x >> 32;
  x *= kC1;
  x ^= x >> 32;
  x *= kC2;
  return x ^ (x >> 32);
}

// Both halves of a word in one.
TRAINCHECK_DEVICE unsigned Folded(DeviceWord word) {
  return static_cast<unsigned>(word) | static_cast<unsigned>(word >> 32);
}

// What a lane knows of the words that it has taken of one item.
class LaneSum {
 public:
  TRAINCHECK_DEVICE void Begin(const DigestItem& item) {
    sum_ = 0;
    any_bits_ = carries_ = 0;
    exponents_ = static_cast<unsigned>(item.exponents >> 32);
    // The lowest bit of each: added to one of ones it carries into the place of
    // the sign.
    one_ = exponents_ & ~(exponents_ << 1);
    is_wide_ = static_cast<unsigned>(item.exponents) != exponents_;
  }
  // `position` is (number of the word + 1) * kG.
  TRAINCHECK_DEVICE void Add(DeviceWord word, DeviceWord position) {
    sum_ += Mix(word ^ position);
    any_bits_ |= Folded(word);
    const unsigned high = static_cast<unsigned>(word >> 32);
    const unsigned low = is_wide_ ? high : static_cast<unsigned>(word);
    carries_ |= ((high & exponents_) + one_) | ((low & exponents_) + one_);
  }
  TRAINCHECK_DEVICE DigestWords Finish() const {
    DeviceWord flags = 0;
    if (any_bits_ != 0) flags |= kDigestNotZero;
    if ((carries_ & (exponents_ + one_)) != 0) flags |= kDigestNotFinite;
    return {sum_, flags};
  }

 private:
  DeviceWord sum_ = 0;
  unsigned exponents_ = 0;
  unsigned one_ = 0;
  bool is_wide_ = false;  // an exponent is in the upper half of a word alone
  unsigned any_bits_ = 0;
  unsigned carries_ = 0;
};

// A word of `count` bytes, padded with zero bytes.
TRAINCHECK_DEVICE DeviceWord LoadBytes(const Byte* at, unsigned count) {
  DeviceWord word = 0;
  for (unsigned i = 0; i < count; ++i) {
    word |= static_cast<DeviceWord>(at[i]) << (8 * i);
  }
  return word;
}

// Whole words [begin, end), in pairs. REQUIRES: begin is even, base is aligned
// to 16 bytes.
TRAINCHECK_DEVICE void SumPairs(const Byte* base, DeviceWord begin,
                                DeviceWord end, unsigned lane, LaneSum* sum) {
  constexpr unsigned kStep = 2 * kWarpThreads;  // words of a warp's load
  const unsigned pairs = static_cast<unsigned>(end - begin) / 2;
  const Byte* at = base + 8 * begin + 16 * lane;
  DeviceWord position = (begin + 2 * lane + 1) * kG;
  unsigned pair = lane;
  for (; pair + kWarpThreads * (kUnroll - 1) < pairs;
       pair += kWarpThreads * kUnroll) {
    WordPair loaded[kUnroll];
#pragma unroll
    for (int k = 0; k < kUnroll; ++k) loaded[k] = LoadPair(at + 8 * kStep * k);
#pragma unroll
    for (int k = 0; k < kUnroll; ++k) {
      const DeviceWord here =
          position + static_cast<DeviceWord>(kStep * k) * kG;
      sum->Add(loaded[k].first, here);
      sum->Add(loaded[k].second, here + kG);
    }
    at += 8 * kStep * kUnroll;
    position += static_cast<DeviceWord>(kStep * kUnroll) * kG;
  }
  for (; pair < pairs; pair += kWarpThreads) {
    const WordPair loaded = LoadPair(at);
    sum->Add(loaded.first, position);
    sum->Add(loaded.second, position + kG);
    at += 8 * kStep;
    position += kStep * kG;
  }
  if ((end - begin) % 2 != 0 && lane == 0) {
    sum->Add(LoadWord(base + 8 * (end - 1)), end * kG);
  }
}

// Whole words [begin, end) of a base that is aligned to 8 bytes or, not
// kAligned, to fewer: then two aligned words are shifted together. REQUIRES:
// a byte of the tensor in the aligned word behind the last one, which else may
// lie beyond all memory.
template <bool kAligned>
TRAINCHECK_DEVICE void SumWhole(const Byte* base, DeviceWord begin,
                                DeviceWord end, unsigned lane, LaneSum* sum) {
  constexpr unsigned kStep = 8 * kWarpThreads;  // bytes of a warp's load
  const unsigned skew = reinterpret_cast<DeviceWord>(base) % 8;
  const unsigned shift = 8 * skew;
  const Byte* at = base - skew + 8 * (begin + lane);
  DeviceWord position = (begin + lane + 1) * kG;
  const unsigned count = static_cast<unsigned>(end - begin);
  unsigned word = lane;
  for (; word + kWarpThreads * (kUnroll - 1) < count;
       word += kWarpThreads * kUnroll) {
    DeviceWord low[kUnroll], high[kUnroll];
#pragma unroll
    for (int k = 0; k < kUnroll; ++k) {
      low[k] = LoadWord(at + kStep * k);
      if (!kAligned) high[k] = LoadWord(at + kStep * k + 8);
    }
#pragma unroll
    for (int k = 0; k < kUnroll; ++k) {
      sum->Add(kAligned ? low[k] : low[k] >> shift | high[k] << (64 - shift),
               position + static_cast<DeviceWord>(kWarpThreads * k) * kG);
    }
    at += kStep * kUnroll;
    position += static_cast<DeviceWord>(kWarpThreads * kUnroll) * kG;
  }
  for (; word < count; word += kWarpThreads) {
    DeviceWord value = LoadWord(at);
    if (!kAligned) value = value >> shift | LoadWord(at + 8) << (64 - shift);
    sum->Add(value, position);
    at += kStep;
    position += kWarpThreads * kG;
  }
}

// A lane's part of words [begin, end) of a dense tensor. REQUIRES: begin is
// even.
TRAINCHECK_DEVICE void SumDense(const DigestItem& item, DeviceWord begin,
                                DeviceWord end, unsigned lane, LaneSum* sum) {
  const Byte* base = reinterpret_cast<const Byte*>(item.address);
  const DeviceWord all_whole = item.bytes / 8;
  DeviceWord whole = all_whole < end ? all_whole : end;
  if (item.address % 16 == 0) {
    SumPairs(base, begin, whole, lane, sum);
  } else if (item.address % 8 == 0) {
    SumWhole<true>(base, begin, whole, lane, sum);
  } else {
    if (whole == all_whole && whole > begin) {
      --whole;
      if (lane == 2) sum->Add(LoadBytes(base + 8 * whole, 8), (whole + 1) * kG);
    }
    SumWhole<false>(base, begin, whole, lane, sum);
  }
  const unsigned tail = item.bytes % 8;
  if (tail != 0 && all_whole < end && lane == 1) {
    sum->Add(LoadBytes(base + 8 * all_whole, tail), (all_whole + 1) * kG);
  }
}

TRAINCHECK_DEVICE DeviceWord LoadElement(const Byte* at, unsigned bytes) {
  switch (bytes) {
    case 1:
      return *at;
    case 2:
      return *reinterpret_cast<const unsigned short*>(at);
    case 4:
      return *reinterpret_cast<const unsigned*>(at);
    default:
      return *reinterpret_cast<const DeviceWord*>(at);
  }
}

// From the first element to this one, in bytes.
template <typename Int>
TRAINCHECK_DEVICE DeviceWord Offset(const DigestDim* dims, unsigned ndim,
                                    Int element) {
  DeviceWord offset = 0;
  for (unsigned i = ndim - 1; i > 0; --i) {
    const Int size = static_cast<Int>(dims[i].size);
    const Int outer = element / size;
    offset += (element - outer * size) * dims[i].stride_bytes;
    element = outer;
  }
  return offset + element * dims[0].stride_bytes;
}

// A word of a tensor whose elements have gaps or lazy signs.
TRAINCHECK_DEVICE_CALL DeviceWord GatherWord(const DigestItem& item,
                                             const DigestDim* dims,
                                             DeviceWord word) {
  const Byte* base = reinterpret_cast<const Byte*>(item.address);
  const unsigned bytes = item.element_bytes, ndim = item.ndim;
  const auto address = [&](DeviceWord element) {
    // Divisions of 64 bits take far longer.
    return base + (element >> 32 == 0
                       ? Offset(dims, ndim, static_cast<unsigned>(element))
                       : Offset(dims, ndim, element));
  };
  const DeviceWord flip = word % 2 == 0 ? item.flip_even : item.flip_odd;
  if (bytes == 16) {
    return LoadElement(address(word / 2) + word % 2 * 8, 8) ^ flip;
  }
  const unsigned count = 8 / bytes;
  const DeviceWord elements = item.bytes / bytes;
  DeviceWord gathered = 0;
#pragma unroll 1
  for (unsigned i = 0; i < count; ++i) {
    const DeviceWord element = word * count + i;
    if (element >= elements) break;
    // Of the flip only what belongs to the element: there may be no more.
    const DeviceWord mask = bytes == 8 ? ~0ull : (1ull << 8 * bytes) - 1;
    const DeviceWord value = LoadElement(address(element), bytes);
    gathered |= (value ^ (flip >> 8 * bytes * i & mask)) << 8 * bytes * i;
  }
  return gathered;
}

// The item of a chunk: the last whose first chunk is not above it. REQUIRES:
// that of `low` is not.
TRAINCHECK_DEVICE unsigned ItemOf(const DigestLaunch& launch, unsigned chunk,
                                  unsigned low) {
  unsigned high = launch.count;
  while (high - low > 1) {
    const unsigned middle = low + (high - low) / 2;
    if (launch.items[middle].first_chunk <= chunk) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low;
}

// What one thread of the grid does first.
TRAINCHECK_DEVICE void SumChunks(const DigestLaunch& launch, unsigned block,
                                 unsigned blocks, unsigned thread) {
  constexpr unsigned kWarps = kBlockThreads / kWarpThreads;
  const unsigned lane = thread % kWarpThreads;
  LaneSum sum;
  unsigned number = 0;
  unsigned end = 0;  // of the item's chunks; 0: there is no item yet
  for (unsigned chunk = block * kWarps + thread / kWarpThreads;
       chunk < launch.chunks; chunk += blocks * kWarps) {
    if (chunk >= end) {
      if (end != 0) AddWarp(&launch.sums[number], lane, sum.Finish());
      number = ItemOf(launch, chunk, number);
      sum.Begin(launch.items[number]);
      end = number + 1 < launch.count ? launch.items[number + 1].first_chunk
                                      : launch.chunks;
    }
    const DigestItem& item = launch.items[number];
    const DeviceWord words = (item.bytes + 7) / 8;
    const DeviceWord from =
        static_cast<DeviceWord>(chunk - item.first_chunk) * kChunkWords;
    const DeviceWord to =
        from + kChunkWords < words ? from + kChunkWords : words;
    if (item.ndim == 0) {
      SumDense(item, from, to, lane, &sum);
      continue;
    }
#pragma unroll 1
    for (DeviceWord word = from + lane; word < to; word += kWarpThreads) {
      const DeviceWord value =
          GatherWord(item, launch.dims + item.first_dim, word);
      sum.Add(value, (word + 1) * kG);
      if (item.copy_at != 0)
        launch.host_copies[item.copy_at - 1 + word] = value;
    }
  }
  if (end != 0) AddWarp(&launch.sums[number], lane, sum.Finish());
}

// What a thread of the last block does: the sums go to the host, and are zero
// for the next launch.
TRAINCHECK_DEVICE void HandOver(const DigestLaunch& launch, unsigned thread) {
  for (unsigned i = thread; i < launch.count; i += kBlockThreads) {
    launch.host_sums[i] = {LoadShared(&launch.sums[i].sum),
                           LoadShared(&launch.sums[i].flags)};
    launch.sums[i] = {0, 0};
  }
}

// And then, once: how long the launch took. Its number follows when all of this
// is where the host sees it.
TRAINCHECK_DEVICE void Publish(const DigestLaunch& launch, DeviceWord now_ns) {
  const DeviceWord begin_ns = ~LoadShared(&launch.progress->begin);
  launch.progress->begin = 0;
  launch.host_done->device_ns = now_ns > begin_ns ? now_ns - begin_ns : 0;
}

}  // namespace
}  // namespace traincheck::agent

#ifdef __CUDACC_RTC__
extern "C" __global__ void __launch_bounds__(traincheck::agent::kBlockThreads,
                                             4)
    traincheck_digest(const traincheck::agent::DigestLaunch launch) {
  using namespace traincheck::agent;
  __shared__ bool is_last;
  if (threadIdx.x == 0) atomicMax(&launch.progress->begin, ~Nanoseconds());
  SumChunks(launch, blockIdx.x, gridDim.x, threadIdx.x);
  if (launch.host_copies != nullptr) {
    __threadfence_system();  // this block's are in the host's memory
  } else {
    __threadfence();
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    const unsigned last = gridDim.x - 1;
    // Comes back to 0 with the last block.
    is_last = atomicInc(&launch.progress->done_blocks, last) == last;
  }
  __syncthreads();
  if (!is_last) return;
  __threadfence();
  HandOver(launch, threadIdx.x);
  if (threadIdx.x == 0) Publish(launch, Nanoseconds());
  __threadfence_system();
  __syncthreads();
  if (threadIdx.x == 0) launch.host_done->launch = launch.number;
}
#endif
