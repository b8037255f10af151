// Fact "ctx.autocast_dtype": the type to which the innermost autocast region
// of a thread casts.
//
// Type: text ("torch.bfloat16"), by thread and kind of device. Inputs: entries
// and exits of torch.autocast with its arguments. "" outside all regions and
// where the innermost one is disabled; unknown after missing records until the
// next region is entered, and outside it again.
//
// Threads: one object, one thread at a time.
#ifndef TRAINCHECK_INVARIANTS_FACTS_AUTOCAST_H_
#define TRAINCHECK_INVARIANTS_FACTS_AUTOCAST_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "invariants/facts/fact_tracker.h"
#include "invariants/trace/archive.h"
#include "invariants/trace/events.h"

namespace traincheck {

class Autocast final : public FactTracker {
 public:
  using FactTracker::FactTracker;

  void OnContext(const ContextEvent& event) override;
  void OnGap() override;

  // Has any region been entered?
  bool used() const { return used_; }
  // Of the innermost region of a thread, whatever its kind of device; nullopt:
  // not known.
  std::optional<std::string> InnermostDtype(uint32_t ring) const;
  // nullopt: not known. `device` is "cpu" or "cuda:0".
  std::optional<std::string> DtypeOn(uint32_t ring,
                                     std::string_view device) const;

  void Fields(Archive& archive) override;

 private:
  struct Region {
    std::string device_type;
    std::optional<std::string> dtype;  // "": disabled; nullopt: not told

    void Fields(Archive& archive);
  };
  struct Thread {
    std::vector<Region> open;
    bool known = true;  // what lies outside of `open`

    void Fields(Archive& archive);
  };

  std::map<uint32_t, Thread> threads_;  // by ring
  bool gap_ = false;  // threads that are new may be in a region
  bool used_ = false;
};

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_FACTS_AUTOCAST_H_
