#include "server/options.h"

#include <CLI/CLI.hpp>
#include <iostream>
#include <optional>

#include "base/credentials.h"
#include "server/version.h"

namespace traincheck {
namespace {

constexpr int kExitUsage = 2;

}  // namespace

std::optional<int> ParseOptions(int argc, char** argv, Options* options) {
  CLI::App app("traincheckd: checks PyTorch training runs while they run");
  app.add_option("--data-dir", options->daemon.data_dir,
                 "Directory that holds everything; made if it is not there")
      ->required();
  app.add_option("--listen", options->listen,
                 "HOST:PORT or unix:PATH; port 0 takes a free one")
      ->capture_default_str();
  app.add_option("--lost-after", options->lost_after_s,
                 "Seconds of silence after which a process counts as lost")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--snapshot-every", options->snapshot_every_s,
                 "Seconds between two savings of a check's state")
      ->check(CLI::NonNegativeNumber)
      ->group("");  // not shown: for tests
  app.add_option("--hello-timeout", options->hello_timeout_s,
                 "Seconds after which a stream that says nothing is closed")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--log-level", options->log_level, "Least level of the log")
      ->check(CLI::IsMember(
          {"trace", "debug", "info", "warning", "error", "critical", "off"}))
      ->capture_default_str();
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
  if (absl::Status s = CheckAddress(options->listen); !s.ok()) {
    std::cerr << "traincheckd: --listen: " << s.message() << "\n";
    return kExitUsage;
  }
  return std::nullopt;
}

}  // namespace traincheck
