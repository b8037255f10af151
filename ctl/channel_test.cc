#include "ctl/channel.h"

#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "ctl/testing/fake_control.h"
#include "gtest/gtest.h"

namespace traincheck::ctl {
namespace {

sockaddr_in Loopback(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port));
  return address;
}

// A port of loopback behind which a server is, for one connection, until the
// network breaks: from then on it takes bytes and passes none on, and closes
// nothing.
class BreakingNetwork {
 public:
  explicit BreakingNetwork(const std::string& server) {
    const int port = std::stoi(server.substr(server.rfind(':') + 1));
    sockaddr_in here = Loopback(0);
    const sockaddr_in there = Loopback(port);
    socklen_t size = sizeof(here);
    listener_ = socket(AF_INET, SOCK_STREAM, 0);
    server_ = socket(AF_INET, SOCK_STREAM, 0);
    bind(listener_, reinterpret_cast<sockaddr*>(&here), size);
    listen(listener_, 1);
    getsockname(listener_, reinterpret_cast<sockaddr*>(&here), &size);
    address_ = "127.0.0.1:" + std::to_string(ntohs(here.sin_port));
    EXPECT_EQ(connect(server_, reinterpret_cast<const sockaddr*>(&there),
                      sizeof(there)),
              0);
    thread_ = std::thread([this] { Pass(); });
  }
  ~BreakingNetwork() {
    ended_ = true;
    thread_.join();
    for (int fd : {client_, server_, listener_}) {
      if (fd >= 0) close(fd);
    }
  }

  const std::string& address() const { return address_; }
  void Break() { broken_ = true; }

 private:
  void Pass() {
    while (!ended_) {
      pollfd ends[] = {{client_ < 0 ? listener_ : client_, POLLIN, 0},
                       {server_, POLLIN, 0}};
      if (poll(ends, 2, 10) <= 0) continue;
      if (client_ < 0) {
        if (ends[0].revents != 0) client_ = accept(listener_, nullptr, nullptr);
        continue;
      }
      if (ends[0].revents != 0) Copy(client_, server_);
      if (ends[1].revents != 0) Copy(server_, client_);
    }
  }
  void Copy(int from, int to) {
    char buffer[4096];
    const ssize_t bytes = read(from, buffer, sizeof(buffer));
    if (bytes <= 0) {
      ended_ = true;
      return;
    }
    if (broken_) return;
    EXPECT_EQ(write(to, buffer, static_cast<size_t>(bytes)), bytes);
  }

  std::atomic<bool> broken_{false}, ended_{false};
  int listener_ = -1, server_ = -1, client_ = -1;
  std::string address_;
  std::thread thread_;
};

// A watch, a check or a comparison has no time limit: without a ping it would
// wait for ever.
TEST(ServerChannelTest, ABreakThatNobodyReportsEndsACall) {
  FakeControl server;
  server.Edit([](FakeData& data) {
    data.infer.emplace_back();
    data.infer_hangs = true;
  });
  BreakingNetwork network(server.address());
  const auto channel = MakeServerChannel(
      network.address(),
      {std::chrono::milliseconds(1000), std::chrono::milliseconds(500)});
  ASSERT_TRUE(channel.ok()) << channel.status();
  const auto stub = v1::Control::NewStub(*channel);
  grpc::ClientContext context;
  const auto reader = stub->Infer(&context, v1::InferRequest());
  v1::InferProgress progress;
  ASSERT_TRUE(reader->Read(&progress));
  network.Break();
  EXPECT_FALSE(reader->Read(&progress));
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
}

}  // namespace
}  // namespace traincheck::ctl
