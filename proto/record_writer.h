// Encodes one record into a caller's buffer: no allocation, no failure other
// than "does not fit", which Finish reports as size 0.
//
//   alignas(8) char buffer[512];
//   FieldWriter out(buffer, sizeof buffer, CallBeginRecord{...});
//   out.Unsigned(Field::kSelfObject, 7);
//   size_t size = out.Finish(RecordType::kCallBegin, flags, delta_us);
//
// Threads: one object, one thread.
#ifndef TRAINCHECK_PROTO_RECORD_WRITER_H_
#define TRAINCHECK_PROTO_RECORD_WRITER_H_

#include <cstdint>
#include <cstring>
#include <string_view>

#include "proto/record_format.h"
#include "proto/varint.h"

namespace traincheck {

class FieldWriter {
 public:
  // `fixed` is the record's fixed part; its header is filled in by Finish.
  // REQUIRES: capacity >= sizeof(fixed), buffer 8-byte aligned.
  template <typename Fixed>
  FieldWriter(char* buffer, size_t capacity, const Fixed& fixed)
      : begin_(buffer),
        at_(buffer + sizeof(Fixed)),
        end_(buffer +
             (capacity < kMaxRecordBytes ? capacity : kMaxRecordBytes)) {
    std::memcpy(buffer, &fixed, sizeof(Fixed));
  }

  void Unsigned(Field field, uint64_t value) {
    Tag(field, FieldKind::kUnsigned);
    Varint(value);
  }

  void Signed(Field field, int64_t value) {
    Tag(field, FieldKind::kSigned);
    Varint((static_cast<uint64_t>(value) << 1) ^
           static_cast<uint64_t>(value >> 63));
  }

  void Double(Field field, double value) {
    Tag(field, FieldKind::kDouble);
    Raw(&value, sizeof value);
  }

  // 8 bytes as they are.
  void Word(Field field, uint64_t word) {
    Tag(field, FieldKind::kDouble);
    Raw(&word, sizeof word);
  }

  // Cut at kMaxStringBytes.
  void Bytes(Field field, std::string_view bytes) {
    bytes = bytes.substr(0, kMaxStringBytes);
    Tag(field, FieldKind::kBytes);
    Varint(bytes.size());
    Raw(bytes.data(), bytes.size());
  }

  bool fits() const { return fits_; }
  // Where the next field will stand, and back to there: the fields since then
  // are taken back, whether they fitted or not.
  size_t position() const { return static_cast<size_t>(at_ - begin_); }
  void Rewind(size_t position) {
    at_ = begin_ + position;
    fits_ = true;
  }

  // Size of the whole record, or 0 if it did not fit.
  size_t Finish(RecordType type, uint8_t flags, uint32_t delta_us) {
    const size_t used = static_cast<size_t>(at_ - begin_);
    const size_t size = AlignRecord(used);
    if (!fits_ || size > static_cast<size_t>(end_ - begin_)) return 0;
    std::memset(at_, 0, size - used);
    const RecordHeader header = {static_cast<uint16_t>(size),
                                 static_cast<uint8_t>(type), flags, delta_us};
    std::memcpy(begin_, &header, sizeof header);
    return size;
  }

 private:
  void Tag(Field field, FieldKind kind) {
    Varint(static_cast<uint64_t>(field) << 2 | static_cast<uint64_t>(kind));
  }

  void Varint(uint64_t value) {
    if (end_ - at_ < kMaxVarintBytes) {
      fits_ = false;
      return;
    }
    at_ = PutVarint(value, at_);
  }

  void Raw(const void* from, size_t size) {
    if (static_cast<size_t>(end_ - at_) < size) {
      fits_ = false;
      return;
    }
    std::memcpy(at_, from, size);
    at_ += size;
  }

  char* const begin_;
  char* at_;
  char* const end_;
  bool fits_ = true;
};

}  // namespace traincheck

#endif  // TRAINCHECK_PROTO_RECORD_WRITER_H_
