// First inputs of the targets that whoever reaches the daemon, or writes the
// files it reads, can feed: tokens, requests of HTTP, certificates, files with
// secrets, settings.
//
// Threads: pure function.
#ifndef TRAINCHECK_TESTS_FUZZ_ACCESS_SEEDS_H_
#define TRAINCHECK_TESTS_FUZZ_ACCESS_SEEDS_H_

#include <string>
#include <vector>

namespace traincheck {

struct FuzzSeed {
  std::string target;
  std::string bytes;
};

std::vector<FuzzSeed> AccessSeeds();

}  // namespace traincheck

#endif  // TRAINCHECK_TESTS_FUZZ_ACCESS_SEEDS_H_
