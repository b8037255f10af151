// Strict reading of JSON objects: every error names the path of what is
// wrong, and a key that nobody asked for is an error.
//
//   JsonReader object(json, "invariants[3]");
//   const std::string relation = object.String("relation");
//   if (absl::Status status = object.Finish(); !status.ok()) return status;
//
// After the first error, getters give empty values; Finish tells it.
//
// Threads: one object, one thread.
#ifndef TRAINCHECK_BASE_JSON_READER_H_
#define TRAINCHECK_BASE_JSON_READER_H_

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

namespace traincheck {

// InvalidArgument if the text is no JSON or nests deeper than any document of
// ours: values are copied and printed by recursion, which would end the
// process.
[[nodiscard]] absl::StatusOr<nlohmann::json> ParseJsonUntrusted(
    const std::string& text);

// Null (the JSON value) where `json` is not an object or has no such key.
const nlohmann::json& Member(const nlohmann::json& json, const char* key);

class JsonReader {
 public:
  // `json` must outlive the reader. `path` may be "" (the whole document).
  JsonReader(const nlohmann::json& json, const std::string& path);

  bool Has(const char* key) const;
  std::string String(const char* key);
  // "" where the key is absent.
  std::string OptionalString(const char* key);
  uint64_t Unsigned(const char* key);
  std::vector<std::string> Strings(const char* key);
  // Null (the JSON value) after an error.
  const nlohmann::json& Object(const char* key);
  const nlohmann::json& Array(const char* key);
  const nlohmann::json& Any(const char* key);

  std::string PathOf(const std::string& key) const;
  void Fail(const std::string& key, const std::string& what);
  // Takes over the error of a reader of a part.
  void Adopt(const absl::Status& status) {
    if (status_.ok()) status_ = status;
  }
  // The first error, unknown keys included.
  [[nodiscard]] absl::Status Finish();
  // What was read, unless there was an error.
  template <typename T>
  [[nodiscard]] absl::StatusOr<T> Finish(T read) {
    if (absl::Status status = Finish(); !status.ok()) return status;
    return read;
  }

 private:
  const nlohmann::json* Find(const char* key);

  const nlohmann::json& json_;
  const std::string path_;
  std::set<std::string> seen_;
  absl::Status status_;
};

}  // namespace traincheck

#endif  // TRAINCHECK_BASE_JSON_READER_H_
