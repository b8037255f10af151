#include "agent/relay/outbox.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "agent/relay/limits.h"

namespace traincheck {

Outbox::Outbox(Dependencies dependencies)
    : dependencies_(std::move(dependencies)) {}

bool Outbox::has_room() const { return memory_bytes_ < kMaxMemoryBytes; }

void Outbox::Add(v1::Batch batch, TimePoint now) {
  batch.set_number(next_number_);
  const uint64_t bytes = batch.payload().size();
  held_.push_back({.number = next_number_++,
                   .payload_bytes = bytes,
                   .added = now,
                   .batch = std::make_unique<v1::Batch>(std::move(batch))});
  memory_bytes_ += bytes;
}

Outbox::Held* Outbox::Find(uint64_t number) {
  if (held_.empty() || number >= next_number_) return nullptr;
  const uint64_t first = held_.front().number;
  return &held_[number < first ? 0 : number - first];
}

absl::Status Outbox::Resume(uint64_t next_batch, uint64_t credit_bytes) {
  if (next_batch > next_number_) {
    return absl::InvalidArgumentError(absl::StrCat("the server asks for batch ",
                                                   next_batch, ", only ",
                                                   next_number_, " were made"));
  }
  next_to_send_ = next_number_;
  if (absl::Status status = Acknowledge(next_batch); !status.ok()) {
    return status;
  }
  PopLost();
  next_to_send_ = held_.empty() ? next_number_ : held_.front().number;
  in_flight_bytes_ = 0;
  credit_bytes_ = credit_bytes;
  return absl::OkStatus();
}

absl::StatusOr<std::optional<v1::Batch>> Outbox::NextToSend() {
  Held* held = Find(next_to_send_);
  if (held == nullptr || held->lost || credit_bytes_ == 0) return std::nullopt;
  // A batch larger than the whole credit goes alone.
  if (in_flight_bytes_ > 0 &&
      in_flight_bytes_ + held->payload_bytes > credit_bytes_) {
    return std::nullopt;
  }
  v1::Batch batch;
  if (held->batch != nullptr) {
    batch = *held->batch;
  } else {
    const auto bytes = spool_->ReadBatch(held->offset, held->number);
    if (!bytes.ok() || !batch.ParseFromString(*bytes)) {
      held->lost = true;
      return bytes.ok() ? absl::DataLossError("a spooled batch is damaged")
                        : bytes.status();
    }
  }
  in_flight_bytes_ += held->payload_bytes;
  ++next_to_send_;
  return batch;
}

bool Outbox::must_reopen() const {
  return !held_.empty() && held_.front().lost &&
         held_.front().number == next_to_send_;
}

absl::Status Outbox::Acknowledge(uint64_t next_batch) {
  if (next_batch > next_to_send_) {
    return absl::InvalidArgumentError(
        absl::StrCat("the server acknowledges all below batch ", next_batch,
                     ", only those below ", next_to_send_, " were sent"));
  }
  const bool spooled = spooled_ > 0;
  while (!held_.empty() && held_.front().number < next_batch) PopFront();
  if (spooled && spooled_ == 0) {
    spool_->Clear(next_batch);
  } else if (spooled) {
    spool_->SetAcknowledged(next_batch);
  }
  return absl::OkStatus();
}

void Outbox::PopFront() {
  Held& front = held_.front();
  if (front.batch != nullptr) {
    dependencies_.release(*front.batch);
    memory_bytes_ -= front.payload_bytes;
  } else {
    --spooled_;
  }
  in_flight_bytes_ -= front.payload_bytes;
  held_.pop_front();
}

void Outbox::PopLost() {
  while (!held_.empty() && held_.front().lost) PopFront();
}

absl::Status Outbox::OpenSpool() {
  if (spool_ != nullptr) return absl::OkStatus();
  auto opened = dependencies_.open_spool();
  if (!opened.ok()) return opened.status();
  spool_ = *std::move(opened);
  return absl::OkStatus();
}

absl::Status Outbox::SpoolOne(Held* held) {
  if (absl::Status status = OpenSpool(); !status.ok()) return status;
  const auto offset = spool_->Append(SpoolEntryKind::kBatch, held->number,
                                     held->batch->SerializeAsString());
  if (!offset.ok()) return offset.status();
  held->offset = *offset;
  dependencies_.release(*held->batch);
  held->batch.reset();
  memory_bytes_ -= held->payload_bytes;
  ++spooled_;
  return absl::OkStatus();
}

absl::Status Outbox::Spool(TimePoint now, std::chrono::milliseconds age) {
  while (spooled_ < held_.size() && now - held_[spooled_].added >= age) {
    absl::Status status = SpoolOne(&held_[spooled_]);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

void Outbox::RemoveSpool() {
  if (spool_ != nullptr) spool_->Remove();
  spool_.reset();
}

absl::Status Outbox::LeaveBehind(const v1::Goodbye& goodbye) {
  absl::Status status = Spool(TimePoint::max(), std::chrono::milliseconds(0));
  if (status.ok()) status = OpenSpool();
  if (!status.ok()) return status;
  return spool_
      ->Append(SpoolEntryKind::kGoodbye, next_number_,
               goodbye.SerializeAsString())
      .status();
}

void Outbox::Discard() {
  while (!held_.empty()) PopFront();
  next_to_send_ = next_number_;
  RemoveSpool();
}

std::string Outbox::spool_path() const {
  return spool_ == nullptr ? "" : spool_->path();
}

}  // namespace traincheck
