#include "invariants/trace/process_reader.h"

#include <algorithm>
#include <string>
#include <utility>

#include "invariants/trace/call_contexts.h"

namespace traincheck {

namespace {

// Does the field begin the recorded arguments of a call?
bool IsContent(Field field) {
  return field == Field::kArgument || field == Field::kArgumentName ||
         field == Field::kContentCut;
}

// Calls at whose begin a step may close, as proto/step_rule.h says. Steps also
// close at marks (a fetched batch, the user's own), which need no look ahead.
bool MayCloseStep(const Call& call) {
  return IsRootForward(call) || IsOptimizerStep(call) ||
         HasCategory(call, CallCategory::kZeroGrad) ||
         HasCategory(call, CallCategory::kDestroyProcessGroup);
}

// What the agent records at the begin of a call only once the step is closed.
bool FollowsClose(const RecordReader& record) {
  switch (record.type()) {
    case RecordType::kCallBegin:
    case RecordType::kCallEnd:
    case RecordType::kCallRaised:
      return true;
    case RecordType::kState: {
      const auto point =
          static_cast<StatePoint>(record.Get<StateRecord>().point);
      return point == StatePoint::kPreStep || point == StatePoint::kGradClear ||
             point == StatePoint::kForwardBegin ||
             point == StatePoint::kStepEnd;
    }
    default:
      return false;
  }
}

MarkEvent MarkOf(const RecordReader& record, uint32_t ring,
                 const std::vector<Call>& open) {
  const auto& mark = record.Get<MarkRecord>();
  return {static_cast<MarkKind>(mark.header.flags), mark.object, mark.value,
          open.empty() ? nullptr : &open.back(), ring};
}

bool IsSwitchedOff(const MarkRecord& mark) {
  return static_cast<MarkKind>(mark.header.flags) == MarkKind::kCaptureMode &&
         mark.value == static_cast<uint64_t>(CaptureMode::kOff);
}

}  // namespace

void ProcessReader::Miss(const std::string& reason) {
  missed_ = true;
  visitor_->OnGap(reason);
}

// Missing records may hold ends of calls. Which of the ring's open calls still
// are open shows at its next begin, which names its parent.
void ProcessReader::Gap(Ring* ring, const std::string& reason) {
  ring->resync = true;
  Miss(reason);
}

std::vector<ProcessReader::Cursor> ProcessReader::Slices(
    const StoredBatch& batch) {
  std::vector<Cursor> cursors;
  const std::string_view plain(batch.plain);
  uint64_t at = 0;
  for (const RingSlice& slice : batch.slices) {
    // May wrap if the slice ends before it begins; that is refused below before
    // the size is used.
    const uint64_t size = slice.to - slice.from;
    Ring& ring = rings_[slice.ring];
    if (slice.to < slice.from || size > plain.size() - at ||
        at % kRecordAlignment != 0) {
      // Where the slices behind this one begin is not known either.
      Gap(&ring, "a stored batch does not fit its slices");
      return cursors;
    }
    // A ring begins at 0, so this also finds records that are missing before
    // its first batch.
    if (slice.from != ring.position) {
      Gap(&ring, "a hole between two batches");
    }
    ring.position = slice.to;
    cursors.emplace_back(slice.ring, &ring, plain.substr(at, size));
    at += size;
  }
  return cursors;
}

bool ProcessReader::Define(const RecordReader& record) {
  if (definitions_.Apply(record)) return true;
  if (definitions_.full()) {
    Gap(&rings_[kDefinitionRing],
        "the process defines more than " +
            std::to_string(kMaxDefinitionBytes >> 20) + " MiB");
  }
  return false;
}

// A definition with a new id is taken over before the events of its batch:
// the clocks of two rings are not exact enough to sort it before its first
// use. One that replaces another waits for its place in time.
void ProcessReader::DefineNew(std::string_view bytes) {
  RecordReader records(bytes);
  while (records.Next()) {
    if (!IsDefinition(records.header().type) || definitions_.Knows(records)) {
      continue;
    }
    if (!Define(records)) continue;
    defined_.push_back(records.offset());
    visitor_->OnDefinition(records.type(), records.Get<DefinitionRecord>().id);
  }
}

void ProcessReader::Read(const StoredBatch& batch) {
  // A note of the relay that the process lives: it has no records, and time
  // goes on by it.
  if (batch.quiet_us != 0) {
    now_us_ = std::max(now_us_, batch.quiet_us);
    return visitor_->OnQuiet();
  }
  // In this order: a cursor for each ring at its first record, then the
  // definitions that the batch brings, then the events of all rings, merged by
  // time.
  std::vector<Cursor> cursors = Slices(batch);
  defined_.clear();
  for (Cursor& cursor : cursors) Advance(&cursor);
  uint64_t at = 0;
  for (size_t i = 0; i < cursors.size(); ++i) {
    const RingSlice& slice = batch.slices[i];
    const uint64_t size = slice.to - slice.from;
    if (slice.ring == kDefinitionRing) {
      DefineNew(std::string_view(batch.plain).substr(at, size));
    }
    at += size;
  }
  // Once definitions are missing anything may be misunderstood (what an
  // optimizer holds, who replicates what): each later event comes with a gap
  // of its own. No call begins on that ring, so its `resync` stays.
  const auto defining = rings_.find(kDefinitionRing);
  const bool undefined = defining != rings_.end() && defining->second.resync;
  while (true) {
    Cursor* next = nullptr;
    // The earliest record of all rings. Of equal times the ring that comes
    // first in the batch leads, so that a batch always gives the same order of
    // events, live and from the store. A process has 64 rings at most, so a
    // search does for them.
    for (Cursor& cursor : cursors) {
      if (cursor.more && (!next || cursor.time_us < next->time_us)) {
        next = &cursor;
      }
    }
    if (!next) return;
    // Deferred digests belong to events that were shown before.
    if (undefined && next->id != kDefinitionRing &&
        next->records.type() != RecordType::kDeferredDigests) {
      static const std::string* const kUndefined =
          new std::string("definitions are missing");
      Miss(*kUndefined);
    }
    now_us_ = std::max(now_us_, next->time_us);
    Dispatch(next);
    Advance(next);
  }
}

// Records have the time since the one before on their ring. A long pause does
// not fit into it: the absolute time comes with each ClockSync.
void ProcessReader::Advance(Cursor* cursor) {
  Ring* ring = cursor->ring;
  cursor->more = cursor->records.Next();
  if (!cursor->more) {
    if (!cursor->records.ok()) Gap(ring, "a stored batch is malformed");
    return;
  }
  if (cursor->records.type() == RecordType::kClockSync) {
    ring->time_us = cursor->records.Get<ClockSyncRecord>().monotonic_ns / 1000;
  } else {
    ring->time_us += cursor->records.header().delta_us;
  }
  cursor->time_us = ring->time_us;
}

void ProcessReader::Dispatch(Cursor* cursor) {
  const RecordReader& record = cursor->records;
  if (IsDefinition(record.header().type)) {
    // Each of these was shown before the events of the batch. Their offsets
    // were noted in rising order.
    if (std::binary_search(defined_.begin(), defined_.end(), record.offset())) {
      return;
    }
    if (Define(record)) {
      visitor_->OnDefinition(record.type(), record.Get<DefinitionRecord>().id);
    }
    return;
  }
  switch (record.type()) {
    case RecordType::kClockSync:
      cursor->ring->next_call = record.Get<ClockSyncRecord>().next_call;
      return;
    case RecordType::kCallBegin:
      return BeginCall(cursor);
    case RecordType::kCallEnd:
    case RecordType::kCallRaised:
      return EndCall(cursor);
    case RecordType::kState:
      return State(cursor);
    case RecordType::kStatistics:
      return Statistics(record);
    case RecordType::kRowDigests:
      return Rows(record);
    case RecordType::kScalar:
      return Scalar(record);
    case RecordType::kCollective:
      return Collective(cursor);
    case RecordType::kContextEnter:
    case RecordType::kContextExit:
      return visitor_->OnContext(
          {record.type() == RecordType::kContextEnter, cursor->id,
           definitions_.Function(record.Get<ContextRecord>().function),
           record.Fields().rest()});
    case RecordType::kCheckpointEntry:
      return CheckpointEntry(cursor);
    case RecordType::kMark: {
      if (record.offset() == cursor->told) return;
      visitor_->OnMark(MarkOf(record, cursor->id, cursor->ring->open));
      if (IsSwitchedOff(record.Get<MarkRecord>())) SwitchedOff();
      return;
    }
    case RecordType::kPlace:
      return visitor_->OnPlace(record.Get<PlaceRecord>());
    case RecordType::kDrops:
      return Drops(cursor->ring, record.Get<DropsRecord>().dropped_records);
    default:
      return;  // padding, types of later versions
  }
}

// What happens until the next such mark is not recorded. The ring of
// definitions is left out: definitions go on, and as no call begins on that
// ring its `resync` would stay.
void ProcessReader::SwitchedOff() {
  for (auto& [id, ring] : rings_) {
    if (id != kDefinitionRing) ring.resync = true;
  }
  Miss("recording was switched off by the plan");
}

// Such a record has the sum since the ring began, so one that is missing itself
// is made good by the next.
void ProcessReader::Drops(Ring* ring, uint64_t dropped) {
  if (dropped > ring->dropped) {
    Gap(ring, "dropped " + std::to_string(dropped - ring->dropped));
  }
  ring->dropped = dropped;
}

uint64_t ProcessReader::FullCall(Ring* ring, uint32_t low) {
  // Low bits that lie more than half a turn below the expected ones have
  // wrapped.
  uint64_t full = (ring->next_call & ~uint64_t{UINT32_MAX}) | low;
  if (full + UINT32_MAX / 2 < ring->next_call) full += uint64_t{1} << 32;
  return full;
}

void ProcessReader::Abandon(Ring* ring, size_t keep) {
  while (ring->open.size() > keep) {
    visitor_->OnCallEnd(ring->open.back(), CallOutcome::kUnknown, 0);
    ring->open.pop_back();
  }
}

void ProcessReader::BeginCall(Cursor* cursor) {
  Ring* ring = cursor->ring;
  const auto& begin = cursor->records.Get<CallBeginRecord>();
  Call call;
  call.ring = cursor->id;
  call.number = FullCall(ring, begin.call);
  // Calls are numbered without holes. One here means that records are missing,
  // also where the positions of the batches follow each other.
  if (ring->next_call != 0 && call.number != ring->next_call) {
    Gap(ring, "a hole between two calls");
  }
  ring->next_call = call.number + 1;
  call.function_id = begin.function;
  call.function = definitions_.Function(begin.function);
  call.site = begin.site;
  call.begin_us = cursor->time_us;
  call.flags = begin.header.flags;
  FieldReader fields = cursor->records.Fields();
  for (std::string_view rest = fields.rest(); fields.Next();
       rest = fields.rest()) {
    if (IsContent(fields.field())) {
      call.content = std::string(rest);
      break;  // comes last
    }
    if (fields.field() == Field::kSelfObject) {
      call.object = static_cast<uint32_t>(fields.unsigned_value());
    } else if (fields.field() == Field::kParentRing) {
      call.parent_ring = static_cast<uint32_t>(fields.unsigned_value());
    } else if (fields.field() == Field::kParentCall) {
      call.parent_number = fields.unsigned_value();
    }
  }
  if (ring->resync) {
    // The begin record names its parent: what lies above it has ended.
    size_t keep = 0;
    const uint64_t parent =
        begin.parent_distance == 0 ? 0 : call.number - begin.parent_distance;
    while (keep < ring->open.size() && ring->open[keep].number <= parent) {
      ++keep;
    }
    Abandon(ring, keep);
    ring->resync = false;
  }
  // As long as nothing is missing every parent is among the open calls.
  if (missed_ && begin.parent_distance != 0) {
    const uint64_t parent = call.number - begin.parent_distance;
    call.orphan = ring->open.empty() || ring->open.back().orphan ||
                  ring->open.back().number != parent;
  }
  if (!call.function) Miss("a function's definition is missing");
  // Until the first gap the clock derives steps by the rule, and needs no mark.
  if (missed_ && MayCloseStep(call)) TellOfStep(cursor);
  // Pointers to open calls hold during one event only: the next begin may move
  // them. A visitor copies what it keeps.
  ring->open.push_back(std::move(call));
  visitor_->OnCallBegin(ring->open.back());
}

// Since records were missing the clock goes by the agent's marks. A call that
// closes a step belongs to the next one, but the agent writes the mark behind
// the begin of the call. So the mark is searched for ahead and shown before the
// call; `told` keeps Dispatch from showing it twice.
void ProcessReader::TellOfStep(Cursor* cursor) {
  RecordReader ahead = cursor->records;
  while (ahead.Next()) {
    if (FollowsClose(ahead)) return;
    if (ahead.type() != RecordType::kMark) continue;
    const MarkEvent mark = MarkOf(ahead, cursor->id, cursor->ring->open);
    if (mark.kind == MarkKind::kStepClosed) cursor->told = ahead.offset();
    // A stage comes after it, and may be shown again.
    if (cursor->told == ahead.offset() || mark.kind == MarkKind::kUserStage) {
      visitor_->OnMark(mark);
    }
  }
  // The mark may be in the next batch. The call is shown without it, and the
  // step counts as not known.
  Miss("a batch ends where a step may close");
}

void ProcessReader::EndCall(Cursor* cursor) {
  Ring* ring = cursor->ring;
  const auto& end = cursor->records.Get<CallEndRecord>();
  size_t at = ring->open.size();
  // The innermost call with these low bits. It is the last one unless ends are
  // missing.
  while (at > 0 && static_cast<uint32_t>(ring->open[at - 1].number) != end.call)
    --at;
  if (at == 0) return;  // its begin was not recorded
  if (at != ring->open.size()) {
    Miss("the end of a call is missing");
    Abandon(ring, at);
  }
  Call& call = ring->open.back();
  const bool raised = cursor->records.type() == RecordType::kCallRaised;
  if (!raised) call.result = std::string(cursor->records.Fields().rest());
  visitor_->OnCallEnd(call,
                      raised ? CallOutcome::kRaised : CallOutcome::kReturned,
                      // An exception has no output.
                      raised ? 0 : end.header.flags);
  ring->open.pop_back();
}

void ProcessReader::State(Cursor* cursor) {
  const RecordReader& record = cursor->records;
  const auto& state = record.Get<StateRecord>();
  StateEvent event;
  event.variable_id = state.variable;
  event.variable = definitions_.Variable(state.variable);
  event.point = static_cast<StatePoint>(state.point);
  event.content = state.content;
  if (event.Has(kHasData)) event.data = record.data_digest();
  if (event.Has(kHasGrad)) event.grad = record.grad_digest();
  deferred_.Complete(record, &event);
  const std::vector<Call>& open = cursor->ring->open;
  event.call = open.empty() ? nullptr : &open.back();
  if (!event.variable) {
    // Nobody could say what the state is of, so it is not shown, and what
    // waited for it is unknown.
    Miss("a variable's definition is missing");
    return;
  }
  visitor_->OnState(event);
}

void ProcessReader::Statistics(const RecordReader& record) {
  const auto& statistics = record.Get<StatisticsRecord>();
  visitor_->OnStatistics({statistics.variable,
                          static_cast<StatePoint>(statistics.point),
                          statistics.of, statistics.norm, statistics.absmax,
                          statistics.nan_count, statistics.inf_count});
}

void ProcessReader::Rows(const RecordReader& record) {
  const auto& rows = record.Get<RowDigestsRecord>();
  RowsEvent event;
  event.variable_id = rows.variable;
  event.variable = definitions_.Variable(rows.variable);
  // That its definition is missing was said at its state record.
  if (!event.variable) return;
  event.point = static_cast<StatePoint>(rows.point);
  event.of = rows.of;
  event.first_row = rows.first_row;
  event.rows = rows.rows;
  event.digests = record.row_digests();
  visitor_->OnRows(event);
}

void ProcessReader::Collective(Cursor* cursor) {
  const auto& collective = cursor->records.Get<CollectiveRecord>();
  const auto& groups = definitions_.process_groups();
  const auto group = groups.find(collective.group);
  const std::vector<Call>& open = cursor->ring->open;
  visitor_->OnCollective(
      {collective.group, group == groups.end() ? nullptr : &group->second,
       collective.sequence, open.empty() ? nullptr : &open.back()});
}

void ProcessReader::CheckpointEntry(Cursor* cursor) {
  const auto& entry = cursor->records.Get<CheckpointEntryRecord>();
  const std::vector<Call>& open = cursor->ring->open;
  CheckpointEntryEvent event;
  event.key = &definitions_.String(entry.key);
  event.point = static_cast<StatePoint>(entry.point);
  if (entry.content & kHasData) event.digest = entry.digest;
  event.call = open.empty() ? nullptr : &open.back();
  FieldReader fields = cursor->records.Fields();
  while (fields.Next()) {
    const uint64_t value = fields.unsigned_value();
    if (fields.field() == Field::kDtype) {
      event.dtype = definitions_.String(static_cast<uint32_t>(value));
    } else if (fields.field() == Field::kDimension) {
      event.shape.push_back(value);
    } else if (fields.field() == Field::kVariable) {
      event.variable = static_cast<uint32_t>(value);
    } else if (fields.field() == Field::kLeftOut) {
      event.left_out = value;
    }
  }
  visitor_->OnCheckpointEntry(event);
}

void ProcessReader::Scalar(const RecordReader& record) {
  const auto& scalar = record.Get<ScalarRecord>();
  visitor_->OnScalar({scalar.object, static_cast<StatePoint>(scalar.point),
                      scalar.group, &definitions_.String(scalar.name),
                      scalar.value});
}

void ProcessReader::Fields(Archive& archive) {
  archive(definitions_);
  // Before the rings: their open calls look up their functions in it.
  archive.set_table(&definitions_);
  archive(rings_, missed_, now_us_, deferred_);
}

void ProcessReader::Ring::Fields(Archive& archive) {
  archive(position, time_us, next_call, dropped, resync, open);
}

}  // namespace traincheck
