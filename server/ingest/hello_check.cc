#include "server/ingest/hello_check.h"

#include <algorithm>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/printable_text.h"
#include "proto/record_format.h"
#include "server/ingest/limits.h"

namespace traincheck::server {
namespace {

absl::Status Malformed(absl::string_view field, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("Hello.", field, " ", what));
}

// Run ids stand without quotes in messages and in commands that people type.
bool IsRunIdCharacter(char c) {
  return absl::ascii_isalnum(c) || c == '.' || c == '_' || c == ':' || c == '-';
}

// Only sizes are bounded here: the texts are kept with the run or the process,
// and shown as they are escaped (MakePrintable).
absl::Status CheckText(absl::string_view field, const std::string& text,
                       size_t limit) {
  if (text.size() > limit) {
    return Malformed(field, absl::StrCat("has ", text.size(),
                                         " bytes, the limit is ", limit));
  }
  return absl::OkStatus();
}

absl::Status CheckRunId(const std::string& run) {
  if (run.empty()) return Malformed("run", "is empty");
  if (absl::Status s = CheckText("run", run, kMaxRunIdBytes); !s.ok()) return s;
  if (!std::all_of(run.begin(), run.end(), IsRunIdCharacter)) {
    return Malformed("run", absl::StrCat(QuotePrintable(run),
                                         " has characters other than "
                                         "letters, digits and . _ : -"));
  }
  return absl::OkStatus();
}

// The name of the host stands in quotes in messages and log lines, so it must
// not end them.
absl::Status CheckHost(const std::string& host) {
  if (host.empty()) return Malformed("process.host", "is empty");
  if (absl::Status s = CheckText("process.host", host, kMaxTextBytes);
      !s.ok()) {
    return s;
  }
  if (!IsPrintable(host) || host.find_first_of("\"\\") != std::string::npos) {
    return Malformed("process.host",
                     absl::StrCat("is ", QuotePrintable(host),
                                  ", which is not the name of a host"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckHelloUntrusted(const v1::Hello& hello) {
  if (absl::Status s = CheckRunId(hello.run()); !s.ok()) return s;
  // People find a process by its host and pid, and the books identify it by
  // these, among others.
  if (hello.process().pid() == 0) return Malformed("process.pid", "is 0");
  if (absl::Status s = CheckHost(hello.process().host()); !s.ok()) return s;
  // Their size alone: these may hold any bytes, which MakePrintable escapes.
  const std::pair<absl::string_view, const std::string&> texts[] = {
      {"process.boot_id", hello.process().boot_id()},
      {"experiment", hello.experiment()},
      {"check_set", hello.check_set()},
      {"script", hello.script()},
      {"agent_version", hello.agent_version()},
      {"torch_version", hello.torch_version()},
      {"python_version", hello.python_version()},
  };
  for (const auto& [field, text] : texts) {
    if (absl::Status s = CheckText(field, text, kMaxTextBytes); !s.ok()) {
      return s;
    }
  }
  if (hello.format_version_min() > hello.format_version_max()) {
    return Malformed("format_version_min",
                     absl::StrCat("is ", hello.format_version_min(),
                                  ", above format_version_max ",
                                  hello.format_version_max()));
  }
  return absl::OkStatus();
}

// The host and the run are not among these: CheckHost and CheckRunId let
// nothing through that would have to be escaped.
void MakePrintable(v1::Hello* hello) {
  for (std::string* const text :
       {hello->mutable_process()->mutable_boot_id(),
        hello->mutable_experiment(), hello->mutable_check_set(),
        hello->mutable_script(), hello->mutable_agent_version(),
        hello->mutable_torch_version(), hello->mutable_python_version()}) {
    *text = EscapeUnprintable(*text);
  }
}

absl::StatusOr<uint32_t> ChooseFormat(const v1::Hello& hello) {
  // The overlap of both ranges; its newest format is spoken.
  const uint32_t newest =
      std::min(hello.format_version_max(), kRecordFormatVersion);
  const uint32_t oldest =
      std::max(hello.format_version_min(), kRecordFormatVersionMin);
  if (newest >= oldest) return newest;
  // Which of the two is behind decides which one the user is asked to update.
  const bool agent_is_newer = hello.format_version_min() > kRecordFormatVersion;
  return absl::UnimplementedError(
      absl::StrCat("this agent (version \"", hello.agent_version(),
                   "\") sends record formats ", hello.format_version_min(),
                   " to ", hello.format_version_max(), ", this server reads ",
                   kRecordFormatVersionMin, " to ", kRecordFormatVersion,
                   ": update the ", agent_is_newer ? "server" : "agent"));
}

}  // namespace traincheck::server
