#include "agent/relay/identity.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/secret.h"
#include "base/utf8.h"
#include "proto/record_reader.h"

namespace traincheck::agent {
namespace {

// A number from the record: a later agent may name a kind that this relay does
// not know.
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

// Protobuf strings have to be UTF-8, whereas host names and paths of the
// training may be any bytes; each byte that does not fit becomes a question
// mark.
std::string Text(std::string_view bytes) { return ToUtf8(bytes); }

// Copies the fields of a ProcessDef that a Hello carries. The daemon reads the
// others from the record itself.
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
    case Field::kImage:
      return process->set_image(number);
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

// The boot id becomes part of a file name, so a slash or a dot in it must not
// lead out of the folder.
bool IsBootId(const std::string& text) {
  return !text.empty() && text.size() <= 64 &&
         std::all_of(text.begin(), text.end(), [](unsigned char c) {
           return absl::ascii_isalnum(c) || c == '-';
         });
}

// The record comes from the training process and is checked; pid and user come
// from the kernel.
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
  // The pid is the kernel's and not the record's, which another process may
  // have written.
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

// Boot, pid and start time: no two processes of a host share all three.
std::string ProcessPrefix(const v1::ProcessIdentity& process) {
  return absl::StrCat(process.boot_id(), "-", process.pid(), "-",
                      process.start_ticks());
}

std::string ImageText(const v1::ProcessIdentity& process) {
  return absl::StrCat(absl::Hex(process.image(), absl::kZeroPad16));
}

}  // namespace

// The identity is looked for in a copy of the ring's beginning; nothing is
// taken from the ring.
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
  if (process.image() == 0) return EarlierSpoolName(process);
  constexpr size_t kBytes = 8;  // of the hash: enough to tell programs apart
  const std::string hash =
      Sha256(absl::StrCat("traincheck spool ", ImageText(process)));
  return absl::StrCat(ProcessPrefix(process), "-",
                      absl::BytesToHexString(hash.substr(0, kBytes)), ".spool");
}

std::string EarlierSpoolName(const v1::ProcessIdentity& process) {
  const std::string image =
      process.image() == 0 ? "" : absl::StrCat("-", ImageText(process));
  return absl::StrCat(ProcessPrefix(process), image, ".spool");
}

// Spares opening a file: orphans of this boot are recognised by their names.
std::optional<v1::ProcessIdentity> ProcessOfSpoolName(std::string_view name,
                                                      const std::string& boot) {
  const std::string prefix = boot + "-";
  if (boot.empty() || name.substr(0, prefix.size()) != prefix) {
    return std::nullopt;
  }
  const std::string numbers(name.substr(prefix.size()));
  const size_t dash = numbers.find('-');
  if (dash == std::string::npos) return std::nullopt;
  // A hash follows, or the extension where the agent drew no image.
  const size_t end = numbers.find_first_of("-.", dash + 1);
  uint32_t pid = 0;
  uint64_t ticks = 0;
  if (!absl::SimpleAtoi(numbers.substr(0, dash), &pid) ||
      !absl::SimpleAtoi(numbers.substr(dash + 1, end - dash - 1), &ticks)) {
    return std::nullopt;
  }
  v1::ProcessIdentity process;
  process.set_boot_id(boot);
  process.set_pid(pid);
  process.set_start_ticks(ticks);
  return process;
}

bool IsSpoolNameOf(std::string_view name, const v1::ProcessIdentity& process) {
  const std::string prefix = ProcessPrefix(process);
  return name.substr(0, prefix.size()) == prefix &&
         // What follows must not be a digit: the start time 34 begins like 345.
         (name.substr(prefix.size(), 1) == "-" ||
          name.substr(prefix.size()) == ".spool");
}

}  // namespace traincheck::agent
