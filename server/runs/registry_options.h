// By what the registry tells the states of runs, and its limits.
//
// Threads: plain value.
#ifndef TRAINCHECK_SERVER_RUNS_REGISTRY_OPTIONS_H_
#define TRAINCHECK_SERVER_RUNS_REGISTRY_OPTIONS_H_

#include <cstddef>
#include <cstdint>
#include <functional>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace traincheck::server {

struct RegistryOptions {
  absl::Duration lost_after = absl::Minutes(10);
  // How long a process in whose place a later start is may be silent. Longer
  // than a relay takes to come back.
  absl::Duration superseded_after = absl::Seconds(15);
  // How long a run whose processes have all ended waits for further ones,
  // unless every rank was there.
  absl::Duration end_grace = absl::Seconds(1);
  std::function<absl::Time()> now = absl::Now;
  // Of one run; workers that are started for each epoch add up.
  size_t max_processes = 65'536;
  // How long the processes of a run stay in memory once it has ended.
  absl::Duration shelve_after = absl::Minutes(1);
  // Of what the store holds of one owner's runs.
  uint64_t owner_bytes = UINT64_MAX;
};

}  // namespace traincheck::server

#endif  // TRAINCHECK_SERVER_RUNS_REGISTRY_OPTIONS_H_
