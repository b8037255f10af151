// gRPC's side of ingest: one reactor a stream that carries messages between
// the wire and a Session. No thread waits for a stream.
//
// Threads: gRPC calls Stream and the reactors on its own threads; Stop on any
// thread, Tick on one at a time.
#ifndef TRAINCHECK_SERVER_INGEST_INGEST_SERVICE_H_
#define TRAINCHECK_SERVER_INGEST_INGEST_SERVICE_H_

#include <atomic>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "base/line_limit.h"
#include "proto/traincheck/v1/ingest.grpc.pb.h"
#include "server/access/gate_service.h"
#include "server/ingest/limits.h"
#include "server/ingest/session.h"
#include "server/plans/run_plans.h"
#include "server/runs/registry.h"

namespace traincheck::server {

class IngestReactor;

// Messages come as bytes, so that their size is looked at before they are
// parsed.
class IngestService final
    : public v1::Ingest::WithRawCallbackMethod_Stream<v1::Ingest::Service> {
 public:
  struct Options {
    // A stream without a valid Hello is closed after this time.
    absl::Duration hello_timeout = absl::Seconds(10);
    size_t max_streams = kMaxStreams;
    size_t max_streams_of_owner = kMaxStreamsOfOwner;
    uint64_t max_unsynced_bytes = kMaxUnsyncedBytes;
  };

  // All pointers must outlive the service.
  IngestService(Registry* registry, RunPlans* plans, const Gate* gate,
                std::string store_id, const Options& options);
  ~IngestService() override;

  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* Stream(
      grpc::CallbackServerContext* context) override;

  // Takes what waited for others' bytes to be stored; closes streams that did
  // not say Hello, those that a newer stream of their process has taken over
  // from and those whose token was revoked or expired; gives memory that
  // messages over the limit took back to the system. To be called every second
  // or more often, by one thread at a time.
  void Tick(absl::Time now);

  // Ends all streams and refuses new ones; relays come back later.
  void Stop();

 private:
  friend class IngestReactor;

  // Why no further stream of the owner may be opened.
  absl::Status CheckRoom(const std::string& owner) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Ends a stream that may not go on.
  void EndIfOver(IngestReactor* stream, absl::Time now) const;
  void Remove(const std::shared_ptr<IngestReactor>& stream);
  std::vector<std::shared_ptr<IngestReactor>> Streams() const;

  const Gate& gate_;
  const Options options_;
  const Session::Dependencies sessions_;
  // A message over the limit has come. gRPC takes such ones whole, on any of
  // its threads, and the heap would keep what they took.
  std::atomic<bool> heap_has_grown_ = false;
  absl::Time looked_ = absl::InfinitePast();        // Tick's, at the streams
  absl::Time heap_trimmed_ = absl::InfinitePast();  // Tick's
  // Lines on streams that end in an error: anybody can make these.
  LineLimit ends_{20, absl::Seconds(10)};
  mutable absl::Mutex mutex_;
  std::set<std::shared_ptr<IngestReactor>> streams_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, size_t> streams_of_ ABSL_GUARDED_BY(mutex_);  // owners
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace traincheck::server

#endif  // TRAINCHECK_SERVER_INGEST_INGEST_SERVICE_H_
