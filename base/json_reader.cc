#include "base/json_reader.h"

namespace traincheck {

namespace {

// Deeper than any document of ours, and far below what the recursion of copying
// and printing can stand.
constexpr int kMaxDepth = 32;

// One null for all absent values, so that getters can return references.
const nlohmann::json& Null() {
  static const auto* const kNull = new nlohmann::json;
  return *kNull;
}

}  // namespace

absl::StatusOr<nlohmann::json> ParseJsonUntrusted(const std::string& text) {
  bool deep = false;
  // False: the value is left out, so that nothing deep is ever built.
  const auto keep = [&deep](int depth, nlohmann::json::parse_event_t,
                            const nlohmann::json&) {
    deep |= depth > kMaxDepth;
    return !deep;
  };
  nlohmann::json json =
      nlohmann::json::parse(text, keep, /*allow_exceptions=*/false);
  if (deep) {
    return absl::InvalidArgumentError("document: nested deeper than " +
                                      std::to_string(kMaxDepth));
  }
  if (json.is_discarded()) {
    return absl::InvalidArgumentError("document: not valid JSON");
  }
  return json;
}

const nlohmann::json& Member(const nlohmann::json& json, const char* key) {
  if (!json.is_object()) return Null();
  const auto found = json.find(key);
  return found == json.end() ? Null() : *found;
}

// The path leads every message, so that a user finds the place in a long
// document.
JsonReader::JsonReader(const nlohmann::json& json, const std::string& path)
    : json_(json), path_(path) {
  if (!json_.is_object()) {
    status_ = absl::InvalidArgumentError(
        (path_.empty() ? std::string("document") : path_) + ": not an object");
  }
}

std::string JsonReader::PathOf(const std::string& key) const {
  return path_.empty() ? key : path_ + "." + key;
}

// Only the first error is kept: what follows may be caused by it.
void JsonReader::Fail(const std::string& key, const std::string& what) {
  if (status_.ok()) {
    status_ = absl::InvalidArgumentError(PathOf(key) + ": " + what);
  }
}

bool JsonReader::Has(const char* key) const {
  return json_.is_object() && json_.contains(key);
}

const nlohmann::json* JsonReader::Find(const char* key) {
  // Behind the first error nothing is looked up: what else is wrong may follow
  // from it.
  if (!status_.ok()) return nullptr;
  seen_.insert(key);
  const auto found = json_.find(key);
  if (found != json_.end()) return &*found;
  Fail(key, "missing");
  return nullptr;
}

std::string JsonReader::String(const char* key) {
  const nlohmann::json* value = Find(key);
  if (!value) return "";
  if (value->is_string()) return value->get<std::string>();
  Fail(key, "not a string");
  return "";
}

std::string JsonReader::OptionalString(const char* key) {
  return Has(key) ? String(key) : "";
}

uint64_t JsonReader::Unsigned(const char* key) {
  const nlohmann::json* value = Find(key);
  if (!value) return 0;
  if (value->is_number_unsigned()) return value->get<uint64_t>();
  // A parser makes what is not negative unsigned; code need not.
  if (value->is_number_integer() && value->get<int64_t>() >= 0) {
    return static_cast<uint64_t>(value->get<int64_t>());
  }
  Fail(key, "not an unsigned integer");
  return 0;
}

// The whole array is refused for one element that is not a string.
std::vector<std::string> JsonReader::Strings(const char* key) {
  std::vector<std::string> result;
  const nlohmann::json& array = Array(key);
  for (size_t i = 0; i < array.size(); ++i) {
    if (!array[i].is_string()) {
      Fail(key + ("[" + std::to_string(i) + "]"), "not a string");
      return {};
    }
    result.push_back(array[i].get<std::string>());
  }
  return result;
}

const nlohmann::json& JsonReader::Object(const char* key) {
  const nlohmann::json* value = Find(key);
  if (value && value->is_object()) return *value;
  if (value) Fail(key, "not an object");
  return Null();
}

const nlohmann::json& JsonReader::Array(const char* key) {
  const nlohmann::json* value = Find(key);
  if (value && value->is_array()) return *value;
  if (value) Fail(key, "not an array");
  return Null();
}

const nlohmann::json& JsonReader::Any(const char* key) {
  const nlohmann::json* value = Find(key);
  return value ? *value : Null();
}

absl::Status JsonReader::Finish() {
  if (!status_.ok()) return status_;
  // A key that is misspelt would otherwise be left out without a word.
  for (const auto& item : json_.items()) {
    if (!seen_.count(item.key())) {
      // Cut: an error must not be as long as a stranger's key.
      Fail(item.key().substr(0, 64), "unknown key");
      break;
    }
  }
  return status_;
}

}  // namespace traincheck
