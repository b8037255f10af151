#include "ctl/doctor/agent_checks.h"

#include <stdlib.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "ctl/doctor/trial.h"
#include "ctl/run/monitoring_environment.h"
#include "nlohmann/json.hpp"

extern char** environ;

namespace traincheck::ctl {
namespace {

namespace fs = std::filesystem;

constexpr char kCore[] = "libtraincheck_agent_core.so";
constexpr char kRelay[] = "traincheck-relay";
// An import of torch from a cold network disk takes long.
constexpr std::chrono::seconds kTrialLimit{300};

// Trains before it prints, so that the agent has said all that it has to say.
constexpr char kProgram[] = R"(
import json, sys
facts = {"python": "%d.%d.%d" % sys.version_info[:3], "torch": None}
try:
    import torch
    facts["torch"] = torch.__version__
    weight = torch.nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    for _ in range(2):
        weight.sum().backward()
        optimizer.step()
except ImportError as error:
    facts["missing"] = str(error)
maps = open("/proc/self/maps").read()
for name in ("libtraincheck_agent.so", "libtraincheck_agent_core.so"):
    facts[name] = name in maps
print(json.dumps(facts))
)";

// The spool folder of the trial alone. If none can be made, its path is empty
// and problem() says why.
class TrialFolder {
 public:
  TrialFolder() {
    std::error_code error;
    const fs::path parent = fs::temp_directory_path(error);
    if (error) {
      const char* const named = std::getenv("TMPDIR");
      problem_ = absl::StrCat(named == nullptr ? "/tmp" : named, ": ",
                              error.message());
      return;
    }
    std::string pattern = parent / "traincheck-doctor-XXXXXX";
    if (mkdtemp(pattern.data()) != nullptr) {
      path_ = pattern;
    } else {
      problem_ = absl::StrCat(parent.string(), ": ", std::strerror(errno));
    }
  }
  ~TrialFolder() {
    std::error_code ignored;  // a relay may still be writing its last file
    if (!path_.empty()) fs::remove_all(path_, ignored);
  }
  TrialFolder(const TrialFolder&) = delete;
  TrialFolder& operator=(const TrialFolder&) = delete;
  const fs::path& path() const { return path_; }
  const std::string& problem() const { return problem_; }

 private:
  fs::path path_;
  std::string problem_;
};

// Lines of ours on the trial's stderr.
std::string Complaints(const std::string& err) {
  std::vector<std::string> ours;
  for (const absl::string_view line : absl::StrSplit(err, '\n')) {
    // The trial names a server that is not there, and the relay says so.
    const bool unreachable = absl::StrContains(line, "not reach");
    if (absl::StrContains(line, "traincheck") && !unreachable) {
      ours.emplace_back(line);
    }
  }
  return absl::StrJoin(ours, "; ");
}

bool HasSpool(const fs::path& folder) {
  std::error_code error;
  for (const fs::directory_entry& entry :
       fs::directory_iterator(folder, error)) {
    // One file is enough: a relay makes it when it has records to keep.
    if (entry.path().extension() == ".spool") return true;
  }
  return false;
}

absl::StatusOr<TrialResult> Train(const std::string& library,
                                  const std::string& python,
                                  const fs::path& spool) {
  // A server that never answers: what the trial records has to go to its own
  // spool folder, where HasSpool finds it, and no daemon of the user's gets a
  // run. Nothing is waited for at its end.
  const std::vector<Variable> variables = {
      {"LD_PRELOAD", library},
      {"TRAINCHECK_AGENT_DIR", fs::path(library).parent_path().string()},
      {"TRAINCHECK_SERVER", "unix:/nonexistent/traincheck-doctor"},
      {"TRAINCHECK_RUN", "doctor"},
      {"TRAINCHECK_SPOOL_DIR", spool.string()},
      {"TRAINCHECK_GRACE", "0"},
      {"TRAINCHECK_LOG", "warning"},
      // Taken out: whether it is set is another finding (settings_check.cc).
      {"TRAINCHECK_DISABLE", std::nullopt}};
  return RunTrial({python, "-c", kProgram},
                  ChangedEnvironment(environ, variables), kTrialLimit);
}

// What to do after a trial that failed.
std::string AdviceOn(const std::string& err) {
  // gcc's shared AddressSanitizer accepts no library before its own.
  if (absl::StrContains(err, "ASan runtime does not come first")) {
    return "gcc built it with -fsanitize=address, which refuses preloaded "
           "libraries: set ASAN_OPTIONS=verify_asan_link_order=0 for the job";
  }
  return "try the same without LD_PRELOAD: is it the agent?";
}

// The loader does not report that it ignores LD_PRELOAD, so the trial looks for
// the library in its own memory map.
Finding PreloadFinding(const std::string& python, const nlohmann::json& facts) {
  if (facts.value("libtraincheck_agent.so", false)) {
    return {"python", Health::kOk,
            absl::StrCat(python, ", ", facts.value("python", std::string())),
            ""};
  }
  return {"python", Health::kFail,
          absl::StrCat(python, " was started without the preloaded library"),
          "its loader ignores LD_PRELOAD: a static build, a wrapper that "
          "clears the environment, or a setuid or file-capability program"};
}

Finding TorchFinding(const nlohmann::json& facts, const std::string& said) {
  if (facts["torch"].is_null()) {
    return {"torch", Health::kFail,
            facts.value("missing", std::string("torch cannot be imported")),
            "name the Python that trains: doctor --python EXE"};
  }
  const std::string torch = facts["torch"].get<std::string>();
  // The core is loaded at the end of `import torch`, unless something keeps the
  // agent off.
  if (facts.value(kCore, false)) return {"torch", Health::kOk, torch, ""};
  return {"torch", Health::kFail,
          absl::StrCat(torch, ": the agent stays off",
                       said.empty() ? "" : ": " + said),
          "the agent needs CPython 3.11 and torch 2.4 or later, and its files "
          "of one version in one folder"};
}

// The trial has no server, so a relay that works leaves a spool file behind.
Finding RelayFinding(bool spooled, const std::string& said) {
  if (spooled) {
    // A relay that complains and keeps records works, with a limit.
    return {"relay", said.empty() ? Health::kOk : Health::kWarn,
            said.empty() ? "starts and keeps records" : said, ""};
  }
  return {"relay", Health::kFail,
          said.empty() ? "nothing that the trial recorded reached a spool file"
                       : said,
          "see whether the relay may be executed where it lies (noexec), and "
          "that the temporary folder takes files"};
}

}  // namespace

Finding CheckAgentFiles(const std::string& library) {
  const fs::path folder = fs::path(library).parent_path();
  for (const auto& [name, mode] : {std::pair(kCore, R_OK), {kRelay, X_OK}}) {
    if (access((folder / name).c_str(), mode) == 0) continue;
    return {"agent files", Health::kFail,
            absl::StrCat((folder / name).string(), ": ", std::strerror(errno)),
            "install libraries and relay of one release into one folder"};
  }
  return {"agent files", Health::kOk, folder.string(), ""};
}

// One trial answers three questions: does the library get into the process,
// does the agent go on with this torch, and does a relay keep what is recorded?
std::vector<Finding> CheckPython(const std::string& library,
                                 const std::string& python) {
  const TrialFolder spool;
  // With the user's own spool folder the trial would show nothing, and leave
  // its records there.
  if (spool.path().empty()) {
    return {{"trial", Health::kFail,
             absl::StrCat("not tried, the temporary folder takes no folder: ",
                          spool.problem()),
             "name one that is there and takes files by TMPDIR"}};
  }
  const auto trial = Train(library, python, spool.path());
  if (!trial.ok()) {
    return {{"python", Health::kFail, std::string(trial.status().message()),
             "name the Python that trains: doctor --python EXE"}};
  }
  const std::string said = Complaints(trial->err);
  const auto facts = nlohmann::json::parse(trial->out, nullptr, false);
  // stdout may hold more than the facts where a sitecustomize prints something.
  if (trial->code != 0 || !facts.is_object()) {
    return {{"python", Health::kFail,
             absl::StrCat(python, " ended with code ", trial->code, ": ",
                          trial->err.substr(0, 500)),
             AdviceOn(trial->err)}};
  }
  // Each finding needs the ones before it, so the first that fails is the last.
  std::vector<Finding> findings = {PreloadFinding(python, facts)};
  if (findings[0].health == Health::kFail) return findings;
  findings.push_back(TorchFinding(facts, said));
  if (findings[1].health == Health::kFail) return findings;
  findings.push_back(RelayFinding(HasSpool(spool.path()), said));
  return findings;
}

}  // namespace traincheck::ctl
