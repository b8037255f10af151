#include "agent/relay/send_spool.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <filesystem>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "agent/relay/compressor.h"
#include "agent/relay/limits.h"
#include "agent/relay/orphan_delivery.h"
#include "agent/relay/spool_directory.h"
#include "agent/relay/wake.h"

namespace traincheck::agent {
namespace {

using std::chrono::steady_clock;

struct Outcome {
  const char* result = "delivered";
  std::string reason;
  int code = kSendDone;
};

std::string Message(const absl::Status& status) {
  return std::string(status.message());
}

// One JSON object a line, so that scripts can read the outcome of each file
// while the next one is sent.
void Print(const std::string& path, const absl::StatusOr<SpoolOwner>& owner,
           std::optional<size_t> batches, const Outcome& outcome) {
  nlohmann::json line = {{"file", path},       {"pid", nullptr},
                         {"host", nullptr},    {"run", nullptr},
                         {"batches", nullptr}, {"result", outcome.result},
                         {"reason", nullptr}};
  if (owner.ok()) {
    line["pid"] = owner->hello.process().pid();
    line["host"] = owner->hello.process().host();
    line["run"] = owner->hello.run();
  }
  if (batches.has_value()) line["batches"] = *batches;
  if (!outcome.reason.empty()) line["reason"] = outcome.reason;
  // Paths need not be UTF-8, which dump would throw for.
  std::cout << line.dump(-1, ' ', /*ensure_ascii=*/false,
                         nlohmann::json::error_handler_t::replace)
            << std::endl;
}

// What is said of a file that is not delivered; nothing: it is left.
std::optional<Outcome> NotLeft(const SpoolVerdict& verdict) {
  switch (verdict.fate) {
    case SpoolFate::kLeft:
      return std::nullopt;
    case SpoolFate::kInUse:
      return Outcome{"in_use", verdict.why, kSendDone};
    case SpoolFate::kGone:
      // Between the list of files and this one's turn.
      return Outcome{"gone",
                     "the relay that had it has delivered and deleted it",
                     kSendDone};
    case SpoolFate::kDamaged:
      return Outcome{"damaged", verdict.why, kSendBadInput};
    case SpoolFate::kUnreadable:
      return Outcome{"unreadable", verdict.why, kSendBadInput};
  }
  return std::nullopt;
}

// Delivers the files one after the other with the same code as a relay does for
// orphans.
class Sender {
 public:
  Sender(std::vector<SpoolPlace> places, std::shared_ptr<grpc::Channel> channel)
      // Nothing is spooled here, so there is no limit.
      : directory_(std::move(places), UINT64_MAX),
        wake_(std::make_shared<Wake>()),
        dependencies_{std::move(channel), [wake = wake_] { wake->Set(); },
                      &compressor_} {}

  int SendAll() {
    int worst = kSendDone;
    for (const std::string& path : directory_.Files()) {
      const absl::StatusOr<SpoolOwner> owner = ReadSpoolOwner(path);
      size_t batches = 0;
      const Outcome outcome = Send(path, owner, &batches);
      Print(path, owner, batches, outcome);
      // Codes rise by how much is left to do: a server that is away outweighs a
      // damaged file.
      worst = std::max(worst, outcome.code);
    }
    return worst;
  }

 private:
  // The verdict comes first, because taking a file over locks it and cuts off
  // its torn end.
  Outcome Send(const std::string& path, const absl::StatusOr<SpoolOwner>& owner,
               size_t* batches) {
    const SpoolVerdict verdict = JudgeSpool(path, owner, std::time(nullptr));
    if (std::optional<Outcome> outcome = NotLeft(verdict)) {
      if (verdict.fate == SpoolFate::kDamaged) SetDamagedAside(path);
      return *std::move(outcome);
    }
    absl::StatusOr<LoadedSpool> loaded = LoadSpool(&directory_, path);
    if (!loaded.ok()) return NotLoaded(loaded.status());
    *batches = loaded->batches.size();
    return Deliver(*std::move(loaded));
  }

  static Outcome NotLoaded(const absl::Status& status) {
    // Between the verdict and the lock a relay may have come back for the file,
    // or have delivered it.
    switch (status.code()) {
      case absl::StatusCode::kAborted:
        return {"in_use", Message(status), kSendDone};
      case absl::StatusCode::kNotFound:
        return *NotLeft({SpoolFate::kGone, ""});
      case absl::StatusCode::kDataLoss:
        return {"damaged", Message(status), kSendBadInput};
      default:
        return {"unreadable", Message(status), kSendBadInput};
    }
  }

  // The loop of a relay for a single file: it waits for news, and ends when the
  // file is delivered, refused or stuck.
  Outcome Deliver(LoadedSpool loaded) {
    // One file has waited for the server: the others would wait as long, each.
    if (!unreachable_.empty()) {
      return {"unreachable", unreachable_, kSendUnreachable};
    }
    const uint64_t damaged = loaded.damage.places;
    OrphanDelivery delivery(dependencies_, std::move(loaded),
                            steady_clock::now());
    while (!delivery.done()) {
      pollfd polled = {wake_->fd(), POLLIN, 0};
      if (poll(&polled, 1, static_cast<int>(kIdlePoll.count())) > 0) {
        wake_->Clear();
      }
      const auto now = steady_clock::now();
      delivery.Turn(now);
      if (delivery.refused()) {
        return {"refused", Message(delivery.last_error()), kSendRefused};
      }
      if (delivery.stuck(now)) {
        unreachable_ = Message(delivery.last_error());
        if (unreachable_.empty()) unreachable_ = "no answer";
        return {"unreachable", unreachable_, kSendUnreachable};
      }
    }
    // What could be read is delivered; the exit code still says that something
    // is missing.
    if (damaged == 0) return {};
    return {.reason = std::to_string(damaged) + " damaged places left out",
            .code = kSendBadInput};
  }

  SpoolDirectory directory_;
  Compressor compressor_;
  const std::shared_ptr<Wake> wake_;  // shared with calls that outlive us
  const OrphanDelivery::Dependencies dependencies_;
  std::string unreachable_;  // why, once it is known
};

// Where to look. False: the folder that was named does not exist, which has
// been reported.
bool FindPlaces(const RelayOptions& options, const std::string& folder,
                std::vector<SpoolPlace>* places) {
  *places = options.spool_places;
  if (folder.empty()) return true;
  std::error_code error;
  if (!std::filesystem::is_directory(folder, error)) {
    std::cerr << folder << ": no such folder\n";
    return false;
  }
  *places = SpoolPlacesIn(folder, geteuid());
  return true;
}

}  // namespace

int SendSpool(const RelayOptions& options, const std::string& folder) {
  std::vector<SpoolPlace> places;
  if (!FindPlaces(options, folder, &places)) return kSendBadInput;
  absl::StatusOr<std::shared_ptr<grpc::Channel>> channel =
      MakeRelayChannel(options.server, options.files);
  if (!channel.ok()) {
    std::cerr << Message(channel.status()) << "\n";
    return kSendBadInput;
  }
  return Sender(std::move(places), *std::move(channel)).SendAll();
}

int ListSpool(const RelayOptions& options, const std::string& folder) {
  std::vector<SpoolPlace> places;
  if (!FindPlaces(options, folder, &places)) return kSendBadInput;
  int worst = kSendDone;
  for (const std::string& path :
       SpoolDirectory(std::move(places), UINT64_MAX).Files()) {
    const absl::StatusOr<SpoolOwner> owner = ReadSpoolOwner(path);
    const Outcome outcome =
        NotLeft(JudgeSpool(path, owner, std::time(nullptr)))
            .value_or(Outcome{.result = "left", .reason = ""});
    Print(path, owner, std::nullopt, outcome);
    worst = std::max(worst, outcome.code);
  }
  return worst;
}

}  // namespace traincheck::agent
