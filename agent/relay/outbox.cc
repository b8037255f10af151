#include "agent/relay/outbox.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "agent/relay/limits.h"
#include "agent/ring/ring_abi.h"
#include "base/logging.h"
#include "proto/record_format.h"

namespace traincheck::agent {
namespace {

// Where the first definitions lie that a held batch brings along, from the
// batch at `begin` on; nothing if no batch does.
template <typename Held>
std::optional<uint64_t> FirstDefinition(const Held& held, size_t begin) {
  for (size_t i = begin; i < held.size(); ++i) {
    for (const v1::Slice& slice : held[i].slices) {
      if (slice.ring() == kDefinitionRing) return slice.from();
    }
  }
  return std::nullopt;
}

// The ranges that cut a whole batch down to exactly `slices`. A ring without a
// slice gets an empty range.
RingRanges RangesOf(const v1::Batch& batch, const Slices& slices) {
  RingRanges ranges;
  for (const v1::Slice& slice : batch.slices()) ranges[slice.ring()] = {0, 0};
  for (const v1::Slice& slice : slices) {
    ranges[slice.ring()] = {slice.from(), slice.to()};
  }
  return ranges;
}

// Adds a slice to what is known of a ring. A slice that does not follow the one
// before leaves a hole, behind which the number of records is unknown.
void Cover(const v1::Slice& slice, RingCoverage* ring) {
  if (slice.from() != ring->position) ring->records.reset();
  if (ring->records.has_value()) *ring->records += slice.records();
  ring->position = slice.to();
}

}  // namespace

Outbox::Outbox(Dependencies dependencies)
    : dependencies_(std::move(dependencies)) {}

// Sequences go on from the adopted file's, so that numbers in one file rise.
void Outbox::Adopt(LoadedSpool loaded) {
  spool_ = std::move(loaded.file);
  next_sequence_ = adopted_sequence_ = loaded.next_number;
  // Only what reached the file: batches that the dead relay had in memory alone
  // are still in the rings and are read again from there.
  for (SpooledBatch& batch : loaded.batches) {
    held_.push_back({.sequence = batch.number,
                     .payload_bytes = batch.payload_bytes,
                     .slices = std::move(batch.slices),
                     .offset = batch.offset});
  }
  spooled_ = held_.size();
  // How many batches a damaged place held is not known; each counts as one.
  lost_batches_ = loaded.damage.places;
}

bool Outbox::has_room() const { return memory_bytes_ < kMaxMemoryBytes; }

// The batch is kept in memory first: most are acknowledged before the spool is
// needed.
void Outbox::Add(v1::Batch batch, TimePoint now) {
  const uint64_t bytes = batch.payload().size();
  Slices slices = batch.slices();
  // Spooling and memory are accounted by compressed bytes, since these are what
  // is held.
  held_.push_back({.sequence = next_sequence_++,
                   .payload_bytes = bytes,
                   .added = now,
                   .batch = std::make_shared<v1::Batch>(std::move(batch)),
                   .slices = std::move(slices)});
  memory_bytes_ += bytes;
}

// Decides what is still to be sent. The usual case is a stream that broke and
// came back to the same store: its cursor lies within what is held, and only
// what was stored meanwhile goes. Otherwise a number says nothing by itself,
// and positions decide if the server gives them (Rebase).
std::optional<RingCoverages> Outbox::Resume(const v1::Welcome& welcome) {
  const bool first = store_id_.empty();
  const bool same_store = !first && store_id_ == welcome.store_id();
  const uint64_t next_batch = welcome.next_batch();
  store_id_ = welcome.store_id();
  credit_bytes_ = welcome.credit_bytes();
  std::optional<RingCoverages> coverages;
  if (same_store && next_batch >= first_number_ &&
      next_batch <= first_number_ + held_.size()) {
    while (first_number_ < next_batch) PopFront();
  } else if (next_batch == 0 || !welcome.rings().empty()) {
    coverages = Rebase(welcome);
  } else if (first) {
    // The server sends no positions, and there are batches of a relay before
    // this one: the spool's numbers say what the server has.
    const uint64_t stored = std::min(next_batch, adopted_sequence_);
    while (!held_.empty() && held_.front().sequence < stored) PopFront();
  }
  first_number_ = next_batch;
  // All that was in flight is sent again: the server says by its cursor what
  // has arrived.
  sent_ = 0;
  in_flight_bytes_ = 0;
  NoteProgress();
  return coverages;
}

// Goes over everything held once, in order, with two positions for each ring.
// `wanted` is where the bytes begin that the server does not have: at first the
// position that it named, then the end of each batch that is kept; a batch
// loses what lies below. `coverages` is how far the ring is stored or held, for
// the reader that goes on in the ring itself.
RingCoverages Outbox::Rebase(const v1::Welcome& welcome) {
  RingCoverages coverages;
  // The server's positions come first; a ring that it does not name is wanted
  // from its beginning.
  RingRanges wanted;
  for (const v1::RingCursor& ring : welcome.rings()) {
    const uint64_t position = ring.position();
    coverages[ring.ring()] = {
        .safe = position, .position = position, .records = ring.records()};
    wanted[ring.ring()].from = position;
  }
  // Before the loop, which then treats them as it treats batches.
  InsertDefinitions(wanted[kDefinitionRing].from);
  std::deque<Held> before = std::exchange(held_, {});
  for (Held& held : before) {
    if (!Trim(wanted, &held)) {
      // The caller frees its ring space, up to the positions that are safe.
      Leave(held);
      continue;
    }
    for (const v1::Slice& slice : held.slices) {
      const auto ring =
          coverages.try_emplace(slice.ring(), RingCoverage{.records = 0});
      Cover(slice, &ring.first->second);
      wanted[slice.ring()].from = slice.to();
    }
    held_.push_back(std::move(held));
  }
  return coverages;
}

// Only a store that does not have these definitions gets them, in front of all
// batches. They take no ring space and no memory of their own.
void Outbox::InsertDefinitions(uint64_t stored_position) {
  while (definitions_ > 0) PopFront();  // of a store before
  RingRange lacking = {.from = stored_position};
  // From there on batches bring their definitions along.
  if (const auto first = FirstDefinition(held_, 0)) lacking.to = *first;
  if (lacking.from >= lacking.to) return;
  const std::vector<SharedBatch> table = dependencies_.definitions();
  // From the last to the first, because each one is put in front of all others.
  for (auto chunk = table.rbegin(); chunk != table.rend(); ++chunk) {
    Held held = {.payload_bytes = (*chunk)->payload().size(),
                 .batch = *chunk,
                 .slices = (*chunk)->slices(),
                 .definitions = true};
    if (!Trim({{kDefinitionRing, lacking}}, &held)) continue;
    held_.push_front(std::move(held));
    ++definitions_;
  }
}

// False: nothing of the batch is wanted, or it cannot be cut.
bool Outbox::Trim(const RingRanges& wanted, Held* held) {
  // Most batches lie on one side of all positions. Only one that straddles a
  // position costs a read, a decompression and a compression.
  if (LieWithin(held->slices, wanted)) return true;
  if (LieOutside(held->slices, wanted)) return false;
  const absl::StatusOr<SharedBatch> batch = Load(*held);
  absl::StatusOr<v1::Batch> trimmed =
      batch.ok() ? TrimBatch(**batch, wanted, dependencies_.compressor)
                 : batch.status();
  if (!trimmed.ok()) {
    // As it is, the server would quarantine it.
    ++lost_batches_;
    return false;
  }
  held->slices = trimmed->slices();
  if (trimmed->slices().empty()) return false;
  if (held->batch == nullptr) return true;  // cut again when it is sent
  const uint64_t bytes = trimmed->payload().size();
  // Unsigned: the difference wraps around where the batch has become smaller,
  // and the sum wraps back.
  if (!held->definitions) memory_bytes_ += bytes - held->payload_bytes;
  held->payload_bytes = bytes;
  held->batch = std::make_shared<v1::Batch>(*std::move(trimmed));
  return true;
}

// From memory, or from the spool file, where it is checked by its hash.
absl::StatusOr<Outbox::SharedBatch> Outbox::Load(const Held& held) {
  if (held.batch != nullptr) return held.batch;
  const absl::StatusOr<std::string> bytes =
      spool_->ReadBatch(held.offset, held.sequence);
  if (!bytes.ok()) return bytes.status();
  auto batch = std::make_shared<v1::Batch>();
  if (!batch->ParseFromString(*bytes)) {
    return absl::DataLossError("a spooled batch does not parse");
  }
  // The file has the batch as it was made; what is wanted of it is cut anew
  // each time.
  const RingRanges wanted = RangesOf(*batch, held.slices);
  if (LieWithin(batch->slices(), wanted)) return batch;
  absl::StatusOr<v1::Batch> trimmed =
      TrimBatch(*batch, wanted, dependencies_.compressor);
  if (!trimmed.ok()) return trimmed.status();
  return std::make_shared<v1::Batch>(*std::move(trimmed));
}

// Numbers are given here, at the last moment, so that a batch that is left out
// leaves no hole in them.
std::optional<v1::Batch> Outbox::NextToSend() {
  // Without a stream there is no credit, and nothing is sent.
  while (sent_ < held_.size() && credit_bytes_ > 0) {
    const Held& held = held_[sent_];
    // A batch larger than the whole credit goes alone.
    if (in_flight_bytes_ > 0 &&
        in_flight_bytes_ + held.payload_bytes > credit_bytes_) {
      return std::nullopt;
    }
    const absl::StatusOr<SharedBatch> batch = Load(held);
    // The spool file is damaged at this place. The records are lost, and the
    // hole in the ring's positions shows that to the server.
    if (!batch.ok()) {
      ++lost_batches_;
      Leave(held);
      held_.erase(held_.begin() + static_cast<std::ptrdiff_t>(sent_));
      continue;
    }
    in_flight_bytes_ += held.payload_bytes;
    v1::Batch numbered = **batch;
    numbered.set_number(first_number_ + sent_++);
    return numbered;
  }
  return std::nullopt;
}

// The server is not trusted with the cursor: a number that was never sent would
// drop batches which nobody has.
absl::Status Outbox::Acknowledge(uint64_t next_batch) {
  if (next_batch > first_number_ + sent_) {
    return absl::InternalError(absl::StrCat(
        "the server acknowledges all below batch ", next_batch,
        ", only those below ", first_number_ + sent_, " were sent"));
  }
  if (next_batch <= first_number_) return absl::OkStatus();
  while (first_number_ < next_batch) PopFront();
  NoteProgress();
  return absl::OkStatus();
}

// For a batch that the server refuses again and again.
void Outbox::DropFirst() {
  ++lost_batches_;
  PopFront();
  --first_number_;  // the next one takes its number
  NoteProgress();
}

// Takes away the front batch, which is stored, refused or not needed: its ring
// space, its share of the credit and the books are settled.
void Outbox::PopFront() {
  const Held& front = held_.front();
  // What was spooled gave its ring space back then. Definitions of the table
  // take none.
  if (front.batch != nullptr && !front.definitions) {
    dependencies_.release(front.slices);
  }
  // What Resume and Discard take away may never have been sent.
  if (sent_ > 0) {
    --sent_;
    in_flight_bytes_ -= front.payload_bytes;
  }
  Leave(front);
  held_.pop_front();
  ++first_number_;
}

// Keeps the three counters of the header's picture right: definitions, spooled,
// in memory.
void Outbox::Leave(const Held& held) {
  if (held.definitions) {
    --definitions_;
  } else if (held.batch == nullptr) {
    --spooled_;
  } else {
    memory_bytes_ -= held.payload_bytes;
  }
}

// The file's header says what need not be sent again, for a relay that takes
// over.
void Outbox::NoteProgress() {
  if (spool_ == nullptr) return;
  // Definitions of the table are not in the spool and have no number there.
  const uint64_t first = held_.size() > definitions_
                             ? held_[definitions_].sequence
                             : next_sequence_;
  // An emptied file returns its bytes to the limit that all relays share.
  if (spooled_ == 0) {
    spool_->Clear(first);
  } else {
    spool_->SetAcknowledged(first);
  }
}

absl::Status Outbox::OpenSpool() {
  if (spool_ != nullptr) return absl::OkStatus();
  auto opened = dependencies_.open_spool();
  if (!opened.ok()) return opened.status();
  spool_ = *std::move(opened);
  return absl::OkStatus();
}

// Moves one batch to the file and frees its ring space: from here on the writer
// may overwrite the records.
absl::Status Outbox::SpoolOne(Held* held) {
  if (absl::Status status = OpenSpool(); !status.ok()) return status;
  v1::Batch batch = *held->batch;
  // Numbers in the file are its own: the server's are given on the wire and
  // differ from store to store.
  batch.set_number(held->sequence);
  const auto offset = spool_->Append(SpoolEntryKind::kBatch, held->sequence,
                                     batch.SerializeAsString());
  if (!offset.ok()) return offset.status();
  // Only behind the write: if the relay dies in between, the batch is still in
  // the rings.
  held->offset = *offset;
  dependencies_.release(held->slices);
  held->batch.reset();
  memory_bytes_ -= held->payload_bytes;
  ++spooled_;
  return absl::OkStatus();
}

absl::Status Outbox::Spool(TimePoint now, std::chrono::milliseconds age) {
  // The front is in the file already or comes from the table. Batches lie in
  // the order of their making, so the first one that is too young ends the
  // loop.
  for (size_t next = definitions_ + spooled_;
       next < held_.size() && now - held_[next].added >= age; ++next) {
    absl::Status status = SpoolOne(&held_[next]);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

uint64_t Outbox::held_records() const {
  uint64_t records = 0;
  for (const Held& held : held_) {
    if (held.definitions) continue;
    for (const v1::Slice& slice : held.slices) records += slice.records();
  }
  return records;
}

uint64_t Outbox::TakeLostBatches() { return std::exchange(lost_batches_, 0); }

void Outbox::RemoveSpool() {
  if (spool_ != nullptr) spool_->Remove();
  spool_.reset();
}

// Only another store than the one that acknowledged them lacks these
// definitions, so they are written once, at the end of the file.
absl::Status Outbox::SpoolDefinitions() {
  if (spooled_ == 0) return absl::OkStatus();
  const uint64_t end =
      // What batches bring along is not needed twice.
      FirstDefinition(held_, definitions_).value_or(UINT64_MAX);
  for (const SharedBatch& batch : dependencies_.definitions()) {
    if (batch->slices(0).from() >= end) break;
    const auto offset =
        spool_->Append(SpoolEntryKind::kDefinitions, next_sequence_,
                       batch->SerializeAsString());
    if (!offset.ok()) return offset.status();
  }
  return absl::OkStatus();
}

// The server had its time. What is held must now survive this relay.
absl::Status Outbox::LeaveBehind(const v1::Goodbye& goodbye) {
  absl::Status status = Spool(TimePoint::max(), std::chrono::milliseconds(0));
  // A process without batches leaves a file, too: its goodbye says how it
  // ended.
  if (status.ok()) status = OpenSpool();
  if (!status.ok()) return status;
  if (const absl::Status kept = SpoolDefinitions(); !kept.ok()) {
    spdlog::warn(
        "definitions are not spooled ({}): only the store that has them can "
        "make something of {}",
        std::string(kept.message()), spool_->path());
  }
  return spool_
      ->Append(SpoolEntryKind::kGoodbye, next_sequence_,
               goodbye.SerializeAsString())
      .status();
}

// The server does not take this process. Keeping the spool would only have the
// next relay try the same.
void Outbox::Discard() {
  while (!held_.empty()) PopFront();
  RemoveSpool();
}

std::string Outbox::spool_path() const {
  return spool_ == nullptr ? "" : spool_->path();
}

}  // namespace traincheck::agent
