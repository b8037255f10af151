#include "server/metrics/metrics_pages.h"

namespace traincheck::server {

HttpAnswer AnswerPage(const DaemonMetrics& metrics, const std::string& path) {
  if (path == "/metrics") {
    return {.content_type = "text/plain; version=0.0.4; charset=utf-8",
            .body = metrics.Text()};
  }
  // To answer is to be alive. A full disk must not make an orchestrator restart
  // the daemon: it is not ready, and that is all.
  if (path == "/healthz") return {.body = "ok\n"};
  if (path == "/readyz") {
    const absl::Status ready = metrics.Readiness();
    if (ready.ok()) return {.body = "ok\n"};
    return {.status = 503, .body = std::string(ready.message()) + "\n"};
  }
  return {.status = 404, .body = "/metrics, /healthz and /readyz are here\n"};
}

}  // namespace traincheck::server
