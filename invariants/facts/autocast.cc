#include "invariants/facts/autocast.h"

#include "invariants/trace/call_values.h"

namespace traincheck {

namespace {

constexpr char kAutocast[] = "torch.amp.autocast_mode.autocast";

// "cuda" of "cuda:0".
std::string_view KindOf(std::string_view device) {
  return device.substr(0, device.find(':'));
}

}  // namespace

void Autocast::OnContext(const ContextEvent& event) {
  // Other contexts that a plan names come here, too.
  if (!event.function || event.function->name != kAutocast) return;
  Thread& thread =
      threads_.try_emplace(event.ring, Thread{{}, !gap_}).first->second;
  if (!event.enter) {
    // Regions of a thread nest, so the innermost one is left. If there is none,
    // it was entered where records are missing.
    if (!thread.open.empty()) thread.open.pop_back();
    return;
  }
  used_ = true;
  const ToldArguments told = ArgumentsOf(event.content, inputs().definitions);
  const auto text = [&told](const char* name) -> const std::string* {
    const CallValue* value = told.Find(name);
    return value ? value->Get<std::string>() : nullptr;
  };
  const CallValue* enabled = told.Find("enabled");
  const bool* is_enabled = enabled ? enabled->Get<bool>() : nullptr;
  const std::string* device_type = text("device_type");
  const std::string* dtype = text("dtype");
  // An argument that was not recorded leaves the type unknown. "" would say
  // that nothing is cast.
  Region region;
  if (device_type) region.device_type = *device_type;
  if (is_enabled && !*is_enabled) {
    region.dtype = "";
  } else if (is_enabled && dtype) {
    region.dtype = *dtype;
  }
  thread.open.push_back(std::move(region));
}

void Autocast::OnGap() {
  gap_ = true;
  // Any of the open regions may have been left meanwhile.
  for (auto& [ring, thread] : threads_) thread = Thread{{}, false};
}

std::optional<std::string> Autocast::InnermostDtype(uint32_t ring) const {
  const auto thread = threads_.find(ring);
  if (thread != threads_.end() && !thread->second.open.empty()) {
    return thread->second.open.back().dtype;
  }
  // Outside of all regions that were seen: "" only if no region can have been
  // entered unseen.
  const bool known = thread == threads_.end() ? !gap_ : thread->second.known;
  return known ? std::optional<std::string>("") : std::nullopt;
}

std::optional<std::string> Autocast::DtypeOn(uint32_t ring,
                                             std::string_view device) const {
  const auto thread = threads_.find(ring);
  if (thread == threads_.end()) {
    return gap_ ? std::nullopt : std::optional<std::string>("");
  }
  const std::vector<Region>& open = thread->second.open;
  for (auto region = open.rbegin(); region != open.rend(); ++region) {
    // It may be a region for this kind of device. One for another kind leaves
    // the region around it in force.
    if (region->device_type.empty()) return std::nullopt;
    if (region->device_type == KindOf(device)) return region->dtype;
  }
  return thread->second.known ? std::optional<std::string>("") : std::nullopt;
}

void Autocast::Fields(Archive& archive) { archive(threads_, gap_, used_); }

void Autocast::Region::Fields(Archive& archive) { archive(device_type, dtype); }

void Autocast::Thread::Fields(Archive& archive) { archive(open, known); }

}  // namespace traincheck
