#include "agent/device/digest_slots.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace traincheck::agent {
namespace {

constexpr unsigned kMinItems = 64;

bool HasRoom(const DigestSlot& slot, const DigestTables& tables) {
  return slot.max_items >= tables.items().size() &&
         slot.max_dims >= tables.dims().size() &&
         slot.max_copied >= tables.copied_words();
}

CudaDriver::Result Grow(const CudaDriver& driver, const DigestTables& tables,
                        DigestSlot* slot) {
  DigestSlot grown;
  // In powers of two, so that a slot grows seldom, and never less of anything
  // than before: the tables that it has had still fit.
  const auto room = [](size_t needed, unsigned had) {
    return std::max(std::bit_ceil(static_cast<unsigned>(needed)), had);
  };
  grown.max_items =
      std::max(room(tables.items().size(), slot->max_items), kMinItems);
  grown.max_dims =
      std::max(room(tables.dims().size(), slot->max_dims), kMinItems);
  if (tables.copied_words() != 0 || slot->max_copied != 0) {
    grown.max_copied = room(tables.copied_words(), slot->max_copied);
  }
  const RelaxedCapture relaxed(driver);
  void* host = nullptr;
  CudaDriver::Result error = driver.MemAlloc(&grown.device, grown.bytes());
  if (error == CudaDriver::kSuccess) {
    error = driver.MemHostAlloc(&host, grown.host_bytes(),
                                CudaDriver::kPortableMapped);
  }
  if (error == CudaDriver::kSuccess) {
    error = driver.MemHostGetDevicePointer(&grown.host_on_device, host, 0);
  }
  if (error != CudaDriver::kSuccess) return error;
  grown.host = static_cast<char*>(host);
  // 0 is the number of no launch: no result is there.
  std::memset(grown.host, 0, grown.host_bytes());
  // The memory that it had stays allocated: freeing it would wait for the
  // device.
  *slot = grown;
  return error;
}

}  // namespace

bool HasTables(const DigestSlot& slot, const DigestTables& tables) {
  const auto& items = tables.items();
  const auto& dims = tables.dims();
  return slot.items == items.size() && slot.dims == dims.size() &&
         (items.empty() ||
          std::memcmp(slot.host + slot.items_at(), items.data(),
                      items.size() * sizeof items[0]) == 0) &&
         (dims.empty() || std::memcmp(slot.host + slot.dims_at(), dims.data(),
                                      dims.size() * sizeof dims[0]) == 0);
}

DigestSlot* DigestSlots::Take(const CudaDriver& driver,
                              const DigestTables& tables,
                              CudaDriver::Result* error) {
  *error = CudaDriver::kSuccess;
  // The first choice is a slot whose device has these tables. Then comes an
  // unused one, so that other points keep theirs, then any with room, and last
  // one that has to grow.
  DigestSlot* roomy = nullptr;
  DigestSlot* unused = nullptr;
  DigestSlot* small = nullptr;
  for (DigestSlot& slot : slots_) {
    if (slot.number != 0) continue;
    if (slot.max_items == 0) {
      if (unused == nullptr) unused = &slot;
    } else if (!HasRoom(slot, tables)) {
      if (small == nullptr) small = &slot;
    } else if (HasTables(slot, tables)) {
      return &slot;
    } else if (roomy == nullptr) {
      roomy = &slot;
    }
  }
  // Tables of copies do not come again.
  if (roomy != nullptr && tables.copied_words() != 0) return roomy;
  // Another point's tables stay where they are while there are unused slots.
  for (DigestSlot* slot : {unused, small}) {
    if (slot == nullptr || (slot == small && roomy != nullptr)) continue;
    *error = Grow(driver, tables, slot);
    return *error == CudaDriver::kSuccess ? slot : nullptr;
  }
  return roomy;
}

}  // namespace traincheck::agent
