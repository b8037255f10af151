// Over real sockets.
#include "server/metrics/http_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>
#include <chrono>
#include <thread>

namespace traincheck::server {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

HttpAnswer Hello(const std::string& path) {
  if (path == "/hello") return {.body = "hello\n"};
  return {.status = 404, .body = "no " + path + "\n"};
}

class HttpServerTest : public testing::Test {
 protected:
  HttpServerTest() : server_(*HttpServer::Start("0", Hello)) {
    const std::string& address = server_->address();
    port_ = static_cast<uint16_t>(
        std::stoi(address.substr(address.rfind(':') + 1)));
  }

  tcp::socket Connect() {
    tcp::socket socket(context_);
    socket.connect({asio::ip::address_v4::loopback(), port_});
    return socket;
  }
  // All that comes until the server closes the connection.
  std::string ReadAll(tcp::socket* socket) {
    std::string all;
    boost::system::error_code error;
    asio::read(*socket, asio::dynamic_buffer(all), error);
    return all;
  }
  std::string Ask(const std::string& request) {
    tcp::socket socket = Connect();
    asio::write(socket, asio::buffer(request));
    return ReadAll(&socket);
  }
  std::string Get(const std::string& path) {
    return Ask("GET " + path +
               " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  }

  asio::io_context context_;
  std::unique_ptr<HttpServer> server_;
  uint16_t port_ = 0;
};

TEST_F(HttpServerTest, ListensOnLoopbackUnlessToldOtherwise) {
  EXPECT_THAT(server_->address(), StartsWith("127.0.0.1:"));
}

TEST_F(HttpServerTest, AnswersByPath) {
  EXPECT_THAT(Get("/hello"), StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(Get("/hello"), HasSubstr("\r\n\r\nhello\n"));
  EXPECT_THAT(Get("/hello?x=1"), HasSubstr("\r\n\r\nhello\n"));
  EXPECT_THAT(Get("/other"), StartsWith("HTTP/1.1 404 "));
}

TEST_F(HttpServerTest, AConnectionMayAskAgain) {
  const std::string answers =
      Ask("GET /hello HTTP/1.1\r\nHost: x\r\n\r\n"
          "GET /other HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  EXPECT_THAT(answers, HasSubstr("hello\n"));
  EXPECT_THAT(answers, HasSubstr("no /other\n"));
}

TEST_F(HttpServerTest, AHeadHasNoBody) {
  const std::string answer =
      Ask("HEAD /hello HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  EXPECT_THAT(answer, HasSubstr("Content-Length: 6\r\n"));
  EXPECT_THAT(answer, Not(HasSubstr("hello")));
}

TEST_F(HttpServerTest, WhatIsNoGetIsRefused) {
  EXPECT_THAT(Ask("DELETE / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"),
              StartsWith("HTTP/1.1 405 "));
  EXPECT_THAT(Ask("nonsense\r\n\r\n"), StartsWith("HTTP/1.1 400 "));
  EXPECT_THAT(Ask("GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n"
                  "123456789"),
              StartsWith("HTTP/1.1 400 "));
  EXPECT_THAT(
      Ask("GET / HTTP/1.1\r\nX: " + std::string(20'000, 'x') + "\r\n\r\n"),
      StartsWith("HTTP/1.1 400 "));
  EXPECT_THAT(Get("/hello"), HasSubstr("hello"));
}

TEST_F(HttpServerTest, ConnectionsBeyondTheLimitAreClosedAndOthersAnswered) {
  std::vector<tcp::socket> idle;
  for (int i = 0; i < HttpServer::kMaxConnections; ++i) {
    idle.push_back(Connect());
  }
  // Whether all have been accepted is seen by one more, which is closed.
  tcp::socket one_more = Connect();
  EXPECT_EQ(ReadAll(&one_more), "");
  idle.clear();
  std::string answer;
  for (int i = 0; i < 1000 && answer.empty(); ++i) {
    tcp::socket socket = Connect();
    boost::system::error_code error;
    asio::write(socket,
                asio::buffer(std::string("GET /hello HTTP/1.1\r\nHost: x\r\n"
                                         "Connection: close\r\n\r\n")),
                error);
    answer = ReadAll(&socket);
    if (answer.empty()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }
  EXPECT_THAT(answer, HasSubstr("hello"));
}

TEST(HttpServer, AddressesThatAreNone) {
  for (const char* address :
       {"", "x", "host:1", "127.0.0.1:70000", "1.2.3:4", "-1", "127.0.0.1:"}) {
    EXPECT_EQ(HttpServer::Start(address, Hello).status().code(),
              absl::StatusCode::kInvalidArgument)
        << address;
  }
}

TEST(HttpServer, APortThatIsTaken) {
  const auto first = HttpServer::Start("127.0.0.1:0", Hello);
  ASSERT_TRUE(first.ok());
  const auto second = HttpServer::Start((*first)->address(), Hello);
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace traincheck::server
