// Entries of the meta table that people name: a prefix, then the name.
//
// Threads: safe on any thread.
#ifndef TRAINCHECK_SERVER_STORE_NAMED_ENTRIES_H_
#define TRAINCHECK_SERVER_STORE_NAMED_ENTRIES_H_

#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "server/store/keys.h"
#include "server/store/store.h"

namespace traincheck::server {

// Reads the entries of one kind, protobuf messages, by name. DataLoss, naming
// the key, for one that does not parse.
template <typename Entry>
[[nodiscard]] absl::Status ReadEntries(const Store& store,
                                       const std::string& prefix,
                                       std::map<std::string, Entry>* entries) {
  absl::Status bad;
  const absl::Status scanned = store.Scan(
      Table::kMeta, prefix, PrefixEnd(prefix),
      [&](std::string_view key, std::string_view value) {
        Entry& entry = (*entries)[std::string(key.substr(prefix.size()))];
        if (entry.ParseFromArray(value.data(),
                                 static_cast<int>(value.size()))) {
          return true;
        }
        bad = absl::DataLossError(
            absl::StrCat("a stored decision does not parse: ",
                         absl::CEscape(std::string(key))));
        return false;
      });
  return scanned.ok() ? bad : scanned;
}

}  // namespace traincheck::server

#endif  // TRAINCHECK_SERVER_STORE_NAMED_ENTRIES_H_
