// Looks for spool files that dead relays left, and delivers them one after the
// other while the server is there anyway.
//
// Owned by the Relay. Threads: externally synchronised (the relay's loop).
#ifndef TRAINCHECK_AGENT_RELAY_ORPHANS_H_
#define TRAINCHECK_AGENT_RELAY_ORPHANS_H_

#include <chrono>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "agent/relay/orphan_delivery.h"
#include "agent/relay/spool_directory.h"

namespace traincheck::agent {

class Orphans {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  Orphans(SpoolDirectory* directory,
          const OrphanDelivery::Dependencies& dependencies)
      : directory_(directory), dependencies_(dependencies) {}
  Orphans(const Orphans&) = delete;
  Orphans& operator=(const Orphans&) = delete;

  // `streaming`: the server takes other streams of this relay now.
  void Turn(TimePoint now, bool streaming);
  // Is something on its way, so that it is worth waiting for?
  bool busy() const { return current_ != nullptr && current_->open(); }

 private:
  void Scan(TimePoint now);
  void StartNext(TimePoint now);
  SpoolVerdict Judge(const std::string& path);
  // Takes the file over; null: somebody else has it, or nobody can use it.
  std::unique_ptr<OrphanDelivery> Take(const std::string& path, TimePoint now);

  SpoolDirectory* const directory_;
  const OrphanDelivery::Dependencies dependencies_;
  TimePoint next_scan_{};
  std::vector<std::string> found_;
  std::set<std::string> left_alone_;  // the server would not have them
  // Who wrote the files that were opened once: that never changes.
  std::map<std::string, SpoolOwner> owners_;
  std::unique_ptr<OrphanDelivery> current_;
};

}  // namespace traincheck::agent

#endif  // TRAINCHECK_AGENT_RELAY_ORPHANS_H_
