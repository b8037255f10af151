#include "agent/device/digest_slots.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace traincheck::agent {
namespace {

constexpr unsigned kMinItems = 64;

// Room in all three tables: a slot that lacks any of them must grow.
bool HasRoom(const DigestSlot& slot, const DigestTables& tables) {
  return slot.max_items >= tables.items().size() &&
         slot.max_dims >= tables.dims().size() &&
         slot.max_copied >= tables.copied_words();
}

// Replaces the slot's memory by larger memory. REQUIRES: the slot is free, so
// that no kernel writes to the old memory any more.
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
  // Pinned room for copies is allocated only in slots that have copies: most
  // never do.
  if (tables.copied_words() != 0 || slot->max_copied != 0) {
    grown.max_copied = room(tables.copied_words(), slot->max_copied);
  }
  // Relaxed mode: a capture of the user's on another stream would otherwise
  // fail with an error at the user's next call.
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
  // What was allocated before the error is not freed: the caller switches the
  // digester off for good.
  if (error != CudaDriver::kSuccess) return error;
  grown.host = static_cast<char*>(host);
  // No launch has the number 0, so that zeroed memory reads as "no result yet".
  std::memset(grown.host, 0, grown.host_bytes());
  // The memory that the slot had stays allocated, since freeing it would wait
  // for the device. The new memory is marked as never cleared (is_new) and has
  // no tables (items is 0).
  *slot = grown;
  return error;
}

}  // namespace

// The pinned copy stands for the tables on the device, since both were written
// together. Comparing some kilobytes costs less than a transfer.
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
    // A busy slot: its kernel may still write into the memory.
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
  // Tables with copies do not come again, so they need no slot of their own:
  // any that has room will do.
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
