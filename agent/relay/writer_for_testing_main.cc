// A training process as the relay sees it, without Python: connects to the
// abstract socket argv[1], hands over a definition ring and a thread's ring
// and obeys commands, one a line, each answered by one line.
//
//   marks N     commits N Mark records with values 0, 1, 2, ... ; one that
//               does not fit is tried again until it does. "ok"
//   clean       commits the mark of a clean exit. "ok"
//   drained MS  "yes" as soon as both rings are given back, "no" after MS
//   forever     commits marks until killed; answers "ok" first
//
// It ends at the end of its input.
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstring>
#include <iostream>
#include <sstream>
#include <string>
#include <thread>

#include "agent/ring/ring_writer.h"
#include "proto/record_writer.h"

namespace traincheck {
namespace {

using std::chrono::milliseconds;

void Nap() { std::this_thread::sleep_for(milliseconds(1)); }

int Connect(const std::string& name) {
  const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  const socklen_t size =
      static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  const bool connected =
      connect(fd, reinterpret_cast<sockaddr*>(&address), size) == 0;
  return connected ? fd : -1;
}

bool HandOver(int socket, const RingWriter& ring) {
  const RingHandover handover = ring.handover();
  const int fd = ring.fd();
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof fd)] = {};
  iovec part = {const_cast<RingHandover*>(&handover), sizeof handover};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  cmsghdr* rights = CMSG_FIRSTHDR(&message);
  rights->cmsg_level = SOL_SOCKET;
  rights->cmsg_type = SCM_RIGHTS;
  rights->cmsg_len = CMSG_LEN(sizeof fd);
  std::memcpy(CMSG_DATA(rights), &fd, sizeof fd);
  uint32_t answer = 0;
  return sendmsg(socket, &message, 0) == sizeof handover &&
         recv(socket, &answer, sizeof answer, 0) == sizeof answer &&
         answer == kRelayHasRing;
}

void Commit(RingWriter* ring, const void* record, size_t size) {
  while (!ring->TryAppend(record, size)) Nap();
}

void CommitProcessDef(RingWriter* ring) {
  alignas(8) char buffer[1024];
  FieldWriter out(buffer, sizeof buffer, DefinitionRecord{{}, 1, 0});
  out.Bytes(Field::kHost, "host");
  out.Bytes(Field::kBootId, "b007");
  out.Unsigned(Field::kStartTicks, 77);
  out.Unsigned(Field::kProcessKind, static_cast<uint64_t>(ProcessKind::kMain));
  out.Bytes(Field::kRun, "the-run");
  const size_t size = out.Finish(RecordType::kProcessDef, 0, 0);
  Commit(ring, buffer, size);
}

void CommitMark(RingWriter* ring, uint64_t value, MarkKind kind) {
  MarkRecord mark = {};
  mark.header = {sizeof mark, static_cast<uint8_t>(RecordType::kMark),
                 static_cast<uint8_t>(kind), 0};
  mark.value = value;
  Commit(ring, &mark, sizeof mark);
}

class Obedient {
 public:
  Obedient(RingWriter* definitions, RingWriter* main)
      : definitions_(definitions), main_(main) {}

  std::string Do(const std::string& line) {
    std::istringstream words(line);
    std::string command;
    uint64_t number = 0;
    words >> command >> number;
    if (command == "marks") {
      while (number-- > 0) CommitMark(main_, next_++, MarkKind::kStepClosed);
    } else if (command == "clean") {
      CommitMark(main_, 0, MarkKind::kCleanExit);
    } else if (command == "drained") {
      return Drained(milliseconds(number)) ? "yes" : "no";
    } else if (command == "forever") {
      std::cout << "ok" << std::endl;
      while (true) CommitMark(main_, next_++, MarkKind::kStepClosed);
    }
    return "ok";
  }

 private:
  bool Drained(milliseconds within) const {
    const auto end = std::chrono::steady_clock::now() + within;
    while (!definitions_->drained() || !main_->drained()) {
      if (std::chrono::steady_clock::now() > end) return false;
      Nap();
    }
    return true;
  }

  RingWriter* const definitions_;
  RingWriter* const main_;
  uint64_t next_ = 0;
};

int Main(const std::string& name) {
  const int socket = Connect(name);
  auto definitions = RingWriter::Create(0, kDefinitionRingBytes);
  auto main = RingWriter::Create(1, kMainRingBytes);
  if (socket < 0 || !HandOver(socket, *definitions) ||
      !HandOver(socket, *main)) {
    std::cout << "not connected" << std::endl;
    return 1;
  }
  CommitProcessDef(definitions.get());
  std::cout << "ready" << std::endl;
  Obedient obedient(definitions.get(), main.get());
  std::string line;
  while (std::getline(std::cin, line)) {
    std::cout << obedient.Do(line) << std::endl;
  }
  return 0;
}

}  // namespace
}  // namespace traincheck

int main(int argc, char** argv) {
  return argc == 2 ? traincheck::Main(argv[1]) : 2;
}
