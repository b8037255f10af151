// Delivers records to the daemon as a relay would: for the one command that
// brings a run from elsewhere. Besides client.h the only file of traincheckctl
// that speaks gRPC.
//
// Threads: one object, one thread at a time.
#ifndef TRAINCHECK_CTL_DELIVERY_H_
#define TRAINCHECK_CTL_DELIVERY_H_

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "invariants/trace/stored_batch.h"
#include "proto/traincheck/v1/ingest.pb.h"

namespace traincheck::ctl {

// One process after the other: Begin, Send..., End. Statuses keep the server's
// code and message; Unavailable means that it is not there, went away or does
// not answer. After an error this object is of no more use.
class Delivery {
 public:
  // How long the server may take to store what it was sent. A process may take
  // any time: a trace of tens of gigabytes is converted for hours.
  static constexpr std::chrono::milliseconds kAnswerTimeout{600'000};

  // Connects with the first Begin. Fails for an address that base/credentials
  // refuses.
  static absl::StatusOr<std::unique_ptr<Delivery>> Make(
      const std::string& address,
      std::chrono::milliseconds answer_timeout = kAnswerTimeout);
  ~Delivery();
  Delivery(const Delivery&) = delete;
  Delivery& operator=(const Delivery&) = delete;

  // Opens the stream of a process that the server has not met.
  absl::Status Begin(const v1::Hello& hello);
  // Waits where too much is not stored yet.
  absl::Status Send(const StoredBatch& batch);
  // Says that the process ended in order; returns when all of it is stored.
  absl::Status End(const std::vector<v1::RingReport>& rings);

 private:
  struct Impl;
  explicit Delivery(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace traincheck::ctl

#endif  // TRAINCHECK_CTL_DELIVERY_H_
