#include "agent/relay/send_spool.h"

#include <poll.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <filesystem>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

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

class Sender {
 public:
  Sender(const std::string& folder, std::shared_ptr<grpc::Channel> channel)
      // Nothing is spooled here, so there is no limit.
      : directory_(folder, folder, UINT64_MAX),
        wake_(std::make_shared<Wake>()),
        dependencies_{std::move(channel), [wake = wake_] { wake->Set(); },
                      &compressor_} {}

  int SendAll() {
    int worst = kSendDone;
    for (const std::string& path : directory_.Files()) {
      const absl::StatusOr<SpoolOwner> owner = ReadSpoolOwner(path);
      size_t batches = 0;
      const Outcome outcome = Send(path, &batches);
      Print(path, owner, batches, outcome);
      worst = std::max(worst, outcome.code);
    }
    return worst;
  }

 private:
  Outcome Send(const std::string& path, size_t* batches) {
    const SpoolVerdict verdict = JudgeSpool(path, std::time(nullptr));
    switch (verdict.fate) {
      case SpoolFate::kLeft:
        break;
      case SpoolFate::kInUse:
        return {"in_use", verdict.why, kSendDone};
      case SpoolFate::kGone:
        return Gone();
      case SpoolFate::kDamaged:
        SetDamagedAside(path);
        return {"damaged", verdict.why, kSendBadInput};
      case SpoolFate::kUnreadable:
        return {"unreadable", verdict.why, kSendBadInput};
    }
    absl::StatusOr<LoadedSpool> loaded = LoadSpool(&directory_, path);
    if (!loaded.ok()) return NotLoaded(loaded.status());
    *batches = loaded->batches.size();
    return Deliver(*std::move(loaded));
  }

  // Between the list of files and this one's turn.
  static Outcome Gone() {
    return {"gone", "the relay that had it has delivered and deleted it",
            kSendDone};
  }

  static Outcome NotLoaded(const absl::Status& status) {
    switch (status.code()) {
      case absl::StatusCode::kAborted:
        return {"in_use", Message(status), kSendDone};
      case absl::StatusCode::kNotFound:
        return Gone();
      case absl::StatusCode::kDataLoss:
        return {"damaged", Message(status), kSendBadInput};
      default:
        return {"unreadable", Message(status), kSendBadInput};
    }
  }

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
    if (damaged == 0) return {};
    return {.reason = std::to_string(damaged) + " damaged places left out",
            .code = kSendBadInput};
  }

  static void Print(const std::string& path,
                    const absl::StatusOr<SpoolOwner>& owner, size_t batches,
                    const Outcome& outcome) {
    nlohmann::json line = {{"file", path},       {"pid", nullptr},
                           {"host", nullptr},    {"run", nullptr},
                           {"batches", batches}, {"result", outcome.result},
                           {"reason", nullptr}};
    if (owner.ok()) {
      line["pid"] = owner->hello.process().pid();
      line["host"] = owner->hello.process().host();
      line["run"] = owner->hello.run();
    }
    if (!outcome.reason.empty()) line["reason"] = outcome.reason;
    std::cout << line.dump(-1, ' ', /*ensure_ascii=*/false,
                           nlohmann::json::error_handler_t::replace)
              << std::endl;
  }

  SpoolDirectory directory_;
  Compressor compressor_;
  const std::shared_ptr<Wake> wake_;  // shared with calls that outlive us
  const OrphanDelivery::Dependencies dependencies_;
  std::string unreachable_;  // why, once it is known
};

}  // namespace

int SendSpool(const RelayOptions& options, const std::string& folder) {
  std::error_code error;
  if (!std::filesystem::is_directory(folder, error)) {
    std::cerr << folder << ": no such folder\n";
    return kSendBadInput;
  }
  absl::StatusOr<std::shared_ptr<grpc::Channel>> channel =
      MakeRelayChannel(options.server, options.files);
  if (!channel.ok()) {
    std::cerr << Message(channel.status()) << "\n";
    return kSendBadInput;
  }
  return Sender(folder, *std::move(channel)).SendAll();
}

}  // namespace traincheck::agent
