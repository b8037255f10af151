// Decodes records in place and trusts nothing: every size, type-specific
// minimum and varint is checked against the bytes that are there. A reader
// stops at the first malformed record and says what is wrong and where.
//
//   RecordReader records(bytes);
//   while (records.Next()) {
//     if (const auto* call = records.As<CallBeginRecord>()) ...
//     FieldReader fields = records.Fields();
//     while (fields.Next()) switch (fields.field()) ...
//     if (!fields.ok()) ...
//   }
//   if (!records.ok()) Quarantine(records.error());
//
// Threads: one object, one thread. The bytes must outlive the reader.
#ifndef TRAINCHECK_PROTO_RECORD_READER_H_
#define TRAINCHECK_PROTO_RECORD_READER_H_

#include <bit>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "proto/record_format.h"

namespace traincheck {

// Bytes of the fixed part of a record type, header included; 0 for types that
// this build does not know.
size_t FixedBytes(uint8_t type);

// The fields behind a record's fixed part.
class FieldReader {
 public:
  explicit FieldReader(std::string_view bytes) : bytes_(bytes) {}

  // Moves to the next field. False at the end or on malformed bytes: see ok().
  bool Next();

  Field field() const { return field_; }
  FieldKind kind() const { return kind_; }
  // The value as the kind says; other accessors give 0 or "".
  uint64_t unsigned_value() const { return unsigned_; }
  int64_t signed_value() const {
    return static_cast<int64_t>(unsigned_ >> 1) ^
           -static_cast<int64_t>(unsigned_ & 1);
  }
  double double_value() const { return double_; }
  // The bytes of a double.
  uint64_t word_value() const { return std::bit_cast<uint64_t>(double_); }
  std::string_view bytes_value() const { return value_; }
  // The bytes of the fields that follow.
  std::string_view rest() const { return bytes_; }
  bool ok() const { return ok_; }

 private:
  std::string_view bytes_;
  Field field_ = Field::kEnd;
  FieldKind kind_ = FieldKind::kUnsigned;
  uint64_t unsigned_ = 0;
  double double_ = 0;
  std::string_view value_;
  bool ok_ = true;
};

class RecordReader {
 public:
  // REQUIRES: bytes.data() is 8-byte aligned (a std::string's buffer is).
  explicit RecordReader(std::string_view bytes) : bytes_(bytes) {}

  // Moves to the next record, padding included. False at the end or at a
  // malformed record: see ok().
  bool Next();

  const RecordHeader& header() const {
    return *reinterpret_cast<const RecordHeader*>(record_.data());
  }
  RecordType type() const { return static_cast<RecordType>(header().type); }
  // Is the type one that this build knows?
  bool known() const { return FixedBytes(header().type) != 0; }
  // The record as T. REQUIRES: type() is T's type.
  template <typename T>
  const T& Get() const {
    return *reinterpret_cast<const T*>(record_.data());
  }
  // Whole record, header included.
  std::string_view bytes() const { return record_; }
  // Fields of records that have them; the digests of State, RowDigests and
  // DeferredDigests records are no fields.
  FieldReader Fields() const;
  // Digest of data or gradient of a kState record. REQUIRES: the content bit
  // is set.
  uint64_t data_digest() const;
  uint64_t grad_digest() const;
  // The number of the first digest that a kState record defers. REQUIRES:
  // IsDeferred.
  uint64_t deferred_number() const;
  // Those of a kDeferredDigests record.
  std::vector<DeferredDigest> deferred_digests() const;
  // Those of a kRowDigests record.
  std::vector<uint64_t> row_digests() const;

  // Offset of the current record.
  size_t offset() const { return offset_; }
  bool ok() const { return error_.empty(); }
  // "record at byte 40: size 12 is not divisible by 8".
  const std::string& error() const { return error_; }

 private:
  bool Fail(const std::string& what);

  std::string_view bytes_;
  std::string_view record_;
  size_t offset_ = 0;
  size_t next_ = 0;
  std::string error_;
};

}  // namespace traincheck

#endif  // TRAINCHECK_PROTO_RECORD_READER_H_
