#include "proto/record_reader.h"

#include <bit>
#include <cstring>

#include "proto/varint.h"

namespace traincheck {
namespace {

// Digests that stand in the record itself.
size_t DigestsOf(const StateRecord& state) {
  return static_cast<size_t>(std::popcount(
      static_cast<unsigned>(state.content & (kHasData | kHasGrad))));
}

// The words behind a record's fixed part. REQUIRES: the record has its fixed
// part, which RecordReader::Next has checked. A rest shorter than a word is
// left out.
template <typename Word>
std::vector<Word> WordsBehind(std::string_view record, size_t fixed) {
  const std::string_view bytes = record.substr(fixed);
  std::vector<Word> words(bytes.size() / sizeof(Word));
  // memcpy must not get the null pointer that an empty vector may have.
  if (words.empty()) return words;
  std::memcpy(words.data(), bytes.data(), words.size() * sizeof(Word));
  return words;
}

}  // namespace

// The least size of a record of this type; 0: this build does not know the
// type.
size_t FixedBytes(uint8_t type) {
  switch (static_cast<RecordType>(type)) {
    case RecordType::kPadding:
      return sizeof(RecordHeader);
    case RecordType::kClockSync:
      return sizeof(ClockSyncRecord);
    case RecordType::kCallBegin:
      return sizeof(CallBeginRecord);
    case RecordType::kCallEnd:
    case RecordType::kCallRaised:
      return sizeof(CallEndRecord);
    case RecordType::kState:
      return sizeof(StateRecord);
    case RecordType::kStatistics:
      return sizeof(StatisticsRecord);
    case RecordType::kRowDigests:
      return sizeof(RowDigestsRecord);
    case RecordType::kDeferredDigests:
      return sizeof(DeferredDigestsRecord);
    case RecordType::kScalar:
      return sizeof(ScalarRecord);
    case RecordType::kContextEnter:
    case RecordType::kContextExit:
      return sizeof(ContextRecord);
    case RecordType::kMark:
      return sizeof(MarkRecord);
    case RecordType::kPlace:
      return sizeof(PlaceRecord);
    case RecordType::kDrops:
      return sizeof(DropsRecord);
    case RecordType::kCheckpointEntry:
      return sizeof(CheckpointEntryRecord);
    case RecordType::kCollective:
      return sizeof(CollectiveRecord);
    default:
      return IsDefinition(type) ? sizeof(DefinitionRecord) : 0;
  }
}

// The bytes come from a training process or from a store and may be damaged:
// each size is compared with what is left before it is used.
bool FieldReader::Next() {
  // A zero ends the fields: what follows fills the record up to its size.
  if (!ok_ || bytes_.empty() || bytes_[0] == '\0') return false;
  // A tag is the number of the field and, in its two lowest bits, the kind of
  // the value.
  uint64_t tag = 0;
  // A larger number would be cut to that of another field.
  ok_ = TakeVarint(&bytes_, &tag) && (tag >> 2) <= UINT32_MAX;
  if (!ok_) return false;
  field_ = static_cast<Field>(tag >> 2);
  kind_ = static_cast<FieldKind>(tag & 3);
  unsigned_ = 0;
  double_ = 0;
  value_ = {};
  switch (kind_) {
    case FieldKind::kUnsigned:
    case FieldKind::kSigned:
      ok_ = TakeVarint(&bytes_, &unsigned_);
      break;
    case FieldKind::kDouble:
      ok_ = bytes_.size() >= sizeof double_;
      if (!ok_) break;
      std::memcpy(&double_, bytes_.data(), sizeof double_);
      bytes_.remove_prefix(sizeof double_);
      break;
    case FieldKind::kBytes: {
      uint64_t size = 0;
      ok_ = TakeVarint(&bytes_, &size) && size <= bytes_.size();
      if (!ok_) break;
      value_ = bytes_.substr(0, size);
      bytes_.remove_prefix(size);
      break;
    }
  }
  return ok_;
}

bool RecordReader::Fail(const std::string& what) {
  error_ = "record at byte " + std::to_string(next_) + ": " + what;
  return false;
}

// Checks everything that later getters rely on: sizes, alignment, and the words
// of a State.
bool RecordReader::Next() {
  if (!ok() || next_ == bytes_.size()) return false;
  const size_t left = bytes_.size() - next_;
  if (left < sizeof(RecordHeader)) {
    return Fail(std::to_string(left) + " bytes left, a header has 8");
  }
  RecordHeader header;
  std::memcpy(&header, bytes_.data() + next_, sizeof header);
  const size_t size = header.size_bytes;
  if (size < sizeof(RecordHeader) || size % kRecordAlignment != 0) {
    return Fail("size " + std::to_string(size) +
                " is below 8 or not divisible by 8");
  }
  if (size > left) {
    return Fail("size " + std::to_string(size) + " is more than the " +
                std::to_string(left) + " bytes left");
  }
  // A type that this build does not know has no least size: it is passed over
  // as a whole.
  size_t least = FixedBytes(header.type);
  if (static_cast<RecordType>(header.type) == RecordType::kInvalid) {
    return Fail("type 0 is invalid");
  }
  // The bits of a State say how many digests follow. Once that is checked here,
  // those who read them need no check.
  if (size >= least &&
      static_cast<RecordType>(header.type) == RecordType::kState) {
    StateRecord state;
    std::memcpy(&state, bytes_.data() + next_, sizeof state);
    if (state.point > kMaxStatePoint) {
      return Fail("state point " + std::to_string(state.point) +
                  " is not one of this format");
    }
    least += 8 * (DigestsOf(state) + (IsDeferred(state) ? 1 : 0));
  }
  if (size < least) {
    return Fail("size " + std::to_string(size) + " is below the " +
                std::to_string(least) + " bytes of type " +
                std::to_string(header.type));
  }
  offset_ = next_;
  record_ = bytes_.substr(next_, size);
  next_ += size;
  return true;
}

// States and digests have words behind their fixed part and no fields.
FieldReader RecordReader::Fields() const {
  const size_t fixed = FixedBytes(header().type);
  const bool has_fields = fixed != 0 && type() != RecordType::kPadding &&
                          type() != RecordType::kState &&
                          type() != RecordType::kRowDigests &&
                          type() != RecordType::kDeferredDigests;
  return FieldReader(has_fields ? record_.substr(fixed) : std::string_view());
}

uint64_t RecordReader::data_digest() const {
  uint64_t digest;
  std::memcpy(&digest, record_.data() + sizeof(StateRecord), sizeof digest);
  return digest;
}

uint64_t RecordReader::grad_digest() const {
  // The data's digest comes first, where it is there.
  const bool data_first = (Get<StateRecord>().content & kHasData) != 0;
  uint64_t digest;
  std::memcpy(&digest,
              record_.data() + sizeof(StateRecord) + (data_first ? 8 : 0),
              sizeof digest);
  return digest;
}

uint64_t RecordReader::deferred_number() const {
  uint64_t number;
  std::memcpy(
      &number,
      record_.data() + sizeof(StateRecord) + 8 * DigestsOf(Get<StateRecord>()),
      sizeof number);
  return number;
}

std::vector<DeferredDigest> RecordReader::deferred_digests() const {
  return WordsBehind<DeferredDigest>(record_, sizeof(DeferredDigestsRecord));
}

std::vector<uint64_t> RecordReader::row_digests() const {
  return WordsBehind<uint64_t>(record_, sizeof(RowDigestsRecord));
}

}  // namespace traincheck
