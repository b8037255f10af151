// The record format: what agents write into rings, relays send, the store
// keeps and checker and inference decode. RECORD_FORMAT.md beside this file is
// the specification (byte pictures, a hex example, versions); this header is
// its one definition in code. C++ standard library only.
//
// All integers are little-endian. A record is a header, a fixed part by type
// and then *fields* (tag varint + value, see FieldTag) up to size_bytes. Size
// comes first, so that a reader skips and counts types that it does not know.
// Numbers in this file are never reused or renumbered.
//
// size: the whole format in one place, so that it can be read and compared at
// a glance.
#ifndef TRAINCHECK_PROTO_RECORD_FORMAT_H_
#define TRAINCHECK_PROTO_RECORD_FORMAT_H_

#include <bit>
#include <cstddef>
#include <cstdint>

namespace traincheck {

static_assert(std::endian::native == std::endian::little,
              "records are written and read in place, little-endian");

inline constexpr uint32_t kRecordFormatVersion = 1;
// Oldest version that this build still reads.
inline constexpr uint32_t kRecordFormatVersionMin = 1;

// Every record starts on an 8-byte boundary and has a size divisible by 8.
inline constexpr size_t kRecordAlignment = 8;
inline constexpr size_t kMaxRecordBytes = 65528;
// Strings longer than this are cut by the writer.
inline constexpr size_t kMaxStringBytes = 1024;

// The ring that says what the ids in the others mean.
inline constexpr uint32_t kDefinitionRing = 0;

enum class RecordType : uint8_t {
  kInvalid = 0,
  kPadding = 1,  // fills a ring up to its end; carries nothing
  // Events, in the ring of the thread on which they happened.
  kClockSync = 2,
  kCallBegin = 3,
  kCallEnd = 4,
  kCallRaised = 5,  // the call ended by an exception
  kState = 6,
  kScalar = 7,  // a hyper-parameter: learning rate, ...
  kContextEnter = 8,
  kContextExit = 9,
  kMark = 10,
  kPlace = 11,  // rank and world of this process
  kDrops = 12,
  kCheckpointEntry = 13,
  kStatistics = 14,
  kRowDigests = 15,
  kDeferredDigests = 16,
  kCollective = 41,  // which group's the innermost open call is
  // Definitions, in ring 0 of the process. Ids start at 1; 0 is "not known".
  // A definition with an id seen before replaces the earlier one from its
  // place in the stream on.
  kStringDef = 32,
  kFunctionDef = 33,
  kSiteDef = 34,
  kObjectDef = 35,
  kVariableDef = 36,
  kHoldDef = 37,
  kReplicaGroupDef = 38,
  kProcessDef = 39,
  kProcessGroupDef = 40,
};

struct RecordHeader {
  uint16_t size_bytes;  // header included
  uint8_t type;         // RecordType
  uint8_t flags;        // by type
  // Microseconds since the previous record of this ring, saturating. Absolute
  // time comes from the last ClockSync. For people only.
  uint32_t delta_us;
};
static_assert(sizeof(RecordHeader) == 8);

// First record of every ring, then at least at every closed step. next_call
// is the full number of the next call that begins on this ring.
struct ClockSyncRecord {
  RecordHeader header;
  uint64_t monotonic_ns;
  uint64_t realtime_ns;
  uint64_t next_call;
};
static_assert(sizeof(ClockSyncRecord) == 32);

// Calls of one ring are numbered 1, 2, ... in order of their begin; records
// carry the low 32 bits.
struct CallBeginRecord {
  RecordHeader header;  // flags: CallFlag
  uint32_t function;
  uint32_t site;  // innermost frame in user code
  uint32_t call;
  // The innermost open call of this ring is call - parent_distance; 0: none.
  // With kForeignParent the parent is in fields kParentRing and kParentCall.
  uint32_t parent_distance;
};
static_assert(sizeof(CallBeginRecord) == 24);

enum CallFlag : uint8_t {
  kForeignParent = 1,
  kRootModuleCall = 2,   // no module call encloses it on this thread
  kModuleTraining = 4,   // self.training of the module called
  kGradEnabled = 8,      // grad mode at entry
  kInsideBackward = 16,  // a backward is open on this thread or its parent
  kOutermost = 32,       // no call of the same category on the same object is
                         // open (a step that calls super().step())
};

// CallEnd: flags OutputFlag. CallRaised: field kException.
struct CallEndRecord {
  RecordHeader header;
  uint32_t call;
  uint32_t function;
};
static_assert(sizeof(CallEndRecord) == 16);

enum OutputFlag : uint8_t {
  kOutputHasGradFn = 1,  // some tensor in the output (searched shallowly)
  kOutputSearched = 2,   // kOutputHasGradFn was looked for
};

// One variable at one state point, followed by one digest for each of
// kHasData, kHasGrad, in this order, and then, if a digest is deferred, by the
// number under which it will come.
struct StateRecord {
  RecordHeader header;  // flags: kHasData, kHasGrad if it was not read again
                        // (RECORD_FORMAT.md, "Unwritten contents")
  uint32_t variable;
  uint8_t point;    // StatePoint
  uint8_t content;  // StateContent; with kUnreadable if a digest is deferred
  // kHasData, kHasGrad: its digest comes later (DeferredDigestsRecord), that of
  // the gradient under the number after that of the data. kUnreadable: another
  // tensor could not be digested in truth.
  uint16_t deferred;
};
static_assert(sizeof(StateRecord) == 16);

enum StateContent : uint8_t {
  kHasData = 1,
  kHasGrad = 2,
  kGradIsNone = 4,
  kGradIsZero = 8,
  kDataIsZero = 16,
  kRequiresGrad = 32,
  kUnreadable = 64,  // this tensor could not be digested: unknown, not equal
  kIsLeaf = 128,
};

constexpr bool IsDeferred(const StateRecord& state) {
  return (state.deferred & (kHasData | kHasGrad)) != 0;
}

// Digests that state records before it, of any ring, have put off: entries
// follow, the first with this number and the others with those after it.
struct DeferredDigestsRecord {
  RecordHeader header;
  uint64_t first;
};
static_assert(sizeof(DeferredDigestsRecord) == 16);

struct DeferredDigest {
  uint64_t digest;
  uint64_t flags;  // DeferredFlag
};
static_assert(sizeof(DeferredDigest) == 16);

enum DeferredFlag : uint64_t {
  kDeferredIsZero = 1,
  kDeferredUnreadable = 2,  // there is no digest
  // Has an element that is NaN or infinite; neither flag: not known.
  kDeferredIsFinite = 4,
  kDeferredNotFinite = 8,
};

// On plan, right after the State record of the same variable and point.
struct StatisticsRecord {
  RecordHeader header;
  uint32_t variable;
  uint8_t point;  // StatePoint
  uint8_t of;     // kHasData or kHasGrad
  uint16_t reserved;
  // Over the elements that are finite: the square root of the sum of squares,
  // the largest magnitude.
  double norm;
  double absmax;
  uint64_t nan_count;
  uint64_t inf_count;
};
static_assert(sizeof(StatisticsRecord) == 48);

// On plan, after those: the digest of each slice of the first dimension, as if
// it were a tensor of its own. The record's size says how many follow; the rows
// of one content come in several records, in order.
struct RowDigestsRecord {
  RecordHeader header;
  uint32_t variable;
  uint8_t point;  // StatePoint
  uint8_t of;     // kHasData or kHasGrad
  uint16_t reserved;
  uint64_t first_row;  // of this record's digests
  uint64_t rows;       // of the content, in all
};
static_assert(sizeof(RowDigestsRecord) == 32);

enum class StatePoint : uint8_t {
  kNone = 0,
  kConstruction = 1,
  kWrapEnd = 2,       // after a wrapper (DDP) took the model
  kForwardBegin = 3,  // of the inner module, after DDP's buffer broadcast
  kBackwardEnd = 4,
  kPreClip = 5,
  kPostClip = 6,
  kPreStep = 7,
  kPostStep = 8,
  kGradClear = 9,  // after gradients were cleared
  kStepEnd = 10,
  kSave = 11,
  kLoad = 12,
  kStateDict = 13,      // given out
  kLoadStateDict = 14,  // taken in
  kFetch = 15,          // of a batch of indices
  kWorkerInit = 16,     // a loader's worker is about to fetch
  kForwardEnd = 17,     // of the outermost module: generators
};
inline constexpr uint8_t kMaxStatePoint = 17;

struct ScalarRecord {
  RecordHeader header;
  uint32_t object;
  uint8_t point;  // StatePoint
  uint8_t reserved;
  uint16_t group;  // parameter group of the optimizer
  uint32_t name;   // string id: "lr"
  uint32_t reserved2;
  double value;
};
static_assert(sizeof(ScalarRecord) == 32);

// One entry of what a checkpoint function took or gave, within its call.
struct CheckpointEntryRecord {
  RecordHeader header;
  uint32_t key;     // str: "model.fc.weight"
  uint8_t point;    // StatePoint
  uint8_t content;  // StateContent: kHasData, kDataIsZero, kUnreadable
  uint16_t reserved;
  uint64_t digest;  // with kHasData
};
static_assert(sizeof(CheckpointEntryRecord) == 24);

// At entry fields tell what the context was made with.
struct ContextRecord {
  RecordHeader header;
  uint32_t function;  // the context's class
  uint32_t site;
};
static_assert(sizeof(ContextRecord) == 16);

struct MarkRecord {
  RecordHeader header;  // flags: MarkKind
  uint32_t object;
  uint32_t site;
  uint64_t value;
};
static_assert(sizeof(MarkRecord) == 24);

enum class MarkKind : uint8_t {
  kNone = 0,
  kIteratorCreated = 1,    // object: the loader; value: iterator ordinal
  kBatchFetched = 2,       // object: the loader; value: batch index
  kIteratorExhausted = 3,  // object: the loader; value: iterator ordinal
  kIteratorAbandoned = 4,
  kStepClosed = 5,  // value: the step that closed, from 0, as the agent counts
  kCleanExit = 6,
  kUserStep = 7,     // traincheckd.step()
  kUserStage = 8,    // traincheckd.stage(); value: UserStage
  kStepSkipped = 9,  // object: the optimizer; value: SkippedStep
  // A change of plan begins to hold here; value: its version.
  kPlanApplied = 10,
  kCaptureMode = 11,  // from here on; value: CaptureMode
  // From here on calls of a function are recorded; value: the function. Told
  // of all that is wrapped when the process turns out to train, so that a
  // function that was not called is told from one that is not recorded.
  kFunctionOn = 12,
  kFunctionOff = 13,  // no longer
  // At the begin of an optimizer's step; object: the optimizer, value: how many
  // it made before.
  kOptimizerSteps = 14,
  // An exception reached the top of the main thread; value: ExitCause, field
  // kText: its class.
  kUncleanExit = 15,
};

// Why an optimizer's step does not happen in this process.
enum class SkippedStep : uint64_t {
  kByScaler = 0,         // a gradient is not finite
  kMadeByOtherRanks = 1  // they have inputs left (torch's Join)
};

// Why a process ends that does not end in order, where it can say so itself.
enum class ExitCause : uint8_t {
  kUnknown = 0,    // killed by a signal, os._exit: it says nothing
  kException = 1,  // an exception that nobody caught
  kInterrupt = 2,  // KeyboardInterrupt: SIGINT
};
inline constexpr uint8_t kMaxExitCause = 2;

// What a process records. It begins with kAll and changes between two steps.
enum class CaptureMode : uint8_t {
  kOff = 0,       // nothing, until the next such mark
  kAll = 1,       // everything of the plan
  kSkeleton = 2,  // what clocks and stages are made of: no content of calls, no
                  // calls beyond the skeleton, no states of a step
};
inline constexpr uint8_t kMaxCaptureMode = 2;

// What the user says that the code of this thread does from here on.
enum class UserStage : uint8_t {
  kNone = 0,  // nothing: it follows from the calls again
  kInit = 1,
  kTraining = 2,
  kEvaluation = 3,
};
inline constexpr uint8_t kMaxUserStage = 3;

// The innermost open call of this ring is a collective of this group.
struct CollectiveRecord {
  RecordHeader header;
  uint32_t group;  // ProcessGroupDef
  uint32_t reserved;
  uint64_t sequence;  // of this process's collectives of the group, from 0
};
static_assert(sizeof(CollectiveRecord) == 24);

struct PlaceRecord {
  RecordHeader header;
  int32_t rank;
  int32_t world_size;
  int32_t local_rank;  // -1: not known
  uint32_t source;     // PlaceSource
};
static_assert(sizeof(PlaceRecord) == 24);

enum class PlaceSource : uint32_t {
  kSingle = 0,        // trains without a process group: rank 0 of 1
  kEnvironment = 1,   // RANK and WORLD_SIZE at start
  kProcessGroup = 2,  // torch.distributed
};

// Written where records were dropped, as soon as there is room again.
struct DropsRecord {
  RecordHeader header;
  uint64_t dropped_records;  // of this ring, in all
};
static_assert(sizeof(DropsRecord) == 16);

// Fixed part of every definition; the rest is fields.
struct DefinitionRecord {
  RecordHeader header;
  uint32_t id;
  uint32_t aux;  // by type; else 0
};
static_assert(sizeof(DefinitionRecord) == 16);

// A field is the varint (Field << 2 | FieldKind) and its value. Tag 0 ends
// the fields early (padding up to 8 bytes). Unknown fields are skipped.
enum class FieldKind : uint8_t {
  kUnsigned = 0,  // varint
  kSigned = 1,    // zigzag varint
  kDouble = 2,    // 8 bytes
  kBytes = 3,     // varint length, then the bytes
};

enum class Field : uint32_t {
  kEnd = 0,
  // Calls. "str" is the id of a StringDef.
  kSelfObject = 1,     // unsigned: ObjectDef of self
  kParentRing = 2,     // unsigned
  kParentCall = 3,     // unsigned, full call number
  kException = 4,      // unsigned: str, the exception's class
  kArgumentName = 5,   // unsigned: str; names the value that follows
  kValueUnsigned = 6,  // unsigned (also bool)
  kValueSigned = 7,    // signed
  kValueDouble = 8,    // double
  kValueString = 9,    // unsigned: str
  kValueBool = 10,     // unsigned
  kValueNone = 11,     // unsigned, 0
  kValueTensor = 12,   // bytes: see RECORD_FORMAT.md "Tensors in calls"
  kValueLength = 13,   // unsigned: of the container whose elements may follow
  kValueDigest = 14,   // double's 8 bytes: of the tensor before it
  kValueObject = 15,   // unsigned: object id
  kValueType = 16,     // unsigned: str: class of any other value or container
  kParameter = 18,     // unsigned: str; in a FunctionDef: a parameter that
                       // calls tell; its default follows as a value
  kReturnTold = 19,    // unsigned, 1; in a FunctionDef: calls tell the result
  kArgument = 20,      // unsigned: position among the FunctionDef's kParameter,
                       // from 0; names the value that follows
  kElement = 21,       // unsigned: index in the container before it; names the
                       // value that follows
  kElementKey = 22,    // unsigned: str: key in the container before it
  kReturn = 23,        // unsigned, 0; names the value that follows
  kContentCut = 24,    // unsigned, 1: what follows did not fit
  // Definitions.
  kText = 32,           // bytes: StringDef, Mark kUncleanExit
  kName = 33,           // unsigned: str
  kCategory = 34,       // unsigned: str, see RECORD_FORMAT.md "Categories"
  kRole = 35,           // unsigned: str, repeated, narrow to general
  kFile = 36,           // unsigned: str
  kLine = 37,           // unsigned
  kFunctionName = 38,   // unsigned: str
  kCallerSite = 96,     // unsigned: SiteDef of the user's line through which
                        // this one was reached first; absent: there is none
  kClass = 39,          // unsigned: str
  kBaseClass = 40,      // unsigned: str, repeated: the MRO without object
  kObjectKind = 41,     // unsigned: ObjectKind
  kPath = 42,           // unsigned: str: qualified name inside the root
  kRootObject = 43,     // unsigned: object id
  kWrappedObject = 44,  // unsigned: object id
  kVariableKind = 45,   // unsigned: VariableKind
  kOwnerClass = 46,     // unsigned: str
  kDtype = 47,          // unsigned: str: "torch.float32"
  kDevice = 48,         // unsigned: str
  kDimension = 49,      // unsigned, repeated: the shape
  kTrainable = 50,      // unsigned: requires_grad at definition
  kAliasGroup = 51,     // unsigned: equal for names that share a storage
  kIdentityEpoch = 52,  // unsigned: how often the tensor was replaced
  kVariable = 53,       // unsigned, repeated: variable ids
  kEvidence = 54,       // unsigned: str: why the group holds replicas
  kMemberRank = 55,     // unsigned, repeated
  kWrapperObject = 56,  // unsigned: object id
  kRootClass = 57,      // unsigned: str: "Net", "Net#2"
  kPartBegin = 58,  // unsigned: a long list goes on here: how many variables
                    // the parts before this one named
  // Checkpoints and copies.
  kShadowOf = 90,  // unsigned: variable of which this one is a copy
  kLeftOut = 91,   // unsigned: entries of a checkpoint beyond its bound
  // ProcessDef. Text inline, because the relay reads this record alone.
  kHost = 64,              // bytes
  kBootId = 65,            // bytes
  kStartTicks = 66,        // unsigned: field 22 of /proc/PID/stat
  kParentPid = 67,         // unsigned
  kProcessKind = 68,       // unsigned: ProcessKind
  kWorkerId = 69,          // unsigned
  kRun = 70,               // bytes
  kExperiment = 71,        // bytes
  kAttempt = 72,           // unsigned
  kRunRole = 73,           // unsigned: RunRole
  kCheckSet = 74,          // bytes; absent: none asked for
  kScript = 75,            // bytes
  kAgentVersion = 76,      // bytes
  kTorchVersion = 77,      // bytes
  kPythonVersion = 78,     // bytes
  kParentProcess = 79,     // unsigned: start ticks of the parent
  kOwnerPid = 80,          // unsigned: main process that a worker serves
  kOwnerTicks = 81,        // unsigned
  kFirstRecordedNs = 82,   // unsigned: CLOCK_REALTIME
  kRunIsProvisional = 83,  // unsigned, 1: a later ProcessDef names the run
  kImage = 94,  // unsigned: drawn at random by each program that runs in the
                // process (exec); absent: an agent that did not draw
  // Place.
  kStart = 95,  // bytes: nonce, equal on the ranks of one start of a process
                // group and on no others; absent: no group, or not agreed
  // ProcessGroupDef, with kName and kMemberRank.
  kBackend = 84,        // unsigned: str: "gloo"
  kMesh = 85,           // unsigned: from 1: groups of one DeviceMesh have one
  kMeshDimension = 86,  // unsigned: position in the mesh
  kMeshName = 87,       // unsigned: str: name of the dimension, "dp"
  // ProcessDef of a loader's worker.
  kPassSeed = 92,   // unsigned: what the workers of one pass have in common
  kOwnerStep = 93,  // unsigned: step that was open in its owner; absent: it was
                    // not forked by it
  // VariableDef.
  kAttribute = 88,  // unsigned: str, repeated: "partition_dim=0"
};

// Flags in the bytes of kValueTensor.
enum TensorFlag : uint8_t {
  kTensorRequiresGrad = 1,
  kTensorHasGradFn = 2,
  kTensorAutogradKnown = 4,  // the two above were looked at
};

enum class ObjectKind : uint8_t {
  kUnknown = 0,
  kModule = 1,
  kOptimizer = 2,
  kLoader = 3,
  kOther = 4,
};

enum class VariableKind : uint8_t {
  kUnknown = 0,
  kParameter = 1,
  kBuffer = 2,
  kOptimizerState = 3,
  kGenerator = 4,    // the state of a random generator
  kLoaderState = 5,  // indices that a loader's sampler yields
  kInputs = 6,       // what a wrapper is given
};

enum class ProcessKind : uint8_t {
  kUnknown = 0,
  kMain = 1,    // trains
  kWorker = 2,  // DataLoader worker
  kOther = 3,
};

enum class RunRole : uint8_t { kTarget = 0, kReference = 1 };

constexpr size_t AlignRecord(size_t bytes) {
  return (bytes + kRecordAlignment - 1) & ~(kRecordAlignment - 1);
}

constexpr bool IsDefinition(uint8_t type) {
  return type >= static_cast<uint8_t>(RecordType::kStringDef) &&
         type <= static_cast<uint8_t>(RecordType::kProcessGroupDef);
}

}  // namespace traincheck

#endif  // TRAINCHECK_PROTO_RECORD_FORMAT_H_
