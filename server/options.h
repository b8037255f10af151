// traincheckd's command line, and the file of options that it may name.
//
// Threads: before the first other thread.
#ifndef TRAINCHECK_SERVER_OPTIONS_H_
#define TRAINCHECK_SERVER_OPTIONS_H_

#include <optional>
#include <string>

#include "base/credentials.h"
#include "base/runtime_folder.h"
#include "server/daemon.h"
#include "server/ingest/ingest_service.h"
#include "server/rpc_service.h"

namespace traincheck::server {

struct Options {
  Daemon::Options daemon;
  RpcServer::Options port = {.listen = DefaultAddress(), .tls = {}};
  IngestService::Options ingest;
  double lost_after_s = 600;
  double snapshot_every_s = 30;
  double hello_timeout_s = 10;
  double retain_days = 30;           // 0: for ever
  std::string retain_bytes = "50%";  // of the disk; "off": no limit
  std::string owner_bytes = "25%";   // likewise
  double retain_check_s = 60;
  double on_alert_timeout_s = 60;
  std::string log_level = "info";
  std::string log_format = "text";
  std::string port_file;  // empty: none
  std::string metrics;    // where they are served; empty: nowhere
};

// The code to exit with, or nothing if the daemon is to run. Help and errors
// are printed.
std::optional<int> ParseOptions(int argc, char** argv, Options* options);

}  // namespace traincheck::server

#endif  // TRAINCHECK_SERVER_OPTIONS_H_
