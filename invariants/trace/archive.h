// Saves and restores the state of objects, for snapshots of a check. A class
// lists its fields once, for both directions:
//
//   void Fields(Archive& archive) { archive(steps_, names_, open_); }
//
// Numbers are varints, texts and lists carry their length. Nothing in the
// bytes names a field: whoever changes a list of fields raises kFormat of
// checker/snapshot.cc, so that older snapshots are left aside.
//
// Reading trusts nothing: past the first error every value is the default,
// lists are empty and ok() is false; memory stays in proportion to the bytes.
//
// Threads: one object, one thread at a time.
#ifndef TRAINCHECK_INVARIANTS_TRACE_ARCHIVE_H_
#define TRAINCHECK_INVARIANTS_TRACE_ARCHIVE_H_

#include <algorithm>
#include <any>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace traincheck {

class Archive {
 public:
  // Writes.
  Archive() = default;
  // Reads. `from` must outlive the archive.
  explicit Archive(std::string_view from) : reading_(true), from_(from) {}
  Archive(const Archive&) = delete;
  Archive& operator=(const Archive&) = delete;

  bool reading() const { return reading_; }
  bool ok() const { return error_.empty(); }
  // What was wrong first.
  const std::string& error() const { return error_; }
  // Was everything read?
  bool at_end() const { return from_.empty(); }
  // What was written.
  std::string TakeBytes() { return std::move(to_); }

  // The rest is not worth reading.
  void Fail(const std::string& why) {
    if (error_.empty()) error_ = why;
    from_ = {};
  }

  template <typename... T>
  void operator()(T&... fields) {
    (One(&fields), ...);
  }

  // A table that objects which follow point into and do not save themselves:
  // the last one that was set, if it is of this type, else null.
  template <typename T>
  const T* table() const {
    const auto* const table = std::any_cast<const T*>(&table_);
    return table == nullptr ? nullptr : *table;
  }
  // It must outlive the reading of these objects.
  template <typename T>
  void set_table(const T* table) {
    table_ = table;
  }

 private:
  template <typename T, typename = void>
  struct IsMap : std::false_type {};
  template <typename T>
  struct IsMap<T, std::void_t<typename T::mapped_type>> : std::true_type {};
  template <typename T, typename = void>
  struct IsSet : std::false_type {};
  template <typename T>
  struct IsSet<T, std::void_t<typename T::key_type>> : std::true_type {};

  template <typename T>
  void One(T* value) {
    if constexpr (std::is_floating_point_v<T>) {
      Raw(value, sizeof(T));
    } else if constexpr (std::is_enum_v<T>) {
      auto number = static_cast<std::underlying_type_t<T>>(*value);
      One(&number);
      *value = static_cast<T>(number);
    } else if constexpr (std::is_integral_v<T>) {
      Integer(value);
    } else if constexpr (IsMap<T>::value || IsSet<T>::value) {
      Sorted(value);
    } else {
      value->Fields(*this);
    }
  }
  void One(std::string* text);
  template <typename T>
  void One(std::optional<T>* value) {
    bool is_there = value->has_value();
    One(&is_there);
    if (reading_) *value = is_there ? std::optional<T>(T()) : std::nullopt;
    if (value->has_value()) One(&**value);
  }
  template <typename A, typename B>
  void One(std::pair<A, B>* both) {
    (*this)(both->first, both->second);
  }
  template <typename... T>
  void One(std::tuple<T...>* all) {
    std::apply(*this, *all);
  }
  template <typename T>
  void One(std::vector<T>* list) {
    const size_t size = Size(list->size());
    if (reading_) list->clear();
    for (size_t i = 0; i < size && ok(); ++i) {
      if (reading_) list->emplace_back();
      One(&(*list)[i]);
    }
  }

  // Small negative numbers are small too.
  template <typename T>
  void Integer(T* value) {
    uint64_t number;
    if constexpr (std::is_signed_v<T>) {
      const auto wide = static_cast<int64_t>(*value);
      number =
          static_cast<uint64_t>(wide) << 1 ^ static_cast<uint64_t>(wide >> 63);
      Varint(&number);
      *value = static_cast<T>(number >> 1 ^ (0 - (number & 1)));
    } else {
      number = *value;
      Varint(&number);
      *value = static_cast<T>(number);
    }
  }

  // Entries in the order of their keys, whatever the container.
  template <typename T>
  void Sorted(T* container) {
    const size_t size = Size(container->size());
    if (reading_) return ReadEntries(size, container);
    std::vector<typename T::value_type*> entries;
    entries.reserve(size);
    for (const auto& entry : *container) {
      entries.push_back(const_cast<typename T::value_type*>(&entry));
    }
    std::stable_sort(entries.begin(), entries.end(), [](auto* a, auto* b) {
      return KeyOf<T>(*a) < KeyOf<T>(*b);
    });
    for (auto* entry : entries) WriteEntry<T>(entry);
  }
  template <typename T>
  static const typename T::key_type& KeyOf(const typename T::value_type& e) {
    if constexpr (IsMap<T>::value) {
      return e.first;
    } else {
      return e;
    }
  }
  // Writing changes nothing of what it is given.
  template <typename T>
  void WriteEntry(typename T::value_type* entry) {
    One(const_cast<typename T::key_type*>(&KeyOf<T>(*entry)));
    if constexpr (IsMap<T>::value) One(&entry->second);
  }
  template <typename T>
  void ReadEntries(size_t size, T* container) {
    container->clear();
    for (size_t i = 0; i < size && ok(); ++i) {
      typename T::key_type key{};
      One(&key);
      if constexpr (IsMap<T>::value) {
        typename T::mapped_type value{};
        One(&value);
        if (ok()) container->emplace(std::move(key), std::move(value));
      } else if (ok()) {
        container->insert(std::move(key));
      }
    }
  }

  void Varint(uint64_t* number);
  void Raw(void* value, size_t size);
  // Elements that follow; each takes a byte at least.
  size_t Size(size_t size);

  const bool reading_ = false;
  std::string_view from_;  // what is left
  std::string to_;
  std::string error_;
  std::any table_;
};

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_TRACE_ARCHIVE_H_
