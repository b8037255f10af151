// Answers GET requests over HTTP/1.1 on a port of its own, for what scrapes and
// probes the daemon. Plain text: what it tells must be fit for everybody who
// can reach the port.
//
// A request has a head of at most 8 KiB and no body; a connection that says
// nothing for 10 s, or is one too many, is closed.
//
// Threads: Start and the destructor on one thread; answers are made on the
// server's own.
#ifndef TRAINCHECK_SERVER_METRICS_HTTP_SERVER_H_
#define TRAINCHECK_SERVER_METRICS_HTTP_SERVER_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace traincheck::server {

struct HttpAnswer {
  int status = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::string body;
};

class HttpServer {
 public:
  static constexpr int kMaxConnections = 64;

  // `path` without what follows a question mark; 404 for an unknown one.
  using Handler = std::function<HttpAnswer(const std::string& path)>;

  // Listens on HOST:PORT or PORT (of 127.0.0.1); port 0 takes a free one.
  // InvalidArgument for what is no such address, Unavailable if it cannot be
  // had.
  [[nodiscard]] static absl::StatusOr<std::unique_ptr<HttpServer>> Start(
      const std::string& address, Handler handler);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  // Where it listens, with the port that it got.
  const std::string& address() const { return address_; }

 private:
  class Impl;

  HttpServer(std::unique_ptr<Impl> impl, std::string address);

  const std::unique_ptr<Impl> impl_;
  const std::string address_;
};

}  // namespace traincheck::server

#endif  // TRAINCHECK_SERVER_METRICS_HTTP_SERVER_H_
