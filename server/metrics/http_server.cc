#include "server/metrics/http_server.h"

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <chrono>
#include <optional>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "server/metrics/http_exchange.h"

namespace traincheck::server {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using asio::ip::tcp;
using boost::system::error_code;

// For a whole request or answer, not for each byte: a client that sends slowly
// cannot hold its place for longer.
constexpr auto kPatience = std::chrono::seconds(10);
// Until there are descriptors again.
constexpr auto kAcceptPause = std::chrono::milliseconds(100);

// One connection, which lives as long as something of it is under way.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(tcp::socket socket, const HttpServer::Handler* handler,
             std::atomic<int>* open)
      : stream_(std::move(socket)), handler_(*handler), open_(*open) {
    ++open_;
  }
  ~Connection() { --open_; }

  void Read() {
    // A parser takes one message; the buffer stays, which may hold the next
    // request.
    parser_.emplace();
    LimitRequest(&*parser_);
    stream_.expires_after(kPatience);
    http::async_read(stream_, buffer_, *parser_,
                     [self = shared_from_this()](error_code error, size_t) {
                       self->OnRead(error);
                     });
  }

 private:
  void OnRead(error_code error) {
    // Nobody is left to be answered, or nobody who says anything.
    if (error == http::error::end_of_stream || error == beast::error::timeout) {
      return Close();
    }
    Write(error ? RefusalOfRequest() : ReplyTo(*parser_, handler_));
  }

  void Write(HttpReply reply) {
    // A member: the write goes on behind the end of this function.
    response_ = std::move(reply.response);
    stream_.expires_after(kPatience);
    http::async_write(stream_, response_,
                      [self = shared_from_this(), keep = reply.keep](
                          error_code error, size_t) {
                        if (error || !keep) return self->Close();
                        self->Read();
                      });
  }

  void Close() {
    error_code ignored;  // the other side may be gone already
    stream_.socket().shutdown(tcp::socket::shutdown_send, ignored);
  }

  beast::tcp_stream stream_;
  const HttpServer::Handler& handler_;
  std::atomic<int>& open_;
  beast::flat_buffer buffer_{kMaxHttpBuffer};
  std::optional<HttpParser> parser_;
  HttpResponse response_;
};

// Names of hosts are not resolved: the metrics are for an address of this
// machine.
absl::StatusOr<tcp::endpoint> ParseAddress(const std::string& address) {
  // The last one: an address of IPv6 has colons, too, in brackets.
  const size_t colon = address.rfind(':');
  const bool has_host = colon != std::string::npos;
  std::string host = has_host ? address.substr(0, colon) : "127.0.0.1";
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  }
  // make_address takes numbers alone.
  if (host == "localhost") host = "127.0.0.1";
  uint32_t port = 0;
  error_code error;
  const auto ip = asio::ip::make_address(host, error);
  if (error ||
      !absl::SimpleAtoi(has_host ? address.substr(colon + 1) : address,
                        &port) ||
      port > UINT16_MAX) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", address, "\" is neither PORT nor IP:PORT"));
  }
  return tcp::endpoint(ip, static_cast<uint16_t>(port));
}

}  // namespace

class HttpServer::Impl {
 public:
  explicit Impl(Handler handler) : handler_(std::move(handler)) {}
  ~Impl() {
    // Handlers that have not run yet are dropped, and with them their
    // connections.
    context_.stop();
    if (thread_.joinable()) thread_.join();
  }

  error_code Listen(const tcp::endpoint& endpoint) {
    error_code error;
    acceptor_.open(endpoint.protocol(), error);
    // A daemon that starts again gets its port although old connections are
    // still in TIME_WAIT.
    if (!error) acceptor_.set_option(tcp::acceptor::reuse_address(true), error);
    if (!error) acceptor_.bind(endpoint, error);
    if (!error) acceptor_.listen(kMaxConnections, error);
    return error;
  }

  void Run() {
    Accept();
    // One thread for all connections, so nothing here needs a lock.
    thread_ = std::thread([this] { context_.run(); });
  }

  tcp::endpoint endpoint() const { return acceptor_.local_endpoint(); }

 private:
  void Accept() {
    acceptor_.async_accept([this](error_code error, tcp::socket socket) {
      if (error) return PauseAndAccept();
      // One too many is closed as the socket goes.
      if (open_ < kMaxConnections) {
        std::make_shared<Connection>(std::move(socket), &handler_, &open_)
            ->Read();
      }
      Accept();
    });
  }

  void PauseAndAccept() {
    pause_.expires_after(kAcceptPause);
    pause_.async_wait([this](error_code error) {
      if (!error) Accept();
    });
  }

  const Handler handler_;
  // Outlives the connections, which the context holds.
  std::atomic<int> open_ = 0;
  asio::io_context context_{1};
  tcp::acceptor acceptor_{context_};
  asio::steady_timer pause_{context_};
  std::thread thread_;
};

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(
    const std::string& address, Handler handler) {
  const absl::StatusOr<tcp::endpoint> endpoint = ParseAddress(address);
  if (!endpoint.ok()) return endpoint.status();
  auto impl = std::make_unique<Impl>(std::move(handler));
  if (const error_code error = impl->Listen(*endpoint)) {
    return absl::UnavailableError(
        absl::StrCat("cannot listen on ", address, ": ", error.message()));
  }
  impl->Run();
  const tcp::endpoint got = impl->endpoint();
  const std::string ip = got.address().to_string();
  std::string where = got.address().is_v6() ? absl::StrCat("[", ip, "]") : ip;
  absl::StrAppend(&where, ":", got.port());
  return std::unique_ptr<HttpServer>(
      new HttpServer(std::move(impl), std::move(where)));
}

HttpServer::HttpServer(std::unique_ptr<Impl> impl, std::string address)
    : impl_(std::move(impl)), address_(std::move(address)) {}

HttpServer::~HttpServer() = default;

}  // namespace traincheck::server
