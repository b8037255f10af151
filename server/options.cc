#include "server/options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <optional>

#include "server/control/version.h"
#include "server/jobs/limits.h"
#include "server/jobs/process_memory.h"
#include "server/retention/retention_rule.h"

namespace traincheck::server {
namespace {

constexpr int kExitUsage = 2;
// Half of the machine for learning leaves the other half for checks.
constexpr uint64_t kMinDefaultJobMemory = 512 << 20;
constexpr uint32_t kMaxZoomSteps = 256;

uint64_t DefaultJobMemory() {
  return std::max(kMinDefaultJobMemory, MachineBytes() / 2);
}

// Whether both are given and needed is looked at once the address is known
// (CheckListenAddress).
void AddTls(CLI::App* app, Options* options) {
  app->add_option("--tls-cert", options->port.tls.tls_certificate,
                  "Certificate to show to clients, as traincheckctl certs init "
                  "makes it; needed for addresses beyond this host");
  app->add_option(
      "--tls-key", options->port.tls.tls_key,
      "Its key, with mode 0600. Both files are read again when they "
      "change");
}

// Sizes are texts here, since a share of the disk can be worked out only when
// the data directory is known (TakeRetention).
void AddRetention(CLI::App* app, Options* options) {
  app->add_option("--retain-days", options->retain_days,
                  "Days after a run's end when its records are deleted; 0: "
                  "never")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app->add_option("--retain-bytes", options->retain_bytes,
                  "Size of all records, as 200GB or as a share of the disk, "
                  "above which those of the oldest ended runs are deleted; "
                  "off: no limit")
      ->capture_default_str();
  app->add_option("--owner-bytes", options->owner_bytes,
                  "Size of the records of one owner's runs, likewise, above "
                  "which nothing more of theirs is taken and relays keep it; "
                  "those of the oldest ended runs are deleted before. "
                  "Administrators have no such limit")
      ->capture_default_str();
  app->add_option("--retain-check", options->retain_check_s,
                  "Seconds between looks at these limits")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
}

void AddJobMemory(CLI::App* app, Options* options) {
  options->daemon.job_memory_bytes = DefaultJobMemory();
  app->add_option("--job-memory", options->daemon.job_memory_bytes,
                  "Memory limit of an inference job, as in 4GiB; default: half "
                  "of the memory, at least 512MiB")
      ->transform(CLI::AsSizeValue(false))
      ->check(CLI::Range(kMinJobMemoryBytes, uint64_t{1} << 50));
}

// The command is the operator's, who starts the daemon; no client can set it.
void AddOnAlert(CLI::App* app, Options* options) {
  AlertCommandOptions& alert = options->daemon.on_alert;
  app->add_option("--on-alert", alert.command,
                  "Shell command to start once for each incident that is an "
                  "alert, with the incident in TRAINCHECK_ALERT_RUN, "
                  "_INCIDENT, _HEADLINE, _SITE, _STEP and _RANKS");
  app->add_option("--on-alert-per-hour", alert.per_hour,
                  "How often at most; alerts beyond that are counted in "
                  "traincheckctl status")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app->add_option("--on-alert-timeout", options->on_alert_timeout_s,
                  "Seconds after which the command is killed")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
}

// The zoom is off unless asked for: it makes the training record more.
void AddZoom(CLI::App* app, Options* options) {
  app->add_option("--zoom-steps", options->daemon.zoom_steps,
                  "Once an incident begins that is an alert, the run records "
                  "the functions and variables concerned in full for so many "
                  "steps; violations show says what that showed; default: 0, "
                  "never")
      ->check(CLI::Range(0u, kMaxZoomSteps));
}

void AddMetrics(CLI::App* app, Options* options) {
  app->add_option("--metrics", options->metrics,
                  "PORT (of 127.0.0.1) or IP:PORT at which /metrics, /healthz "
                  "and /readyz are served over HTTP; port 0 takes a free one; "
                  "default: nowhere");
  app->add_flag("--metrics-runs", options->daemon.metrics_by_run,
                "Metrics of each run that has not ended, with its name");
}

// Not shown: for tests, which reach the limits when they are small.
void AddLimits(CLI::App* app, Options* options) {
  const auto add = [app](const char* name, auto* limit) {
    app->add_option(name, *limit)->check(CLI::PositiveNumber)->group("");
  };
  add("--max-streams", &options->ingest.max_streams);
  add("--max-streams-of-owner", &options->ingest.max_streams_of_owner);
  add("--max-unsynced-bytes", &options->ingest.max_unsynced_bytes);
  add("--wire-bytes", &options->port.wire_bytes);
}

void AddLog(CLI::App* app, Options* options) {
  app->add_option("--log-level", options->log_level, "Least level of the log")
      ->check(CLI::IsMember(
          {"trace", "debug", "info", "warning", "error", "critical", "off"}))
      ->capture_default_str();
  app->add_option("--log-format", options->log_format,
                  "One line of text an event, or one JSON object")
      ->check(CLI::IsMember({"text", "json"}))
      ->capture_default_str();
}

// A key in the file is the name of an option.
void AddFile(CLI::App* app) {
  app->set_config(
      "--config", "",
      "File with options, a line each: retain-days = 30; the command "
      "line wins");
  // A mistyped key is an error: the daemon must not start without the limit
  // that somebody wrote.
  app->allow_config_extras(CLI::config_extras_mode::error);
}

// The size of the disk on which `folder` is, or will be.
uint64_t DiskBytes(std::filesystem::path folder) {
  std::error_code error;
  folder = std::filesystem::absolute(folder, error);
  // The folder may not be there yet: its disk is that of the nearest parent.
  while (!std::filesystem::exists(folder, error) &&
         folder.has_relative_path()) {
    folder = folder.parent_path();
  }
  const auto space = std::filesystem::space(folder, error);
  // A disk that does not say its size leaves a share of it without effect;
  // sizes in bytes hold.
  return error ? UINT64_MAX : space.capacity;
}

// `text` as bytes; no limit for "off". Errors name the option.
absl::StatusOr<uint64_t> TakeBytes(const char* option, const std::string& text,
                                   const Options& options) {
  if (text == "off") return UINT64_MAX;
  const absl::StatusOr<uint64_t> bytes =
      ParseBytes(text, DiskBytes(options.daemon.data_dir));
  if (bytes.ok()) return bytes;
  return absl::InvalidArgumentError(
      absl::StrCat(option, ": ", bytes.status().message()));
}

// This runs behind the parsing of all options: shares are of the disk of
// --data-dir, which may stand anywhere on the command line.
absl::Status TakeRetention(Options* options) {
  RetentionLimits& limits = options->daemon.retention;
  if (options->retain_days > 0) {
    limits.age = options->retain_days * absl::Hours(24);
  }
  const auto bytes =
      TakeBytes("--retain-bytes", options->retain_bytes, *options);
  if (!bytes.ok()) return bytes.status();
  limits.bytes = *bytes;
  const auto of_owner =
      TakeBytes("--owner-bytes", options->owner_bytes, *options);
  if (!of_owner.ok()) return of_owner.status();
  options->daemon.owner_bytes = *of_owner;
  // Room for what runs that go on send until retention looks again.
  if (*of_owner != UINT64_MAX) limits.owner_bytes = *of_owner / 10 * 9;
  return absl::OkStatus();
}

}  // namespace

std::optional<int> ParseOptions(int argc, char** argv, Options* options) {
  CLI::App app("traincheckd: checks PyTorch training runs while they run");
  app.add_option("--data-dir", options->daemon.data_dir,
                 "Directory that holds everything; made if it is not there")
      ->required();
  app.add_option("--listen", options->port.listen,
                 "unix:PATH, or HOST:PORT where port 0 takes a free one")
      ->capture_default_str();
  AddTls(&app, options);
  app.add_option("--lost-after", options->lost_after_s,
                 "Seconds of silence after which a process counts as lost")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--snapshot-every", options->snapshot_every_s,
                 "Seconds between two savings of a check's state")
      ->check(CLI::NonNegativeNumber)
      ->group("");  // not shown: for tests
  AddRetention(&app, options);
  AddOnAlert(&app, options);
  AddZoom(&app, options);
  AddMetrics(&app, options);
  AddFile(&app);
  app.add_flag("--accept-loss", options->daemon.accept_loss,
               "Open a store whose log is damaged and give up what was stored "
               "behind the damage");
  app.add_option("--hello-timeout", options->hello_timeout_s,
                 "Seconds after which a stream that says nothing is closed")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  AddJobMemory(&app, options);
  AddLimits(&app, options);
  AddLog(&app, options);
  app.add_option("--port-file", options->port_file,
                 "File to write the address to once it listens");
  app.set_version_flag("--version", kServerVersion);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    const int code = app.exit(error);
    return code == 0 ? 0 : kExitUsage;  // 0: --help, --version
  }
  options->daemon.lost_after = absl::Seconds(options->lost_after_s);
  options->daemon.snapshot_every = absl::Seconds(options->snapshot_every_s);
  options->ingest.hello_timeout = absl::Seconds(options->hello_timeout_s);
  options->daemon.retention_period = absl::Seconds(options->retain_check_s);
  options->daemon.on_alert.patience =
      absl::Seconds(options->on_alert_timeout_s);
  if (absl::Status s = TakeRetention(options); !s.ok()) {
    std::cerr << "traincheckd: " << s.message() << "\n";
    return kExitUsage;
  }
  if (absl::Status s =
          CheckListenAddress(options->port.listen, options->port.tls);
      !s.ok()) {
    std::cerr << "traincheckd: --listen: " << s.message() << "\n";
    return kExitUsage;
  }
  return std::nullopt;
}

}  // namespace traincheck::server
