#include "agent/relay/identity.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "proto/record_reader.h"

namespace traincheck {
namespace {

v1::ProcessKind KindOf(uint64_t kind) {
  return kind <= static_cast<uint64_t>(ProcessKind::kOther)
             ? static_cast<v1::ProcessKind>(kind)
             : v1::PROCESS_KIND_UNSPECIFIED;
}

v1::RunRole RoleOf(uint64_t role) {
  return role == static_cast<uint64_t>(RunRole::kReference)
             ? v1::RUN_ROLE_REFERENCE
             : v1::RUN_ROLE_TARGET;
}

// Length of the UTF-8 sequence at the front of `text`; 0: there is none.
size_t Utf8Length(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t lead = byte(0);
  if (lead < 0x80) return 1;
  const size_t length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || text.size() < length) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  // Overlong forms, surrogates and what lies above U+10FFFF.
  if ((lead == 0xe0 && byte(1) < 0xa0) || (lead == 0xed && byte(1) > 0x9f) ||
      (lead == 0xf0 && byte(1) < 0x90) || (lead == 0xf4 && byte(1) > 0x8f)) {
    return 0;
  }
  return length;
}

// Protobuf strings have to be UTF-8; file names need not be.
std::string Text(std::string_view bytes) {
  std::string text;
  while (!bytes.empty()) {
    const size_t length = Utf8Length(bytes);
    text += length == 0 ? "?" : bytes.substr(0, length);
    bytes.remove_prefix(length == 0 ? 1 : length);
  }
  return text;
}

void SetProcessField(const FieldReader& field, v1::ProcessIdentity* process) {
  const uint64_t number = field.unsigned_value();
  switch (field.field()) {
    case Field::kHost:
      return process->set_host(Text(field.bytes_value()));
    case Field::kBootId:
      return process->set_boot_id(Text(field.bytes_value()));
    case Field::kStartTicks:
      return process->set_start_ticks(number);
    case Field::kParentPid:
      return process->set_parent_pid(static_cast<uint32_t>(number));
    case Field::kProcessKind:
      return process->set_kind(KindOf(number));
    case Field::kWorkerId:
      return process->set_worker_id(static_cast<uint32_t>(number));
    case Field::kOwnerPid:
      return process->set_owner_pid(static_cast<uint32_t>(number));
    case Field::kOwnerTicks:
      return process->set_owner_start_ticks(number);
    default:
      return;
  }
}

void SetRunField(const FieldReader& field, v1::Hello* hello) {
  switch (field.field()) {
    case Field::kRun:
      return hello->set_run(Text(field.bytes_value()));
    case Field::kExperiment:
      return hello->set_experiment(Text(field.bytes_value()));
    case Field::kAttempt:
      return hello->set_attempt(static_cast<uint32_t>(field.unsigned_value()));
    case Field::kRunRole:
      return hello->set_role(RoleOf(field.unsigned_value()));
    case Field::kCheckSet:
      return hello->set_check_set(Text(field.bytes_value()));
    case Field::kScript:
      return hello->set_script(Text(field.bytes_value()));
    case Field::kAgentVersion:
      return hello->set_agent_version(Text(field.bytes_value()));
    case Field::kTorchVersion:
      return hello->set_torch_version(Text(field.bytes_value()));
    case Field::kPythonVersion:
      return hello->set_python_version(Text(field.bytes_value()));
    case Field::kFirstRecordedNs:
      return hello->set_started_unix_ns(field.unsigned_value());
    default:
      return;
  }
}

// The boot id becomes part of a file name.
bool IsBootId(const std::string& text) {
  return !text.empty() && text.size() <= 64 &&
         std::all_of(text.begin(), text.end(), [](unsigned char c) {
           return absl::ascii_isalnum(c) || c == '-';
         });
}

absl::StatusOr<Introduction> IntroductionOf(const RecordReader& record,
                                            uint32_t pid) {
  Introduction introduction;
  v1::Hello& hello = introduction.hello;
  hello.set_format_version_min(kRecordFormatVersionMin);
  hello.set_format_version_max(kRecordFormatVersion);
  hello.set_role(v1::RUN_ROLE_TARGET);
  FieldReader fields = record.Fields();
  while (fields.Next()) {
    SetProcessField(fields, hello.mutable_process());
    SetRunField(fields, &hello);
    introduction.run_is_provisional |=
        fields.field() == Field::kRunIsProvisional;
  }
  hello.mutable_process()->set_pid(pid);
  if (!fields.ok()) {
    return absl::InvalidArgumentError("its ProcessDef has a malformed field");
  }
  if (!IsBootId(hello.process().boot_id()) ||
      hello.process().start_ticks() == 0) {
    return absl::InvalidArgumentError(
        "its ProcessDef names no boot id or no start time");
  }
  return introduction;
}

}  // namespace

absl::StatusOr<std::optional<Introduction>> FindIntroduction(
    std::string_view definitions, uint32_t pid) {
  std::optional<Introduction> found;
  RecordReader records(definitions);
  while (records.Next()) {
    if (records.type() != RecordType::kProcessDef) continue;
    absl::StatusOr<Introduction> next = IntroductionOf(records, pid);
    if (!next.ok()) return next.status();
    found = *std::move(next);
    if (!found->run_is_provisional) break;
  }
  // A record that is cut by the end of the bytes is as good as none.
  return found;
}

std::string SpoolName(const v1::ProcessIdentity& process) {
  return absl::StrCat(process.boot_id(), "-", process.pid(), "-",
                      process.start_ticks(), ".spool");
}

}  // namespace traincheck
