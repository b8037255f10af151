// What the daemon's HTTP port answers: /metrics, /healthz (the process lives)
// and /readyz (what comes is acknowledged).
//
// Threads: pure function over thread-safe parts.
#ifndef TRAINCHECK_SERVER_METRICS_METRICS_PAGES_H_
#define TRAINCHECK_SERVER_METRICS_METRICS_PAGES_H_

#include <string>

#include "server/metrics/daemon_metrics.h"
#include "server/metrics/http_server.h"

namespace traincheck::server {

HttpAnswer AnswerPage(const DaemonMetrics& metrics, const std::string& path);

}  // namespace traincheck::server

#endif  // TRAINCHECK_SERVER_METRICS_METRICS_PAGES_H_
