#include "agent/torch/word_sum.h"

#include <immintrin.h>

#include <cstring>

#include "proto/content_digest.h"

namespace traincheck::agent {
namespace {

using SumFunction = DigestSum (*)(const char*, size_t, uint64_t);

// Below this many words the start and end of a vector loop cost more than they
// save.
constexpr size_t kFewWords = 8;

// One word of the digest, as digest.h defines it. `position` is (i + 1) * G and
// comes from the caller, so that loops add instead of multiply.
inline void AddWord(const char* at, uint64_t position, DigestSum* sum) {
  uint64_t word;
  std::memcpy(&word, at, sizeof word);
  sum->any_bits |= word;
  sum->sum += MixWord(word ^ position);
}

// The reference: all other loops must give the same sum.
DigestSum SumScalar(const char* data, size_t words, uint64_t first_word) {
  DigestSum sum;
  uint64_t position = (first_word + 1) * kDigestG;
  for (size_t i = 0; i < words; ++i, position += kDigestG) {
    AddWord(data + 8 * i, position, &sum);
  }
  return sum;
}

// Each region below is compiled for its vectors and entered only where the
// processor has them.
#pragma GCC push_options
#pragma GCC target("avx2")

inline __m256i All256(uint64_t x) {
  return _mm256_set1_epi64x(static_cast<long long>(x));
}

// 64-bit multiplication by a constant of low and high half: AVX2 has only
// 32 x 32 -> 64 bits.
inline __m256i Times(__m256i x, __m256i low, __m256i high) {
  // Only the low 64 bits count, so the product of both high halves is left out.
  const __m256i cross =
      _mm256_add_epi64(_mm256_mul_epu32(_mm256_srli_epi64(x, 32), low),
                       _mm256_mul_epu32(x, high));
  return _mm256_add_epi64(_mm256_mul_epu32(x, low),
                          _mm256_slli_epi64(cross, 32));
}

inline __m256i Fold(__m256i x) {
  return _mm256_xor_si256(x, _mm256_srli_epi64(x, 32));
}

uint64_t SumOfLanes(__m256i lanes) {
  uint64_t lane[4];
  std::memcpy(lane, &lanes, sizeof lane);
  return lane[0] + lane[1] + lane[2] + lane[3];
}

uint64_t AnyOfLanes(__m256i lanes) {
  uint64_t lane[4];
  std::memcpy(lane, &lanes, sizeof lane);
  return lane[0] | lane[1] | lane[2] | lane[3];
}

// Two vectors at a time, each with a sum of its own, so that no multiplication
// waits for the one before.
DigestSum SumAvx2(const char* data, size_t words, uint64_t first_word) {
  const __m256i c1_low = All256(kDigestC1), c1_high = All256(kDigestC1 >> 32);
  const __m256i c2_low = All256(kDigestC2), c2_high = All256(kDigestC2 >> 32);
  const uint64_t first = (first_word + 1) * kDigestG;
  __m256i position[2];
  for (uint64_t i = 0; i < 2; ++i) {
    const uint64_t at = first + 4 * i * kDigestG;
    const uint64_t lanes[] = {at, at + kDigestG, at + 2 * kDigestG,
                              at + 3 * kDigestG};
    std::memcpy(&position[i], lanes, sizeof lanes);
  }
  const __m256i step = All256(8 * kDigestG);
  __m256i sum[2] = {}, any[2] = {};
  size_t done = 0;
  for (; done + 8 <= words; done += 8) {
    for (size_t i = 0; i < 2; ++i) {
      const __m256i word = _mm256_loadu_si256(
          reinterpret_cast<const __m256i*>(data + 8 * done + 32 * i));
      any[i] = _mm256_or_si256(any[i], word);
      __m256i x = Fold(_mm256_xor_si256(word, position[i]));
      x = Fold(Times(x, c1_low, c1_high));
      x = Fold(Times(x, c2_low, c2_high));
      sum[i] = _mm256_add_epi64(sum[i], x);
      position[i] = _mm256_add_epi64(position[i], step);
    }
  }
  // The order of the additions does not matter: the sum is modulo 2^64.
  DigestSum total = {SumOfLanes(_mm256_add_epi64(sum[0], sum[1])),
                     AnyOfLanes(_mm256_or_si256(any[0], any[1]))};
  total += SumScalar(data + 8 * done, words - done, first_word + done);
  return total;
}

#pragma GCC pop_options
#pragma GCC push_options
#pragma GCC target("avx512f,avx512dq")
// GCC 12 warns of its own header, where it leaves a vector undefined on
// purpose.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"

inline __m512i All512(uint64_t x) {
  return _mm512_set1_epi64(static_cast<long long>(x));
}

inline __m512i Fold(__m512i x) {
  return _mm512_xor_si512(x, _mm512_srli_epi64(x, 32));
}

DigestSum SumAvx512(const char* data, size_t words, uint64_t first_word) {
  const __m512i c1 = All512(kDigestC1), c2 = All512(kDigestC2);
  const __m512i lanes = _mm512_mullo_epi64(
      _mm512_set_epi64(7, 6, 5, 4, 3, 2, 1, 0), All512(kDigestG));
  // Lane k of vector i has word first + 8 i + k.
  const uint64_t first = (first_word + 1) * kDigestG;
  // As many independent sums, for the same reason as in SumAvx2.
  constexpr size_t kVectors = 4;
  __m512i sum[kVectors], any[kVectors], position[kVectors];
  for (size_t i = 0; i < kVectors; ++i) {
    sum[i] = any[i] = _mm512_setzero_si512();
    position[i] = _mm512_add_epi64(lanes, All512(first + 8 * i * kDigestG));
  }
  const __m512i step = All512(8 * kVectors * kDigestG);
  // A last vector is loaded under a mask; lanes without a word add nothing.
  size_t done = 0;
  for (; done + 8 * kVectors <= words; done += 8 * kVectors) {
    for (size_t i = 0; i < kVectors; ++i) {
      const __m512i word = _mm512_loadu_si512(data + 8 * done + 64 * i);
      any[i] = _mm512_or_si512(any[i], word);
      __m512i x = Fold(_mm512_xor_si512(word, position[i]));
      x = Fold(_mm512_mullo_epi64(x, c1));
      x = Fold(_mm512_mullo_epi64(x, c2));
      sum[i] = _mm512_add_epi64(sum[i], x);
      position[i] = _mm512_add_epi64(position[i], step);
    }
  }
  __m512i at = position[0];
  for (; done < words; done += 8) {
    const size_t left = words - done;
    // Lanes under a zero mask read nothing, so the load does not reach behind
    // the data.
    const __mmask8 mask =
        left >= 8 ? 0xff : static_cast<__mmask8>((1u << left) - 1);
    const __m512i word = _mm512_maskz_loadu_epi64(mask, data + 8 * done);
    any[0] = _mm512_or_si512(any[0], word);
    __m512i x = Fold(_mm512_xor_si512(word, at));
    x = Fold(_mm512_mullo_epi64(x, c1));
    x = Fold(_mm512_mullo_epi64(x, c2));
    // A lane without a word would add mix(0 ^ position), hence the mask here as
    // well.
    sum[0] = _mm512_mask_add_epi64(sum[0], mask, sum[0], x);
    at = _mm512_add_epi64(at, All512(8 * kDigestG));
  }
  for (size_t i = 1; i < kVectors; ++i) {
    sum[0] = _mm512_add_epi64(sum[0], sum[i]);
    any[0] = _mm512_or_si512(any[0], any[i]);
  }
  uint64_t sums[8], anys[8];
  std::memcpy(sums, &sum[0], sizeof sums);
  std::memcpy(anys, &any[0], sizeof anys);
  DigestSum total;
  for (size_t i = 0; i < 8; ++i) total += {sums[i], anys[i]};
  return total;
}

#pragma GCC diagnostic pop
#pragma GCC pop_options

SumFunction FunctionFor(VectorSet vectors) {
  switch (vectors) {
    case VectorSet::kAvx512:
      return SumAvx512;
    case VectorSet::kAvx2:
      return SumAvx2;
    case VectorSet::kNone:
      break;
  }
  return SumScalar;
}

}  // namespace

VectorSet BestVectorSet() {
  __builtin_cpu_init();
  // The 64-bit multiplication belongs to avx512dq, which includes avx512f.
  if (__builtin_cpu_supports("avx512dq")) return VectorSet::kAvx512;
  if (__builtin_cpu_supports("avx2")) return VectorSet::kAvx2;
  return VectorSet::kNone;
}

DigestSum SumWholeWords(const char* data, size_t words, uint64_t first_word) {
  if (words < kFewWords) return SumScalar(data, words, first_word);
  static const SumFunction best = FunctionFor(BestVectorSet());
  return best(data, words, first_word);
}

DigestSum SumWholeWordsWith(VectorSet vectors, const char* data, size_t words,
                            uint64_t first_word) {
  return FunctionFor(vectors)(data, words, first_word);
}

}  // namespace traincheck::agent
