// A training process as the relay sees it, without Python: connects to the
// abstract socket argv[1], hands over a definition ring and a thread's ring
// and obeys commands, one a line, each answered by one line. It says "ready"
// first.
//
// If argv[1] is a path, it is the relay's program, which is started, and
// started anew, as the agent does; what the relay needs is in the environment.
// WRITER_RUN names another run than "the-run", and then the process says its
// real boot id, host and start time.
//
//   relay       the pid of the relay that was started last
//   restart     waits until that relay is dead, starts the next one and hands
//               the rings over to it. "ok"
//   marks N     commits N Mark records with values 0, 1, 2, ... ; one that
//               does not fit is tried again until it does. "ok"
//   strings N   commits N definitions of 200 bytes. "ok"
//   reconnect S connects to the abstract socket S and hands its rings over
//               again, as the agent does when the relay has died. "ok"
//   plan MS     the plan that the relay hands over within this time: "none", or
//               version, first step, "sealed" or "open", and its text
//   close       closes its socket to the relay and goes on. "ok"
//   exec        answers "ok" and runs another program from then on
//   clean       commits the mark of a clean exit. "ok"
//   drained MS  "yes" as soon as both rings are given back, "no" after MS
//   forever     commits marks until killed; answers "ok" first
//
// It ends at the end of its input.
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>
#include <iterator>
#include <random>
#include <sstream>
#include <string>
#include <thread>
#include <utility>

#include "agent/relay/relay_start_for_testing.h"
#include "agent/ring/ring_writer.h"
#include "proto/record_format.h"
#include "proto/record_writer.h"

namespace traincheck::agent {
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

// The next message; see the command "plan".
std::string ReceivePlan(int socket, int timeout_ms) {
  pollfd ready = {socket, POLLIN, 0};
  if (poll(&ready, 1, timeout_ms) != 1) return "none";
  PlanMessage plan = {};
  iovec part = {&plan, sizeof plan};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  const ssize_t size = recvmsg(socket, &message, MSG_DONTWAIT);
  const cmsghdr* rights = CMSG_FIRSTHDR(&message);
  if (size != sizeof plan || rights == nullptr ||
      std::memcmp(plan.magic, kPlanMagic, sizeof kPlanMagic) != 0) {
    return "no plan";
  }
  int file = -1;
  std::memcpy(&file, CMSG_DATA(rights), sizeof file);
  std::string text(plan.bytes, '?');
  const ssize_t read = pread(file, text.data(), text.size(), 0);
  const int all = F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;
  const bool sealed = fcntl(file, F_GET_SEALS) == all;
  close(file);
  if (read != static_cast<ssize_t>(text.size())) return "short";
  return std::to_string(plan.version) + " " + std::to_string(plan.from_step) +
         (sealed ? " sealed " : " open ") + text;
}

void Commit(RingWriter* ring, const void* record, size_t size) {
  while (!ring->TryAppend(record, size)) Nap();
}

struct Identity {
  std::string host = "host";
  std::string boot_id = "b007";
  uint64_t start_ticks = 77;
  uint64_t image = 0x0123456789abcdef;  // kImageOfWriter
  std::string run = "the-run";
};

Identity RealIdentity(const char* run) {
  Identity identity = {.run = run};
  char host[256] = {};
  if (gethostname(host, sizeof host - 1) == 0) identity.host = host;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> identity.boot_id;
  std::ifstream file("/proc/self/stat");
  std::string text((std::istreambuf_iterator<char>(file)), {});
  std::istringstream fields(text.substr(text.rfind(')') + 1));
  for (int field = 3; field < 22; ++field) fields >> text;
  fields >> identity.start_ticks;
  return identity;
}

void CommitProcessDef(RingWriter* ring) {
  const char* run = getenv("WRITER_RUN");
  const Identity identity = run == nullptr ? Identity() : RealIdentity(run);
  alignas(8) char buffer[1024];
  FieldWriter out(buffer, sizeof buffer, DefinitionRecord{{}, 1, 0});
  out.Bytes(Field::kHost, identity.host);
  out.Bytes(Field::kBootId, identity.boot_id);
  out.Unsigned(Field::kStartTicks, identity.start_ticks);
  out.Unsigned(Field::kProcessKind, static_cast<uint64_t>(ProcessKind::kMain));
  out.Bytes(Field::kRun, identity.run);
  out.Unsigned(Field::kImage, identity.image);
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

void CommitString(RingWriter* ring, uint32_t id) {
  alignas(8) char buffer[1024];
  FieldWriter out(buffer, sizeof buffer, DefinitionRecord{{}, id, 0});
  out.Bytes(Field::kText, std::string(200, 's'));
  Commit(ring, buffer, out.Finish(RecordType::kStringDef, 0, 0));
}

// The relay that this process starts itself; nothing if argv[1] is a socket.
class OwnRelay {
 public:
  explicit OwnRelay(std::string program) : program_(std::move(program)) {}

  // The socket of a new relay. The one before, if any, is waited for.
  std::string Start() {
    if (pid_ > 0) waitpid(pid_, nullptr, 0);
    ++start_;
    // Tests in sandboxes share abstract names, but not process ids.
    const std::string name = "traincheck-writer-" +
                             std::to_string(std::random_device()()) + "-" +
                             std::to_string(start_);
    pid_ = StartRelayAsAgent(program_, name, start_);
    return name;
  }
  pid_t pid() const { return pid_; }

 private:
  const std::string program_;
  int start_ = 0;
  pid_t pid_ = -1;
};

// A socket that handed both rings over; -1: it failed.
int ConnectAndHandOver(const std::string& name, const RingWriter& definitions,
                       const RingWriter& main) {
  const int socket = Connect(name);
  const bool done =
      socket >= 0 && HandOver(socket, definitions) && HandOver(socket, main);
  return done ? socket : -1;
}

class Obedient {
 public:
  Obedient(RingWriter* definitions, RingWriter* main, OwnRelay* relay,
           int socket)
      : definitions_(definitions),
        main_(main),
        relay_(relay),
        socket_(socket) {}

  std::string Do(const std::string& line) {
    std::istringstream words(line);
    std::string command, word;
    words >> command >> word;
    if (command == "relay") return std::to_string(relay_->pid());
    if (command == "restart") return Reconnect(relay_->Start()) ? "ok" : "bad";
    if (command == "reconnect") return Reconnect(word) ? "ok" : "failed";
    uint64_t number = word.empty() ? 0 : std::stoull(word);
    if (command == "marks") {
      while (number-- > 0) CommitMark(main_, next_++, MarkKind::kStepClosed);
    } else if (command == "strings") {
      while (number-- > 0) CommitString(definitions_, next_string_++);
    } else if (command == "clean") {
      CommitMark(main_, 0, MarkKind::kCleanExit);
    } else if (command == "drained") {
      return Drained(milliseconds(number)) ? "yes" : "no";
    } else if (command == "plan") {
      return ReceivePlan(socket_, static_cast<int>(number));
    } else if (command == "close") {
      close(std::exchange(socket_, -1));
    } else if (command == "exec") {
      std::cout << "ok" << std::endl;
      execl("/bin/sleep", "sleep", "600", nullptr);
      return "no exec";
    } else if (command == "forever") {
      std::cout << "ok" << std::endl;
      while (true) CommitMark(main_, next_++, MarkKind::kStepClosed);
    }
    return "ok";
  }

 private:
  bool Reconnect(const std::string& name) {
    close(socket_);
    socket_ = ConnectAndHandOver(name, *definitions_, *main_);
    return socket_ >= 0;
  }

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
  OwnRelay* const relay_;
  int socket_;
  uint64_t next_ = 0;
  uint32_t next_string_ = 2;
};

int Main(const std::string& argument) {
  OwnRelay relay(argument);
  const bool starts_relay = argument.find('/') != std::string::npos;
  const std::string name = starts_relay ? relay.Start() : argument;
  auto definitions = RingWriter::Create(kDefinitionRing, kDefinitionRingBytes);
  auto main = RingWriter::Create(1, kMainRingBytes);
  const int socket = ConnectAndHandOver(name, *definitions, *main);
  if (socket < 0) {
    std::cout << "not connected" << std::endl;
    return 1;
  }
  CommitProcessDef(definitions.get());
  std::cout << "ready" << std::endl;
  Obedient obedient(definitions.get(), main.get(), &relay, socket);
  std::string line;
  while (std::getline(std::cin, line)) {
    std::cout << obedient.Do(line) << std::endl;
  }
  return 0;
}

}  // namespace
}  // namespace traincheck::agent

int main(int argc, char** argv) {
  return argc == 2 ? traincheck::agent::Main(argv[1]) : 2;
}
