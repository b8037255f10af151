// A daemon that a test can make behave badly: the Ingest service over a store
// in memory that outlives it.
//
// Threads: StoreForTesting is thread-safe; a server is started and stopped by
// one thread.
#ifndef TRAINCHECK_AGENT_RELAY_INGEST_FOR_TESTING_H_
#define TRAINCHECK_AGENT_RELAY_INGEST_FOR_TESTING_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "grpcpp/server.h"
#include "grpcpp/support/status.h"
#include "proto/traincheck/v1/ingest.grpc.pb.h"

namespace traincheck::agent {

// One process as the store has it.
struct StoredProcess {
  v1::Hello hello;
  uint64_t next_batch = 0;
  std::map<uint32_t, uint64_t> positions;  // by ring: stored up to here
  std::map<uint32_t, uint64_t> missing;    // by ring: bytes left out
  std::map<uint32_t, uint64_t> records;    // by ring
  std::vector<uint64_t> marks;             // values of Mark records, in order
  std::vector<uint64_t> quiet_ns;          // of batches without slices
  v1::RingReports reports;
  std::optional<v1::Goodbye> goodbye;
  std::vector<std::string> faults;  // what a real server would refuse
};

class StoreForTesting {
 public:
  explicit StoreForTesting(std::string id) : id_(std::move(id)) {}

  const std::string& id() const { return id_; }
  // What the server answers.
  v1::Welcome Open(const v1::Hello& hello);
  // The new cursor.
  uint64_t Put(uint32_t pid, const v1::Batch& batch);
  void Put(uint32_t pid, const v1::RingReports& reports);
  void Put(uint32_t pid, const v1::Goodbye& goodbye);

  StoredProcess Get(pid_t pid) const;
  size_t size() const;
  // Waits until the process satisfies the condition; false: not in time.
  bool WaitFor(pid_t pid,
               const std::function<bool(const StoredProcess&)>& condition,
               std::chrono::milliseconds within) const;

 private:
  const std::string id_;
  mutable std::mutex mutex_;
  std::map<uint32_t, StoredProcess> processes_;
};

class IngestForTesting final : public v1::Ingest::Service {
 public:
  struct Behaviour {
    bool takes_quiet = true;
    bool welcomes = true;      // else it takes the stream and says nothing
    bool acknowledges = true;  // else it reads and never answers again
    grpc::Status refusal = grpc::Status::OK;        // after the Hello
    int refuses = std::numeric_limits<int>::max();  // streams, before it takes
    bool tells_rings = true;  // as servers before Welcome.rings do not
    // Batches with a Mark of this value end the stream.
    std::optional<uint64_t> hates_mark = std::nullopt;
    uint64_t credit_bytes = 1u << 20;
    uint32_t gather_ms = 0;
    // Told behind the Welcome.
    std::optional<v1::PlanChange> plan = std::nullopt;
  };

  // Listens on `address`; "127.0.0.1:0" finds a port.
  IngestForTesting(StoreForTesting* store, const std::string& address,
                   const Behaviour& behaviour);
  // Breaks all streams.
  ~IngestForTesting() override;

  // To be given to the relay.
  const std::string& address() const { return address_; }
  // Streams that were opened so far.
  int streams() const { return streams_; }

  grpc::Status Stream(
      grpc::ServerContext* context,
      grpc::ServerReaderWriter<v1::IngestReply, v1::IngestRequest>* stream)
      override;

 private:
  bool Hates(const v1::Batch& batch) const;
  bool Answer(uint32_t pid, const v1::IngestRequest& request,
              v1::IngestReply* reply);
  void WaitForEnd(grpc::ServerContext* context) const;

  StoreForTesting* const store_;
  const Behaviour behaviour_;
  std::string address_;
  std::atomic<bool> stopping_{false};
  std::atomic<int> streams_{0};
  std::atomic<int> refused_{0};
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace traincheck::agent

#endif  // TRAINCHECK_AGENT_RELAY_INGEST_FOR_TESTING_H_
