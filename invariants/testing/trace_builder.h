// Makes the stored batches of one process for tests, as an agent would:
//
//   TraceBuilder trace;
//   const uint32_t step = trace.Function("torch.optim.sgd.SGD.step",
//                                        "optimizer_step", {kStepRole});
//   trace.Begin(step, {.object = optimizer, .site = "train.py:7"});
//   trace.State(StatePoint::kPreStep, w, {.data = 1, .grad = 2});
//   trace.End();
//   std::vector<StoredBatch> batches = trace.TakeBatches();
//
// All events lie in ring 1 unless `ring` says otherwise. Every record is 1 us
// after the one before.
#ifndef TRAINCHECK_INVARIANTS_TESTING_TRACE_BUILDER_H_
#define TRAINCHECK_INVARIANTS_TESTING_TRACE_BUILDER_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "invariants/trace/stored_batch.h"
#include "proto/record_format.h"
#include "proto/record_writer.h"

namespace traincheck {

struct CallOptions {
  uint32_t object = 0;
  std::string site = {};
  uint8_t flags = kOutermost | kGradEnabled;
  uint32_t ring = 1;
  // Numbers that the call tells, by name.
  std::map<std::string, double> arguments = {};
  // Tensors that it tells, by name: their sizes, and where they lie.
  std::map<std::string, std::vector<uint64_t>> sizes = {};
  std::map<std::string, uint64_t> storages = {};
  // Lists of numbers that it tells, by name.
  std::map<std::string, std::vector<uint64_t>> lists = {};
  // Bools and objects that it tells, by name.
  std::map<std::string, bool> truths = {};
  std::map<std::string, uint32_t> objects = {};
  // Parent on another ring.
  uint32_t parent_ring = 0;
  uint64_t parent_call = 0;
};

struct ObjectOptions {
  ObjectKind kind = ObjectKind::kModule;
  std::vector<std::string> bases = {};
  uint32_t root = 0;
  std::string path = {};  // inside its root
  uint32_t wrapped = 0;
};

struct VariableOptions {
  VariableKind kind = VariableKind::kParameter;
  bool trainable = true;
  std::string dtype = "torch.float32";
  std::vector<uint64_t> shape = {};
  std::string owner_class = {};
  uint64_t alias_group = 0;
  std::string attribute = {};  // "placement.dp=R"
};

struct StateOptions {
  std::optional<uint64_t> data = {};
  std::optional<uint64_t> grad = {};  // digest; 0: a zero gradient
  bool no_grad = false;               // gradient is None
  bool requires_grad = true;
  bool unreadable = false;
};

struct WorkerOptions {
  uint32_t worker = 0;
  uint32_t owner = 0;  // pid
  uint64_t seed = 0;
  uint64_t step = 0;
};

struct EntryOptions {
  std::optional<uint64_t> digest = {};
  std::string dtype = "torch.float32";  // "": no tensor
  std::vector<uint64_t> shape = {};
  uint32_t variable = 0;
  uint64_t left_out = 0;
  uint32_t ring = 1;
};

class TraceBuilder {
 public:
  TraceBuilder();

  // Definitions; the same name gives the same id again.
  uint32_t String(const std::string& text);
  uint32_t Function(const std::string& name, const std::string& category,
                    const std::vector<std::string>& roles);
  uint32_t Object(const std::string& class_name, const ObjectOptions& options);
  uint32_t Variable(uint32_t root, const std::string& root_class,
                    const std::string& name, const VariableOptions& options);
  void Hold(uint32_t optimizer, uint32_t group,
            const std::vector<uint32_t>& variables);
  void Replicas(uint32_t group, uint32_t wrapper,
                const std::vector<int32_t>& ranks,
                const std::vector<uint32_t>& variables);
  void Process(ProcessKind kind, uint32_t attempt);
  // A main process with this pid, whose workers can name it.
  void Owner(uint32_t pid);
  void Worker(const WorkerOptions& options);
  void ProcessGroup(uint32_t group, const std::vector<int32_t>& ranks);

  // Events.
  void Place(int32_t rank, int32_t world);
  uint64_t Begin(uint32_t function, const CallOptions& options);
  void End(uint8_t output_flags = 0, uint32_t ring = 1);
  // Ends the innermost call of ring 1 with a tensor of so many rows on the CPU.
  void Return(const std::string& dtype, uint64_t rows);
  // The same with a number.
  void Return(double number);
  // The same with a tensor in this storage.
  void ReturnStorage(uint64_t storage);
  // The innermost open call is this collective of the group.
  void Collective(uint32_t group, uint64_t sequence);
  void Raise(uint32_t ring = 1);
  // An autocast region of the CPU begins; dtype "": disabled.
  void EnterAutocast(const std::string& dtype);
  void LeaveAutocast();
  void State(StatePoint point, uint32_t variable, const StateOptions& options);
  // They follow the state record of the same variable and point; `of` is
  // kHasData or kHasGrad.
  void Statistics(StatePoint point, uint32_t variable, uint8_t of,
                  uint64_t not_finite);
  void Rows(StatePoint point, uint32_t variable, uint8_t of,
            const std::vector<uint64_t>& digests);
  void CheckpointEntry(StatePoint point, const std::string& key,
                       const EntryOptions& options);
  // "scale" of a GradScaler after an update.
  void Scale(uint32_t object, double value);
  void Scalar(StatePoint point, uint32_t object, uint32_t group,
              const char* name, double value);
  void LearningRate(uint32_t optimizer, uint32_t group, double value);
  void Mark(MarkKind kind, uint32_t object, uint64_t value);
  // Records of ring 1 are missing here.
  void Lose();

  // Time passes before the next record.
  void Wait(double seconds) { now_us_ += static_cast<uint64_t>(seconds * 1e6); }
  // The same, and the relay says that the process is quiet.
  void Quiet(double seconds) {
    Wait(seconds);
    Cut();
    StoredBatch batch;
    batch.number = next_batch_++;
    batch.quiet_us = now_us_;
    batches_.push_back(std::move(batch));
  }

  // What comes next lies in a new batch.
  void Cut();
  // All batches since the last call.
  std::vector<StoredBatch> TakeBatches();

 private:
  struct Ring {
    uint64_t position = 0;  // of the first byte in `bytes`
    std::string bytes;
    uint32_t records = 0;
    uint64_t next_call = 1;
    std::vector<uint64_t> open;
    std::vector<uint32_t> open_functions;
  };

  Ring& RingOf(uint32_t number);
  template <typename Fixed>
  void Append(uint32_t ring, RecordType type, uint8_t flags,
              const Fixed& fixed);
  void Finish(uint32_t ring, FieldWriter* out, const char* buffer,
              RecordType type, uint8_t flags);
  uint32_t Site(const std::string& site);
  CallEndRecord TakeOpenCall(uint32_t ring);
  void EndWith(RecordType type, uint8_t flags, uint32_t ring);

  std::map<uint32_t, Ring> rings_;
  std::vector<StoredBatch> batches_;
  uint64_t next_batch_ = 0;
  uint64_t now_us_ = 1000;
  std::map<uint32_t, uint64_t> last_us_;  // by ring
  std::map<std::string, uint32_t> strings_;
  std::map<std::string, uint32_t> functions_;
  std::map<std::string, uint32_t> sites_;
  uint32_t objects_ = 0;
  uint32_t variables_ = 0;
};

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_TESTING_TRACE_BUILDER_H_
