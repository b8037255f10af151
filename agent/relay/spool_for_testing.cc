#include "agent/relay/spool_for_testing.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>

#include "agent/relay/spool_file.h"

namespace traincheck::agent {
namespace {

// Moves sizeof(T) bytes from the front of `bytes`.
template <typename T>
bool Cut(std::string_view* bytes, T* to) {
  if (bytes->size() < sizeof(T)) return false;
  std::memcpy(to, bytes->data(), sizeof(T));
  bytes->remove_prefix(sizeof(T));
  return true;
}

// False: no whole entry is left.
bool CutEntry(std::string_view* bytes, SpoolContents* contents) {
  SpoolEntryHeader header;
  if (!Cut(bytes, &header) || header.payload_bytes > bytes->size()) {
    return false;
  }
  const std::string payload(bytes->substr(0, header.payload_bytes));
  bytes->remove_prefix(payload.size());
  if (SpoolEntryHash(header, payload) != header.hash) return false;
  if (header.kind == static_cast<uint32_t>(SpoolEntryKind::kGoodbye)) {
    return contents->goodbye.emplace().ParseFromString(payload);
  }
  if (header.kind == static_cast<uint32_t>(SpoolEntryKind::kDefinitions)) {
    return contents->definitions.emplace_back().ParseFromString(payload);
  }
  return contents->batches.emplace_back().ParseFromString(payload);
}

}  // namespace

absl::StatusOr<SpoolContents> ReadSpool(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  const std::string all = text.str();
  std::string_view bytes = all;
  SpoolHeader header;
  if (!Cut(&bytes, &header) || header.magic != kSpoolMagic ||
      header.version != kSpoolVersion || header.hello_bytes > bytes.size()) {
    return absl::DataLossError(path + ": no spool header");
  }
  const std::string hello(bytes.substr(0, header.hello_bytes));
  bytes.remove_prefix(hello.size());
  SpoolContents contents;
  contents.acknowledged = header.acknowledged;
  if (SpoolHelloHash(hello, header.pid_namespace) != header.hello_hash ||
      !contents.hello.ParseFromString(hello)) {
    return absl::DataLossError(path + ": damaged hello");
  }
  while (!bytes.empty() && !contents.torn) {
    contents.torn = !CutEntry(&bytes, &contents);
  }
  return contents;
}

std::vector<std::string> SpoolFiles(const std::string& folder) {
  std::vector<std::string> paths;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    if (entry.path().extension() == ".spool") paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

}  // namespace traincheck::agent
