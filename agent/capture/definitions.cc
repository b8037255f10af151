#include "agent/capture/definitions.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "agent/capture/clock.h"
#include "agent/capture/log.h"
#include "agent/capture/version.h"

namespace traincheck::agent {
namespace {

// Room for the variables of some thousand models. Definitions are kept only
// while the relay takes nothing.
constexpr size_t kMaxKeptBytes = 64u << 20;

// The fields of a ProcessDef, in no particular order; fields without a value
// are left out.
void PutProcess(const ProcessIdentity& identity, Definition* def) {
  def->Inline(Field::kHost, identity.host);
  def->Inline(Field::kBootId, identity.boot_id);
  def->Number(Field::kStartTicks, identity.start_ticks);
  def->Number(Field::kParentPid, identity.parent_pid);
  def->Number(Field::kParentProcess, identity.parent_ticks);
  def->Number(Field::kProcessKind, static_cast<uint64_t>(identity.kind));
  if (identity.kind == ProcessKind::kWorker) {
    def->Number(Field::kWorkerId, identity.worker_id);
    if (identity.pass_seed) def->Number(Field::kPassSeed, *identity.pass_seed);
    if (identity.owner_step) {
      def->Number(Field::kOwnerStep, *identity.owner_step);
    }
  }
  def->Inline(Field::kRun, identity.run);
  def->Inline(Field::kExperiment, identity.experiment);
  def->Number(Field::kAttempt, identity.attempt);
  def->Number(Field::kRunRole, static_cast<uint64_t>(identity.role));
  if (!identity.check_set.empty()) {
    def->Inline(Field::kCheckSet, identity.check_set);
  }
  def->Inline(Field::kScript, identity.script);
  def->Inline(Field::kAgentVersion, kAgentVersion);
  def->Inline(Field::kTorchVersion, identity.torch_version);
  def->Inline(Field::kPythonVersion, identity.python_version);
  if (identity.owner_pid != 0) {
    def->Number(Field::kOwnerPid, identity.owner_pid);
    def->Number(Field::kOwnerTicks, identity.owner_ticks);
  }
  def->Number(Field::kFirstRecordedNs, identity.first_recorded_ns);
  if (identity.image != 0) def->Number(Field::kImage, identity.image);
  if (identity.run_is_provisional) def->Number(Field::kRunIsProvisional, 1);
}

}  // namespace

Definitions::Definitions(std::unique_ptr<RingWriter> ring)
    : ring_(std::move(ring)), last_us_(MonotonicNs() / 1000) {}

// The writers are stopped before anything of theirs could refer to a definition
// that is not there, and go on once all of them are.
void Definitions::SetBlocked(bool blocked) {
  if (blocked_ == blocked) return;
  blocked_ = blocked;
  if (told_) told_(blocked);
}

// The kept definitions go first and in their order, because later ones refer to
// earlier ones.
void Definitions::RetrySlow() {
  while (!kept_.empty() &&
         ring_->TryAppend(kept_.front().data(), kept_.front().size())) {
    kept_bytes_ -= kept_.front().size();
    kept_.pop_front();
  }
  // Not for the next few only: the writers would go on and stop for each.
  const bool roomy = ring_->backlog() <= ring_->capacity_bytes() / 2;
  if (kept_.empty() && roomy && !overfull_) SetBlocked(false);
}

bool Definitions::Put(const char* record, size_t size, bool keep) {
  // While blocked nothing goes past what is kept: it may use what a kept one
  // defines.
  if (!blocked_ && ring_->TryAppend(record, size)) return true;
  SetBlocked(true);
  if (!keep) return false;
  if (kept_bytes_ + size > kMaxKeptBytes) {
    overfull_ = true;
    LogOnce("definitions",
            "the relay takes nothing and there are too many definitions to "
            "keep: records of this process are dropped from now on");
    return false;
  }
  kept_.emplace_back(record, size);
  kept_bytes_ += size;
  return true;
}

bool Definitions::Process(const ProcessIdentity& identity) {
  Definition def(*this, identity.pid, 0, Definition::NoRoom::kKeep);
  PutProcess(identity, &def);
  return def.Commit(RecordType::kProcessDef);
}

uint32_t Definitions::String(std::string_view text) {
  return StringId(text, /*keep=*/false);
}

// `keep`: the definition that uses the text is kept, so its text must be, too.
uint32_t Definitions::StringId(std::string_view text, bool keep) {
  // Longer texts that begin alike share a number.
  const std::string key(text.substr(0, kMaxStringBytes));
  const auto known = strings_.find(key);
  if (known != strings_.end()) return known->second;
  const uint32_t id = static_cast<uint32_t>(strings_.size()) + 1;
  Definition def(*this, id, 0,
                 keep ? Definition::NoRoom::kKeep : Definition::NoRoom::kFail);
  def.Inline(Field::kText, key);
  // The number is valid only if the definition is committed or kept; 0 says
  // that there is none, and the next use tries again.
  if (!def.Commit(RecordType::kStringDef)) return 0;
  strings_.emplace(key, id);
  return id;
}

uint32_t Definitions::ValueName(std::string_view name) {
  const uint32_t known = KnownString(name);
  if (known != 0) return known;
  if (value_names_ >= kMaxValueNames) return 0;
  const uint32_t id = String(name);
  value_names_ += id != 0;
  return id;
}

// For look-ups alone: nothing is defined.
uint32_t Definitions::KnownString(std::string_view text) const {
  const auto known =
      strings_.find(std::string(text.substr(0, kMaxStringBytes)));
  return known != strings_.end() ? known->second : 0;
}

uint32_t Definitions::Function(const FunctionFacts& facts) {
  // The number is taken only with the definition, so that numbers have no gaps.
  Definition def(*this, functions_ + 1);
  def.Text(Field::kName, facts.name);
  def.Text(Field::kCategory, facts.category);
  for (const std::string& role : facts.roles) def.Text(Field::kRole, role);
  for (const ParameterFacts& parameter : facts.parameters) {
    def.Text(Field::kParameter, parameter.name);
    def.Plain(parameter.fallback);
  }
  if (facts.tells_return) def.Number(Field::kReturnTold, 1);
  return def.Commit(RecordType::kFunctionDef) ? ++functions_ : 0;
}

std::optional<uint32_t> Definitions::Site(std::string_view file, uint32_t line,
                                          std::string_view function,
                                          uint32_t caller) {
  // 0 stands for a text that was never defined, so such a place is not found.
  // Code that is compiled again (a cell of a notebook) comes to the numbers
  // that it had.
  const auto known =
      sites_.find({KnownString(file), line, KnownString(function)});
  if (known != sites_.end()) return known->second;
  if (sites() >= kMaxSites) return 0;
  const uint32_t id = sites() + 1;
  Definition def(*this, id);
  def.Text(Field::kFile, file);
  def.Number(Field::kLine, line);
  def.Text(Field::kFunctionName, function);
  if (caller != 0) def.Number(Field::kCallerSite, caller);
  if (!def.Commit(RecordType::kSiteDef)) return std::nullopt;
  sites_[{KnownString(file), line, KnownString(function)}] = id;
  return id;
}

// The buffer is as large as the largest record. 64 KiB would be too much for
// the stack, on which the program's own frames lie.
Definition::Definition(Definitions& all, uint32_t id, uint32_t aux,
                       NoRoom no_room)
    : all_(all),
      keep_(no_room == NoRoom::kKeep),
      buffer_(new char[kMaxRecordBytes]),
      out_(buffer_.get(), kMaxRecordBytes, DefinitionRecord{{}, id, aux}) {}

void Definition::Text(Field field, std::string_view text) {
  // A text's definition is committed here and so before the one that uses it,
  // which is still in its buffer.
  const uint32_t id = all_.StringId(text, keep_);
  complete_ = complete_ && id != 0;
  out_.Unsigned(field, id);
  Mix(field, text);
}

void Definition::Inline(Field field, std::string_view text) {
  out_.Bytes(field, text);
  Mix(field, text);
}

void Definition::Number(Field field, uint64_t value) {
  out_.Unsigned(field, value);
  Mix(field, {reinterpret_cast<const char*>(&value), sizeof value});
}

// A default of None and no default at all differ: None has a field, the other
// has none.
void Definition::Plain(const PlainValue& value) {
  if (const auto* text = std::get_if<std::string>(&value)) {
    Text(Field::kValueString, *text);
  } else if (const auto* truth = std::get_if<bool>(&value)) {
    Number(Field::kValueBool, *truth);
  } else if (const auto* number = std::get_if<int64_t>(&value)) {
    out_.Signed(Field::kValueSigned, *number);
    Mix(Field::kValueSigned,
        {reinterpret_cast<const char*>(number), sizeof *number});
  } else if (const auto* real = std::get_if<double>(&value)) {
    out_.Double(Field::kValueDouble, *real);
    Mix(Field::kValueDouble,
        {reinterpret_cast<const char*>(real), sizeof *real});
  } else if (std::holds_alternative<std::nullptr_t>(value)) {
    Number(Field::kValueNone, 0);
  }
}

void Definition::Mix(Field field, std::string_view bytes) {
  constexpr uint64_t kOdd = 0x9e3779b97f4a7c15;
  // Compared within this process alone, so any hash will do.
  const uint64_t hash = std::hash<std::string_view>()(bytes);
  fingerprint_ = (fingerprint_ ^ hash ^ static_cast<uint64_t>(field)) * kOdd;
  fingerprint_ ^= fingerprint_ >> 32;
}

// `last_us_` is the time of the last committed record of ring 0, from which
// readers add up.
bool Definition::Commit(RecordType type) {
  const uint64_t now_us = MonotonicNs() / 1000;
  // Longer pauses, of more than 71 minutes, do not fit (RECORD_FORMAT.md).
  const uint64_t delta_us =
      std::min<uint64_t>(now_us - all_.last_us_, UINT32_MAX);
  const size_t size = out_.Finish(type, 0, static_cast<uint32_t>(delta_us));
  // A definition that lacks one of its texts is not written at all: its next
  // use tries again.
  if (!complete_ || size == 0) return false;
  if (!all_.Put(buffer_.get(), size, keep_)) return false;
  // Times are recorded as differences: a record that was not committed must not
  // count.
  all_.last_us_ = now_us;
  return true;
}

}  // namespace traincheck::agent
