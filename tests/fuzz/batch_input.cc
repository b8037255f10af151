#include "tests/fuzz/batch_input.h"

#include <xxhash.h>

#include <cstdint>

#include "proto/record_format.h"

namespace traincheck {
namespace {

constexpr int kMaxSlices = 4;

void AppendLittleEndian(uint64_t value, int bytes, std::string* out) {
  for (int i = 0; i < bytes; ++i) {
    out->push_back(static_cast<char>(value >> (8 * i)));
  }
}

}  // namespace

v1::Batch BatchOf(FuzzInput* input) {
  v1::Batch batch;
  batch.set_number(input->Byte());
  std::string plain;
  const int slices = input->Byte() % kMaxSlices + 1;
  for (int i = 0; i < slices; ++i) {
    v1::Slice* slice = batch.add_slices();
    slice->set_ring(input->Byte());
    slice->set_from(uint64_t{input->Byte()} * kRecordAlignment);
    slice->set_records(input->Byte());
    std::string bytes = input->Bytes(input->Number<uint16_t>());
    bytes.resize(AlignRecord(bytes.size()));
    slice->set_to(slice->from() + bytes.size());
    plain += bytes;
  }
  plain.resize(std::min<size_t>(plain.size(), 100'000));
  batch.set_plain_bytes(plain.size());
  batch.set_payload(ZstdFrame(plain));
  return batch;
}

std::string ZstdFrame(const std::string& plain) {
  std::string frame;
  AppendLittleEndian(0xFD2FB528, 4, &frame);
  // Content size in 4 bytes, single segment, content checksum.
  AppendLittleEndian(0x80 | 0x20 | 0x04, 1, &frame);
  AppendLittleEndian(plain.size(), 4, &frame);
  // The last block, raw.
  AppendLittleEndian(plain.size() << 3 | 1, 3, &frame);
  frame += plain;
  AppendLittleEndian(XXH64(plain.data(), plain.size(), 0), 4, &frame);
  return frame;
}

}  // namespace traincheck
