#include "agent/ring/ring_for_testing.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <new>

#include "proto/record_writer.h"

namespace traincheck::agent {

RingForTesting::RingForTesting(uint32_t ring, uint64_t capacity_bytes)
    : fd_(memfd_create("ring", MFD_CLOEXEC | MFD_ALLOW_SEALING)) {
  const size_t bytes = kRingHeaderBytes + capacity_bytes;
  EXPECT_EQ(ftruncate(fd_, static_cast<off_t>(bytes)), 0);
  void* address =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
  EXPECT_NE(address, MAP_FAILED);
  header_ = new (address) RingHeader{};
  header_->magic = kRingMagic;
  header_->version = kRingVersion;
  header_->ring = ring;
  header_->capacity_bytes = capacity_bytes;
  header_->pid = static_cast<uint32_t>(getpid());
  header_->tid = 1000 + ring;
}

RingForTesting::~RingForTesting() {
  munmap(header_, kRingHeaderBytes + header_->capacity_bytes);
  close(fd_);
}

RingHandover RingForTesting::handover() const {
  return {header_->magic,          header_->version, header_->ring,
          header_->capacity_bytes, header_->pid,     header_->tid};
}

std::unique_ptr<RingReader> RingForTesting::Map() const {
  std::string error;
  auto reader = RingReader::Map(fd_, handover(), &error);
  EXPECT_NE(reader, nullptr) << error;
  return reader;
}

char* RingForTesting::At(uint64_t position) {
  return reinterpret_cast<char*>(header_) + kRingHeaderBytes +
         position % header_->capacity_bytes;
}

bool RingForTesting::Append(std::string_view record) {
  const uint64_t head = header_->head.load();
  const uint64_t capacity = header_->capacity_bytes;
  const uint64_t left = capacity - head % capacity;
  const uint64_t padding = record.size() > left ? left : 0;
  header_->offered_records.fetch_add(1);
  if (head + padding + record.size() - header_->tail.load() > capacity) {
    header_->dropped_records.fetch_add(1);
    return false;
  }
  if (padding > 0) {
    const std::string bytes =
        RawRecord(static_cast<uint8_t>(RecordType::kPadding),
                  static_cast<uint16_t>(padding));
    std::memcpy(At(head), bytes.data(), bytes.size());
  }
  std::memcpy(At(head + padding), record.data(), record.size());
  header_->head.store(head + padding + record.size());
  header_->committed_records.fetch_add(1);
  return true;
}

void RingForTesting::AppendRaw(std::string_view bytes) {
  const uint64_t head = header_->head.load();
  for (size_t i = 0; i < bytes.size(); ++i) *At(head + i) = bytes[i];
  header_->head.store(head + bytes.size());
}

bool RingForTesting::AppendMark(uint64_t value) {
  return Append(MarkBytes(value));
}

std::string RawRecord(uint8_t type, uint16_t size, uint8_t flags) {
  std::string bytes(size, '\0');
  const RecordHeader header = {size, type, flags, 0};
  std::memcpy(bytes.data(), &header, sizeof header);
  return bytes;
}

std::string MarkBytes(uint64_t value, uint8_t kind) {
  MarkRecord mark = {};
  mark.header = {sizeof mark, static_cast<uint8_t>(RecordType::kMark), kind, 0};
  mark.value = value;
  return std::string(reinterpret_cast<const char*>(&mark), sizeof mark);
}

std::string StringDefBytes(uint32_t id, size_t length) {
  alignas(8) char buffer[2048];
  FieldWriter out(buffer, sizeof buffer, DefinitionRecord{{}, id, 0});
  out.Bytes(Field::kText, std::string(length, 'x'));
  const size_t size = out.Finish(RecordType::kStringDef, 0, 0);
  return std::string(buffer, size);
}

}  // namespace traincheck::agent
