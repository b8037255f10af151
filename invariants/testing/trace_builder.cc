#include "invariants/testing/trace_builder.h"

#include <cstdlib>

#include "proto/torch_types.h"

namespace traincheck {

namespace {

constexpr size_t kBufferBytes = 16384;
constexpr uint32_t kDefinitions = 0;

struct Buffer {
  alignas(8) char bytes[kBufferBytes];
};

// A tensor on the CPU, with sizes and a storage up to 127: type, device and its
// index, layout, flags; storage, dimensions + 1, sizes.
std::string TensorBytes(const std::string& dtype,
                        const std::vector<uint64_t>& sizes,
                        uint64_t storage = 0) {
  std::string bytes = {static_cast<char>(DtypeOfName(dtype)),
                       0,
                       -1,
                       0,
                       0,
                       static_cast<char>(storage),
                       static_cast<char>(sizes.size() + 1)};
  for (const uint64_t size : sizes) bytes += static_cast<char>(size);
  return bytes;
}

}  // namespace

TraceBuilder::TraceBuilder() { RingOf(kDefinitions); }

TraceBuilder::Ring& TraceBuilder::RingOf(uint32_t number) {
  const auto [found, added] = rings_.try_emplace(number);
  if (added) {
    last_us_[number] = now_us_;
    Append(number, RecordType::kClockSync, 0,
           ClockSyncRecord{{}, now_us_ * 1000, 0, 1});
  }
  return found->second;
}

void TraceBuilder::Finish(uint32_t ring, FieldWriter* out, const char* buffer,
                          RecordType type, uint8_t flags) {
  ++now_us_;
  const auto delta = static_cast<uint32_t>(now_us_ - last_us_[ring]);
  last_us_[ring] = now_us_;
  const size_t size = out->Finish(type, flags, delta);
  if (size == 0) std::abort();
  Ring& state = rings_[ring];
  state.bytes.append(buffer, size);
  ++state.records;
}

template <typename Fixed>
void TraceBuilder::Append(uint32_t ring, RecordType type, uint8_t flags,
                          const Fixed& fixed) {
  Buffer buffer;
  FieldWriter out(buffer.bytes, kBufferBytes, fixed);
  Finish(ring, &out, buffer.bytes, type, flags);
}

uint32_t TraceBuilder::String(const std::string& text) {
  const auto [found, added] =
      strings_.emplace(text, static_cast<uint32_t>(strings_.size() + 1));
  if (added) {
    Buffer buffer;
    FieldWriter out(buffer.bytes, kBufferBytes,
                    DefinitionRecord{{}, found->second, 0});
    out.Bytes(Field::kText, text);
    Finish(kDefinitions, &out, buffer.bytes, RecordType::kStringDef, 0);
  }
  return found->second;
}

uint32_t TraceBuilder::Function(const std::string& name,
                                const std::string& category,
                                const std::vector<std::string>& roles) {
  const auto [found, added] =
      functions_.emplace(name, static_cast<uint32_t>(functions_.size() + 1));
  if (!added) return found->second;
  Buffer buffer;
  FieldWriter out(buffer.bytes, kBufferBytes,
                  DefinitionRecord{{}, found->second, 0});
  out.Unsigned(Field::kName, String(name));
  out.Unsigned(Field::kCategory, String(category));
  for (const std::string& role : roles) {
    out.Unsigned(Field::kRole, String(role));
  }
  Finish(kDefinitions, &out, buffer.bytes, RecordType::kFunctionDef, 0);
  return found->second;
}

uint32_t TraceBuilder::Site(const std::string& site) {
  if (site.empty()) return 0;
  const auto [found, added] =
      sites_.emplace(site, static_cast<uint32_t>(sites_.size() + 1));
  if (!added) return found->second;
  const size_t colon = site.rfind(':');
  Buffer buffer;
  FieldWriter out(buffer.bytes, kBufferBytes,
                  DefinitionRecord{{}, found->second, 0});
  out.Unsigned(Field::kFile, String(site.substr(0, colon)));
  out.Unsigned(Field::kLine, std::stoul(site.substr(colon + 1)));
  Finish(kDefinitions, &out, buffer.bytes, RecordType::kSiteDef, 0);
  return found->second;
}

uint32_t TraceBuilder::Object(const std::string& class_name,
                              const ObjectOptions& options) {
  Buffer buffer;
  FieldWriter out(buffer.bytes, kBufferBytes,
                  DefinitionRecord{{}, ++objects_, 0});
  out.Unsigned(Field::kClass, String(class_name));
  for (const std::string& base : options.bases) {
    out.Unsigned(Field::kBaseClass, String(base));
  }
  out.Unsigned(Field::kObjectKind, static_cast<uint64_t>(options.kind));
  out.Unsigned(Field::kRootObject, options.root);
  if (!options.path.empty()) out.Unsigned(Field::kPath, String(options.path));
  out.Unsigned(Field::kWrappedObject, options.wrapped);
  Finish(kDefinitions, &out, buffer.bytes, RecordType::kObjectDef, 0);
  return objects_;
}

uint32_t TraceBuilder::Variable(uint32_t root, const std::string& root_class,
                                const std::string& name,
                                const VariableOptions& options) {
  Buffer buffer;
  FieldWriter out(buffer.bytes, kBufferBytes,
                  DefinitionRecord{{}, ++variables_, 0});
  out.Unsigned(Field::kName, String(name));
  out.Unsigned(Field::kRootClass, String(root_class));
  out.Unsigned(Field::kRootObject, root);
  out.Unsigned(Field::kVariableKind, static_cast<uint64_t>(options.kind));
  out.Unsigned(Field::kTrainable, options.trainable);
  out.Unsigned(Field::kDtype, String(options.dtype));
  if (!options.owner_class.empty()) {
    out.Unsigned(Field::kOwnerClass, String(options.owner_class));
  }
  for (const uint64_t size : options.shape) {
    out.Unsigned(Field::kDimension, size);
  }
  if (!options.attribute.empty()) {
    out.Unsigned(Field::kAttribute, String(options.attribute));
  }
  if (options.alias_group != 0) {
    out.Unsigned(Field::kAliasGroup, options.alias_group);
  }
  Finish(kDefinitions, &out, buffer.bytes, RecordType::kVariableDef, 0);
  return variables_;
}

void TraceBuilder::Hold(uint32_t optimizer, uint32_t group,
                        const std::vector<uint32_t>& variables) {
  Buffer buffer;
  FieldWriter out(buffer.bytes, kBufferBytes,
                  DefinitionRecord{{}, optimizer, group});
  for (uint32_t variable : variables) {
    out.Unsigned(Field::kVariable, variable);
  }
  Finish(kDefinitions, &out, buffer.bytes, RecordType::kHoldDef, 0);
}

void TraceBuilder::Replicas(uint32_t group, uint32_t wrapper,
                            const std::vector<int32_t>& ranks,
                            const std::vector<uint32_t>& variables) {
  Buffer buffer;
  FieldWriter out(buffer.bytes, kBufferBytes, DefinitionRecord{{}, group, 0});
  out.Unsigned(Field::kEvidence, String("DistributedDataParallel"));
  out.Unsigned(Field::kWrapperObject, wrapper);
  for (int32_t rank : ranks) {
    out.Unsigned(Field::kMemberRank, static_cast<uint64_t>(rank));
  }
  for (uint32_t variable : variables) {
    out.Unsigned(Field::kVariable, variable);
  }
  Finish(kDefinitions, &out, buffer.bytes, RecordType::kReplicaGroupDef, 0);
}

void TraceBuilder::Process(ProcessKind kind, uint32_t attempt) {
  Buffer buffer;
  FieldWriter out(buffer.bytes, kBufferBytes, DefinitionRecord{{}, 1, 0});
  out.Unsigned(Field::kProcessKind, static_cast<uint64_t>(kind));
  out.Unsigned(Field::kAttempt, attempt);
  Finish(kDefinitions, &out, buffer.bytes, RecordType::kProcessDef, 0);
}

void TraceBuilder::Owner(uint32_t pid) {
  Buffer buffer;
  FieldWriter out(buffer.bytes, kBufferBytes, DefinitionRecord{{}, pid, 0});
  out.Unsigned(Field::kProcessKind, static_cast<uint64_t>(ProcessKind::kMain));
  Finish(kDefinitions, &out, buffer.bytes, RecordType::kProcessDef, 0);
}

void TraceBuilder::Worker(const WorkerOptions& options) {
  Buffer buffer;
  FieldWriter out(buffer.bytes, kBufferBytes,
                  DefinitionRecord{{}, 1000 + options.worker, 0});
  out.Unsigned(Field::kProcessKind,
               static_cast<uint64_t>(ProcessKind::kWorker));
  out.Unsigned(Field::kWorkerId, options.worker);
  out.Unsigned(Field::kOwnerPid, options.owner);
  out.Unsigned(Field::kPassSeed, options.seed);
  out.Unsigned(Field::kOwnerStep, options.step);
  Finish(kDefinitions, &out, buffer.bytes, RecordType::kProcessDef, 0);
}

void TraceBuilder::ProcessGroup(uint32_t group,
                                const std::vector<int32_t>& ranks) {
  Buffer buffer;
  FieldWriter out(buffer.bytes, kBufferBytes, DefinitionRecord{{}, group, 0});
  out.Unsigned(Field::kName, String("group"));
  for (const int32_t rank : ranks) {
    out.Unsigned(Field::kMemberRank, static_cast<uint64_t>(rank));
  }
  Finish(kDefinitions, &out, buffer.bytes, RecordType::kProcessGroupDef, 0);
}

void TraceBuilder::Place(int32_t rank, int32_t world) {
  RingOf(1);
  Append(1, RecordType::kPlace, 0, PlaceRecord{{}, rank, world, -1, 2});
}

uint64_t TraceBuilder::Begin(uint32_t function, const CallOptions& options) {
  Ring& ring = RingOf(options.ring);
  const uint64_t call = ring.next_call++;
  CallBeginRecord begin = {};
  begin.function = function;
  begin.site = Site(options.site);
  begin.call = static_cast<uint32_t>(call);
  if (!ring.open.empty()) {
    begin.parent_distance = static_cast<uint32_t>(call - ring.open.back());
  }
  uint8_t flags = options.flags;
  Buffer buffer;
  FieldWriter out(buffer.bytes, kBufferBytes, begin);
  if (options.object != 0) out.Unsigned(Field::kSelfObject, options.object);
  if (options.parent_call != 0) {
    flags |= kForeignParent;
    out.Unsigned(Field::kParentRing, options.parent_ring);
    out.Unsigned(Field::kParentCall, options.parent_call);
  }
  for (const auto& [name, value] : options.arguments) {
    out.Unsigned(Field::kArgumentName, String(name));
    out.Double(Field::kValueDouble, value);
  }
  for (const auto& [name, sizes] : options.sizes) {
    out.Unsigned(Field::kArgumentName, String(name));
    out.Bytes(Field::kValueTensor, TensorBytes("torch.float32", sizes));
  }
  for (const auto& [name, storage] : options.storages) {
    out.Unsigned(Field::kArgumentName, String(name));
    out.Bytes(Field::kValueTensor, TensorBytes("torch.float32", {1}, storage));
  }
  for (const auto& [name, list] : options.lists) {
    out.Unsigned(Field::kArgumentName, String(name));
    out.Unsigned(Field::kValueType, String("list"));
    out.Unsigned(Field::kValueLength, list.size());
    for (size_t i = 0; i < list.size(); ++i) {
      out.Unsigned(Field::kElement, i);
      out.Unsigned(Field::kValueUnsigned, list[i]);
    }
  }
  for (const auto& [name, truth] : options.truths) {
    out.Unsigned(Field::kArgumentName, String(name));
    out.Unsigned(Field::kValueBool, truth);
  }
  for (const auto& [name, object] : options.objects) {
    out.Unsigned(Field::kArgumentName, String(name));
    out.Unsigned(Field::kValueObject, object);
  }
  Finish(options.ring, &out, buffer.bytes, RecordType::kCallBegin, flags);
  ring.open.push_back(call);
  ring.open_functions.push_back(function);
  return call;
}

CallEndRecord TraceBuilder::TakeOpenCall(uint32_t ring) {
  Ring& state = rings_[ring];
  if (state.open.empty()) std::abort();
  CallEndRecord end = {};
  end.call = static_cast<uint32_t>(state.open.back());
  end.function = state.open_functions.back();
  state.open.pop_back();
  state.open_functions.pop_back();
  return end;
}

void TraceBuilder::EndWith(RecordType type, uint8_t flags, uint32_t ring) {
  Append(ring, type, flags, TakeOpenCall(ring));
}

void TraceBuilder::Return(const std::string& dtype, uint64_t rows) {
  Buffer buffer;
  FieldWriter out(buffer.bytes, kBufferBytes, TakeOpenCall(1));
  out.Unsigned(Field::kReturn, 0);
  out.Bytes(Field::kValueTensor, TensorBytes(dtype, {rows}));
  Finish(1, &out, buffer.bytes, RecordType::kCallEnd, 0);
}

void TraceBuilder::Return(double number) {
  Buffer buffer;
  FieldWriter out(buffer.bytes, kBufferBytes, TakeOpenCall(1));
  out.Unsigned(Field::kReturn, 0);
  out.Double(Field::kValueDouble, number);
  Finish(1, &out, buffer.bytes, RecordType::kCallEnd, 0);
}

void TraceBuilder::ReturnStorage(uint64_t storage) {
  Buffer buffer;
  FieldWriter out(buffer.bytes, kBufferBytes, TakeOpenCall(1));
  out.Unsigned(Field::kReturn, 0);
  out.Bytes(Field::kValueTensor, TensorBytes("torch.float32", {1}, storage));
  Finish(1, &out, buffer.bytes, RecordType::kCallEnd, 0);
}

void TraceBuilder::Collective(uint32_t group, uint64_t sequence) {
  CollectiveRecord record = {};
  record.group = group;
  record.sequence = sequence;
  RingOf(1);
  Append(1, RecordType::kCollective, 0, record);
}

void TraceBuilder::EnterAutocast(const std::string& dtype) {
  ContextRecord record = {};
  record.function = Function("torch.amp.autocast_mode.autocast", "context", {});
  Buffer buffer;
  FieldWriter out(buffer.bytes, kBufferBytes, record);
  const auto tell = [&](const char* name, const std::string& text) {
    out.Unsigned(Field::kArgumentName, String(name));
    out.Unsigned(Field::kValueString, String(text));
  };
  tell("device_type", "cpu");
  if (!dtype.empty()) tell("dtype", dtype);
  out.Unsigned(Field::kArgumentName, String("enabled"));
  out.Unsigned(Field::kValueBool, !dtype.empty());
  RingOf(1);
  Finish(1, &out, buffer.bytes, RecordType::kContextEnter, 0);
}

void TraceBuilder::LeaveAutocast() {
  ContextRecord record = {};
  record.function = Function("torch.amp.autocast_mode.autocast", "context", {});
  RingOf(1);
  Append(1, RecordType::kContextExit, 0, record);
}

void TraceBuilder::End(uint8_t output_flags, uint32_t ring) {
  EndWith(RecordType::kCallEnd, output_flags, ring);
}

void TraceBuilder::Raise(uint32_t ring) {
  EndWith(RecordType::kCallRaised, 0, ring);
}

void TraceBuilder::State(StatePoint point, uint32_t variable,
                         const StateOptions& options) {
  struct {
    StateRecord fixed;
    uint64_t digests[2];
  } record = {};
  record.fixed.variable = variable;
  record.fixed.point = static_cast<uint8_t>(point);
  size_t digests = 0;
  uint8_t content = options.requires_grad ? kRequiresGrad : 0;
  if (options.data) {
    content |= kHasData;
    record.digests[digests++] = *options.data;
  }
  if (options.grad) {
    content |= kHasGrad;
    if (*options.grad == 0) content |= kGradIsZero;
    record.digests[digests++] = *options.grad;
  }
  if (options.no_grad) content |= kGradIsNone;
  if (options.unreadable) content |= kUnreadable;
  record.fixed.content = content;
  const size_t size = sizeof(StateRecord) + digests * sizeof(uint64_t);
  Ring& ring = RingOf(1);
  ++now_us_;
  const auto delta = static_cast<uint32_t>(now_us_ - last_us_[1]);
  last_us_[1] = now_us_;
  record.fixed.header = {static_cast<uint16_t>(size),
                         static_cast<uint8_t>(RecordType::kState), 0, delta};
  ring.bytes.append(reinterpret_cast<const char*>(&record), size);
  ++ring.records;
}

void TraceBuilder::Statistics(StatePoint point, uint32_t variable, uint8_t of,
                              uint64_t not_finite) {
  StatisticsRecord record = {};
  record.variable = variable;
  record.point = static_cast<uint8_t>(point);
  record.of = of;
  record.nan_count = not_finite;
  RingOf(1);
  Append(1, RecordType::kStatistics, 0, record);
}

void TraceBuilder::Rows(StatePoint point, uint32_t variable, uint8_t of,
                        const std::vector<uint64_t>& digests) {
  RowDigestsRecord record = {};
  record.variable = variable;
  record.point = static_cast<uint8_t>(point);
  record.of = of;
  record.rows = digests.size();
  Ring& ring = RingOf(1);
  ++now_us_;
  record.header = {static_cast<uint16_t>(sizeof record + 8 * digests.size()),
                   static_cast<uint8_t>(RecordType::kRowDigests), 0,
                   static_cast<uint32_t>(now_us_ - last_us_[1])};
  last_us_[1] = now_us_;
  ring.bytes.append(reinterpret_cast<const char*>(&record), sizeof record);
  ring.bytes.append(reinterpret_cast<const char*>(digests.data()),
                    8 * digests.size());
  ++ring.records;
}

void TraceBuilder::CheckpointEntry(StatePoint point, const std::string& key,
                                   const EntryOptions& options) {
  CheckpointEntryRecord entry = {};
  entry.key = options.left_out == 0 ? String(key) : 0;
  entry.point = static_cast<uint8_t>(point);
  entry.content = options.digest ? kHasData : 0;
  entry.digest = options.digest.value_or(0);
  Buffer buffer;
  FieldWriter out(buffer.bytes, kBufferBytes, entry);
  if (!options.dtype.empty()) {
    out.Unsigned(Field::kDtype, String(options.dtype));
  }
  for (const uint64_t size : options.shape) {
    out.Unsigned(Field::kDimension, size);
  }
  if (options.variable != 0) out.Unsigned(Field::kVariable, options.variable);
  if (options.left_out != 0) out.Unsigned(Field::kLeftOut, options.left_out);
  RingOf(options.ring);
  Finish(options.ring, &out, buffer.bytes, RecordType::kCheckpointEntry, 0);
}

void TraceBuilder::Scale(uint32_t object, double value) {
  Scalar(StatePoint::kPostStep, object, 0, "scale", value);
}
void TraceBuilder::LearningRate(uint32_t optimizer, uint32_t group,
                                double value) {
  Scalar(StatePoint::kPreStep, optimizer, group, "lr", value);
}

void TraceBuilder::Scalar(StatePoint point, uint32_t object, uint32_t group,
                          const char* name, double value) {
  ScalarRecord scalar = {};
  scalar.object = object;
  scalar.point = static_cast<uint8_t>(point);
  scalar.group = static_cast<uint16_t>(group);
  scalar.name = String(name);
  scalar.value = value;
  RingOf(1);
  Append(1, RecordType::kScalar, 0, scalar);
}

void TraceBuilder::Mark(MarkKind kind, uint32_t object, uint64_t value) {
  RingOf(1);
  Append(1, RecordType::kMark, static_cast<uint8_t>(kind),
         MarkRecord{{}, object, 0, value});
}

void TraceBuilder::Lose() {
  Cut();
  RingOf(1).position += 64;
}

void TraceBuilder::Cut() {
  StoredBatch batch;
  batch.number = next_batch_;
  for (auto& [number, ring] : rings_) {
    if (ring.bytes.empty()) continue;
    batch.slices.push_back({number, ring.position,
                            ring.position + ring.bytes.size(), ring.records});
    ring.position += ring.bytes.size();
    batch.plain += ring.bytes;
    ring.bytes.clear();
    ring.records = 0;
  }
  if (batch.slices.empty()) return;
  ++next_batch_;
  batches_.push_back(std::move(batch));
}

std::vector<StoredBatch> TraceBuilder::TakeBatches() {
  Cut();
  return std::move(batches_);
}

}  // namespace traincheck
