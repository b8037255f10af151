#include <string_view>
#include <unordered_map>
#include <utility>

#include "absl/strings/numbers.h"
#include "server/runs/registry.h"

// What the registry reads when it begins.
namespace traincheck::server {

absl::StatusOr<std::unique_ptr<Registry>> Registry::Load(Store* store,
                                                         Options options) {
  std::unique_ptr<Registry> registry(new Registry(store, std::move(options)));
  absl::MutexLock lock(&registry->mutex_);
  // Runs before processes, whose keys name a run by its number alone.
  if (absl::Status status = registry->LoadRuns(); !status.ok()) return status;
  if (absl::Status status = registry->LoadProcesses(); !status.ok()) {
    return status;
  }
  return registry;
}

absl::Status Registry::LoadRuns() {
  absl::StatusOr<std::optional<std::string>> next =
      store_.Get(Table::kMeta, kNextRunKey);
  if (!next.ok()) return next.status();
  // To begin at 1 again would put a new run's batches under the keys of an old
  // one, so the daemon does not start.
  if (next->has_value() && !absl::SimpleAtoi(**next, &next_run_)) {
    return absl::DataLossError("meta key next_run is not a number");
  }
  absl::Status bad;
  const absl::Status scanned = store_.Scan(
      Table::kRuns, "r", PrefixEnd("r"),
      [&](std::string_view, std::string_view value)
          ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
            stored::Run run;
            if (!run.ParseFromArray(value.data(), value.size())) {
              bad = absl::DataLossError("a stored run does not parse");
              return false;
            }
            RunState& state = runs_[run.id()];
            // Only runs that go on are read into memory: a store may hold a
            // hundred thousand that have ended.
            state.shelved = run.ended_unix_ns() != 0;
            if (!state.shelved) not_ended_.insert(run.id());
            state.run = std::move(run);
            return true;
          });
  return scanned.ok() ? bad : scanned;
}

absl::Status Registry::LoadProcesses() {
  const absl::Time now = options_.now();
  std::unordered_map<uint64_t, RunState*> by_number;
  for (auto& [id, run] : runs_) by_number[run.run.number()] = &run;
  absl::Status bad;
  // One scan: a scan of each run would read and unpack the same blocks for each
  // of a hundred thousand.
  const absl::Status scanned = store_.Scan(
      Table::kRuns, "p", PrefixEnd("p"),
      [&](std::string_view key, std::string_view value)
          ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
            uint64_t number = 0;
            stored::Process books;
            if (!ParseProcessKey(key, &number) ||
                !books.ParseFromArray(value.data(), value.size())) {
              bad = absl::DataLossError("a stored process does not parse");
              return false;
            }
            const auto run = by_number.find(number);
            // Its run was deleted while the disk took no writes, and a write
            // that was queued before came behind that (RunCleaner::Delete).
            if (run == by_number.end()) return true;
            // Shown in the status, so that a restart does not hide that batches
            // were bad.
            quarantined_batches_ += books.quarantined_batches();
            const uint64_t bytes = BytesOf(books);
            use_of_owners_.Add(run->second->run.owner(), bytes);
            // Its bytes are kept, since retention and the limits of owners ask
            // for them of every run.
            if (run->second->shelved) {
              run->second->shelved_bytes += bytes;
            } else {
              run->second->AddStored(std::move(books), now);
            }
            return true;
          });
  return scanned.ok() ? bad : scanned;
}

}  // namespace traincheck::server
