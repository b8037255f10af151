#include "agent/relay/ring_set.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/record_format.h"

namespace traincheck::agent {

// Any process of this user may connect, so the number of rings is bounded and
// each is checked when it is mapped.
absl::Status RingSet::Add(int fd, const RingHandover& handover) {
  if (rings_.size() >= kMaxRingsPerProcess) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "a process hands over ", kMaxRingsPerProcess, " rings at most"));
  }
  if (rings_.count(handover.ring) != 0) {
    return absl::AlreadyExistsError(
        absl::StrCat("ring ", handover.ring, " was handed over before"));
  }
  std::string error;
  std::unique_ptr<RingReader> reader = RingReader::Map(fd, handover, &error);
  if (reader == nullptr) return absl::InvalidArgumentError(error);
  // Otherwise another relay has read, and counted, what lies before.
  const bool from_beginning = reader->position() == 0;
  Held held = {.reader = std::move(reader), .count_known = from_beginning};
  const auto known = coverages_.find(handover.ring);
  if (known != coverages_.end()) Apply(known->second, &held);
  rings_.emplace(handover.ring, std::move(held));
  return absl::OkStatus();
}

// May come before the ring itself: the coverage is kept for it.
void RingSet::Cover(const RingCoverages& coverages) {
  for (const auto& [ring, coverage] : coverages) {
    coverages_[ring] = coverage;
    const auto found = rings_.find(ring);
    if (found != rings_.end()) Apply(coverage, &found->second);
  }
}

// Moves the reader behind what is stored or held already, and frees what is
// safe.
void RingSet::Apply(const RingCoverage& coverage, Held* held) {
  RingReader& reader = *held->reader;
  if (!reader.Refresh()) return;
  // What is stored or held elsewhere is not read again. The records in it were
  // not counted here, so the count is known again only if the server has it for
  // this very position.
  if (reader.position() < coverage.position) {
    held->count_known = false;
    reader.SkipTo(coverage.position);
  }
  reader.Release(std::min(coverage.safe, reader.position()));
  if (!held->count_known && coverage.records.has_value() &&
      coverage.position == reader.position()) {
    held->records_read = *coverage.records;
    held->count_known = held->count_told = true;
  }
}

void RingSet::Refresh() {
  std::vector<RingReader*> order = events();
  // Last: each definition is committed before the first record that uses it
  // (RING_ABI.md, rule 8).
  if (definitions() != nullptr) order.push_back(definitions());
  for (RingReader* ring : order) {
    // Nobody reads a quarantined ring, and its writer need not wait for that.
    if (!ring->Refresh()) ring->Discard();
  }
}

uint64_t RingSet::unread_bytes() const {
  uint64_t bytes = 0;
  for (const auto& [number, ring] : rings_) {
    if (!ring.reader->quarantined()) bytes += ring.reader->unread_bytes();
  }
  return bytes;
}

// Half full: the spool is used early then, before the writer has to drop.
bool RingSet::under_pressure() const {
  return std::any_of(rings_.begin(), rings_.end(), [](const auto& entry) {
    const RingReader& ring = *entry.second.reader;
    return ring.unreleased_bytes() > ring.capacity_bytes() / 2;
  });
}

RingReader* RingSet::definitions() {
  return const_cast<RingReader*>(std::as_const(*this).definitions());
}

const RingReader* RingSet::definitions() const {
  const auto found = rings_.find(kDefinitionRing);
  return found == rings_.end() ? nullptr : found->second.reader.get();
}

// std::map keeps the order by number: ring 1 belongs to the thread that
// recorded first.
std::vector<RingReader*> RingSet::events() {
  std::vector<RingReader*> events;
  for (const auto& [number, ring] : rings_) {
    if (number != kDefinitionRing) events.push_back(ring.reader.get());
  }
  return events;
}

void RingSet::Release(const Slices& slices) {
  for (const v1::Slice& slice : slices) {
    const auto found = rings_.find(slice.ring());
    if (found != rings_.end()) found->second.reader->Release(slice.to());
  }
}

// The writers' own counters may be behind what they have published by one
// record.
uint64_t RingSet::committed_records() const {
  uint64_t records = 0;
  for (const auto& [number, ring] : rings_) {
    records += ring.reader->counters().committed_records;
  }
  return records;
}

uint64_t RingSet::read_records() const {
  uint64_t records = 0;
  for (const auto& [number, ring] : rings_) records += ring.records_read;
  return records;
}

void RingSet::Discard() {
  for (const auto& [number, ring] : rings_) ring.reader->Discard();
}

// `final`: the process is dead, so nothing changes any more.
std::vector<v1::RingReport> RingSet::Reports(bool final) const {
  std::vector<v1::RingReport> reports;
  for (const auto& [number, ring] : rings_) {
    RingCounters counters = ring.reader->counters();
    // A writer that was killed may have published a record that it had not
    // counted. Of a ring that was read from its first byte to its head the
    // records that were read are the truth. A count that came from the
    // server does not include what the server misses, so it is used only if it
    // differs from the writer's by that one record.
    const uint64_t committed = counters.committed_records;
    const bool counts_alike = committed <= ring.records_read + 1 &&
                              ring.records_read <= committed + 1;
    const bool read_all =
        ring.count_known && (!ring.count_told || counts_alike) &&
        !ring.reader->quarantined() && ring.reader->unread_bytes() == 0;
    if (final && read_all) {
      counters.committed_records = ring.records_read;
      counters.offered_records = ring.records_read + counters.dropped_records;
    }
    v1::RingReport& report = reports.emplace_back();
    report.set_ring(number);
    report.set_tid(ring.reader->tid());
    report.set_head(counters.head);
    report.set_offered_records(counters.offered_records);
    report.set_committed_records(counters.committed_records);
    report.set_dropped_records(counters.dropped_records);
  }
  return reports;
}

std::vector<std::string> RingSet::NewFaults() {
  std::vector<std::string> faults;
  for (auto& [number, ring] : rings_) {
    if (ring.reader->quarantined() && !ring.fault_told) {
      ring.fault_told = true;
      faults.push_back(ring.reader->error());
    }
  }
  return faults;
}

}  // namespace traincheck::agent
