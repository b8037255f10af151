// Facts that the agent has looked at itself and only has to say: each is a
// scalar with the fact's name, 1 where it is so and 0 where it could have been.
// observed_facts.cc lists them.
//
// A second scalar, "NAME.site", may have the number of the site at which it is
// wrong (site_at of traincheck_core.pyi); "loader.made.site" has that of the
// line that made the loader.
//
// Inputs: scalars without an object, of the backward, load_state_dict,
// state_dict or save in which they were written; scalars of an optimizer, a
// loader or a wrapped model, which hold until they are written again. What was
// not looked at, or had no occasion, has no scalar.
//
// Threads: one object, one thread at a time.
#ifndef TRAINCHECK_INVARIANTS_FACTS_OBSERVATIONS_H_
#define TRAINCHECK_INVARIANTS_FACTS_OBSERVATIONS_H_

#include <cmath>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "invariants/facts/fact_tracker.h"
#include "invariants/facts/sight.h"
#include "invariants/trace/archive.h"
#include "invariants/trace/call_contexts.h"
#include "invariants/trace/events.h"

namespace traincheck {

class Observations final : public FactTracker {
 public:
  using FactTracker::FactTracker;

  // Of the line that made a loader, as SiteOf takes it.
  static constexpr char kLoaderMade[] = "loader.made";

  // Is it the number of a site, which another run may give another line?
  static bool IsSite(const std::string& scalar) {
    return scalar.ends_with(kSite);
  }
  // Is it a call of which the agent may say something?
  static bool Concerns(const Call& call) {
    if (HasCategory(call, CallCategory::kLoadStateDict) ||
        HasCategory(call, CallCategory::kSave)) {
      return true;
    }
    return HasCategory(call, CallCategory::kBackward) && call.Is(kOutermost);
  }

  void OnCallBegin(const Call& call) override {
    if (Concerns(call)) of_call_.clear();
  }
  void OnScalar(const ScalarEvent& event) override {
    if (event.name->find('.') == std::string::npos) return;
    if (Sight::IsAboutSight(*event.name)) return;
    is_forgotten_ = false;
    Values& values = event.object == 0 ? of_call_ : of_objects_[event.object];
    if (std::isnan(event.value)) {  // not known any more
      values.erase(*event.name);
    } else {
      values[*event.name] = event.value;
    }
  }
  // A scalar is written where it changes: the change may be what is missing.
  void OnGap() override {
    // Each record may come with a gap, if definitions are missing.
    if (std::exchange(is_forgotten_, true)) return;
    of_call_.clear();
    const std::string made = std::string(kLoaderMade) + kSite;
    for (auto& [object, values] : of_objects_) {
      std::erase_if(values,
                    [&](const auto& value) { return value.first != made; });
    }
  }

  // Of the last call that is concerned; nullopt: nothing was said of it.
  std::optional<bool> Find(const std::string& name) const {
    return Find(of_call_, name);
  }
  // Of an optimizer, a loader or a wrapped model.
  std::optional<bool> Find(uint32_t object, const std::string& name) const {
    const auto found = of_objects_.find(object);
    if (found == of_objects_.end()) return std::nullopt;
    return Find(found->second, name);
  }

  // The line of the user's code where that is wrong; object 0: of the last call
  // that is concerned. 0: not known.
  uint32_t SiteOf(uint32_t object, const std::string& name) const {
    if (object == 0) return SiteOf(of_call_, name);
    const auto found = of_objects_.find(object);
    return found == of_objects_.end() ? 0 : SiteOf(found->second, name);
  }

  void Fields(Archive& archive) override {
    archive(of_call_, of_objects_);
    if (archive.reading()) is_forgotten_ = false;
  }

 private:
  using Values = std::map<std::string, double>;

  static std::optional<bool> Find(const Values& values,
                                  const std::string& name) {
    const auto found = values.find(name);
    if (found == values.end()) return std::nullopt;
    return found->second != 0;
  }

  static uint32_t SiteOf(const Values& values, const std::string& name) {
    const auto site = values.find(name + kSite);
    // Of a damaged record, perhaps.
    if (site == values.end() || !(site->second >= 0) ||
        site->second > UINT32_MAX) {
      return 0;
    }
    return static_cast<uint32_t>(site->second);
  }

  static constexpr char kSite[] = ".site";

  Values of_call_;
  std::map<uint32_t, Values> of_objects_;
  bool is_forgotten_ = false;  // nothing was learned since the last gap
};

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_FACTS_OBSERVATIONS_H_
