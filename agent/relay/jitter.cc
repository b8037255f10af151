#include "agent/relay/jitter.h"

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/hash.h"

namespace traincheck::agent {
namespace {

// The seed differs between processes and needs no source of randomness.
uint64_t SeedOf(const v1::ProcessIdentity& process) {
  return StableHash(absl::StrCat(process.host(), " ", process.boot_id(), " ",
                                 process.pid(), " ", process.start_ticks(), " ",
                                 process.image()));
}

}  // namespace

// minstd_rand takes seeds below its modulus.
Jitter::Jitter(const v1::ProcessIdentity& process)
    : random_(SeedOf(process) % std::minstd_rand::modulus) {}

std::chrono::milliseconds Jitter::Of(std::chrono::milliseconds wait) {
  const std::chrono::milliseconds half = wait / 2;
  std::uniform_int_distribution<int64_t> more(0, (wait - half).count());
  return half + std::chrono::milliseconds(more(random_));
}

}  // namespace traincheck::agent
