// A rank without torch: writes numbered calls at a steady rate into rings that
// it hands to a relay, as the agent does, and starts the relay anew at a step
// mark when it has died, at most three times.
//
//   record_load RELAY COUNTERS CALLS RATE
//
// COUNTERS is a file that says at every moment, even after a kill, how many
// calls were committed and dropped and how often the relay was started.
// TRAINCHECK_RUN names the run; the rest of the environment is the relay's.
#include <fcntl.h>
#include <sys/mman.h>
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
#include <memory>
#include <sstream>
#include <string>
#include <thread>

#include "agent/ring/ring_writer.h"
#include "proto/record_writer.h"

namespace traincheck::agent {
namespace {

using Clock = std::chrono::steady_clock;

constexpr uint64_t kCallsPerStep = 100;
constexpr uint64_t kMaxRestarts = 3;
constexpr std::chrono::milliseconds kExitWait{2000};

// Shared with whoever reads the file.
struct Counters {
  uint64_t committed_calls;  // begin and end both in the ring
  uint64_t dropped_records;
  uint64_t relay_starts;
  uint64_t relay_pid;
  uint64_t ending;  // 1: all calls are committed, it waits for the relay
};

Counters* MapCounters(const char* path) {
  const int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0 || ftruncate(fd, sizeof(Counters)) != 0) return nullptr;
  void* at = mmap(nullptr, sizeof(Counters), PROT_READ | PROT_WRITE, MAP_SHARED,
                  fd, 0);
  close(fd);
  return at == MAP_FAILED ? nullptr : static_cast<Counters*>(at);
}

uint64_t StartTicks() {
  std::ifstream stat("/proc/self/stat");
  std::string text;
  std::getline(stat, text);
  std::istringstream rest(text.substr(text.rfind(')') + 2));
  std::string word;
  for (int field = 3; field <= 22; ++field) rest >> word;
  return std::stoull(word);
}

std::string BootId() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  std::getline(file, id);
  return id;
}

// The connection to one relay after the other.
class Link {
 public:
  Link(std::string program, Counters* counters)
      : program_(std::move(program)), counters_(counters) {}

  bool Start(const RingWriter& definitions, const RingWriter& main) {
    ++counters_->relay_starts;
    if (socket_ >= 0) close(socket_);
    const int listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof(sa_family_t));
    socklen_t size = sizeof address;
    getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size);
    if (listen(listener, 8) != 0) return false;
    Launch(listener);
    close(listener);
    socket_ = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    return connect(socket_, reinterpret_cast<sockaddr*>(&address), size) == 0 &&
           HandOver(definitions) && HandOver(main);
  }

  // Answers are read on the way. False: the relay's end is closed.
  bool Alive() {
    char answer[16];
    ssize_t size;
    while ((size = recv(socket_, answer, sizeof answer, MSG_DONTWAIT)) > 0) {
    }
    return size < 0 && (errno == EAGAIN || errno == EINTR);
  }

 private:
  // Twice forked, so that nobody has to wait for the relay.
  void Launch(int listener) {
    const std::string owner = std::to_string(getpid());
    const std::string start = std::to_string(counters_->relay_starts);
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return;
    const pid_t child = fork();
    if (child == 0) {
      const pid_t relay = fork();
      if (relay == 0) {
        setsid();
        setenv("TRAINCHECK_OWNER_PID", owner.c_str(), 1);
        // From 2 on: it takes over what another one had.
        if (start != "1") setenv("TRAINCHECK_RELAY_START", start.c_str(), 1);
        dup2(fcntl(listener, F_DUPFD, 10), 3);  // it may be 3, close-on-exec
        execl(program_.c_str(), program_.c_str(), nullptr);
        _exit(127);
      }
      _exit(write(ends[1], &relay, sizeof relay) == sizeof relay ? 0 : 1);
    }
    waitpid(child, nullptr, 0);
    pid_t relay = 0;
    if (read(ends[0], &relay, sizeof relay) == sizeof relay) {
      counters_->relay_pid = static_cast<uint64_t>(relay);
    }
    close(ends[0]);
    close(ends[1]);
  }

  bool HandOver(const RingWriter& ring) {
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
    return sendmsg(socket_, &message, MSG_NOSIGNAL) == sizeof handover;
  }

  const std::string program_;
  Counters* const counters_;
  int socket_ = -1;
};

class Load {
 public:
  Load(Link* link, Counters* counters)
      : definitions_(RingWriter::Create(kDefinitionRing, kDefinitionRingBytes)),
        main_(RingWriter::Create(1, kMainRingBytes)),
        link_(*link),
        counters_(*counters) {}

  bool Begin() {
    Define();
    Place();
    return link_.Start(*definitions_, *main_);
  }

  void Run(uint64_t calls, uint64_t rate) {
    const auto start = Clock::now();
    for (uint64_t call = 1; call <= calls; ++call) {
      if (call % kCallsPerStep == 1) Sync(call);
      Call(static_cast<uint32_t>(call));
      counters_.committed_calls = call;
      if (call % kCallsPerStep != 0) continue;
      Mark(call / kCallsPerStep - 1, MarkKind::kStepClosed);
      RestartRelay();
      std::this_thread::sleep_until(
          start + std::chrono::microseconds(call * 1'000'000 / rate));
    }
  }

  void End() {
    Mark(0, MarkKind::kCleanExit);
    counters_.ending = 1;
    const auto until = Clock::now() + kExitWait;
    while (!(definitions_->drained() && main_->drained()) &&
           Clock::now() < until) {
      RestartRelay();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

 private:
  // A relay that dies at once is found dead at the next step mark.
  void RestartRelay() {
    if (link_.Alive() || counters_.relay_starts > kMaxRestarts) return;
    (void)link_.Start(*definitions_, *main_);
  }

  void Append(const void* record, size_t size) {
    if (!main_->Append(record, size)) ++counters_.dropped_records;
  }

  void Define() {
    alignas(8) char buffer[2048];
    FieldWriter out(buffer, sizeof buffer,
                    DefinitionRecord{{}, static_cast<uint32_t>(getpid()), 0});
    const char* run = getenv("TRAINCHECK_RUN");
    out.Bytes(Field::kHost, "load");
    out.Bytes(Field::kBootId, BootId());
    out.Unsigned(Field::kStartTicks, StartTicks());
    out.Unsigned(Field::kProcessKind,
                 static_cast<uint64_t>(ProcessKind::kMain));
    out.Bytes(Field::kRun, run ? run : "load");
    out.Bytes(Field::kExperiment, "load");
    out.Unsigned(Field::kRunRole, static_cast<uint64_t>(RunRole::kReference));
    definitions_->Append(buffer, out.Finish(RecordType::kProcessDef, 0, 0));
    FieldWriter name(buffer, sizeof buffer, DefinitionRecord{{}, 1, 0});
    name.Bytes(Field::kText, "load.call");
    definitions_->Append(buffer, name.Finish(RecordType::kStringDef, 0, 0));
    FieldWriter function(buffer, sizeof buffer, DefinitionRecord{{}, 1, 0});
    function.Unsigned(Field::kName, 1);
    definitions_->Append(buffer,
                         function.Finish(RecordType::kFunctionDef, 0, 0));
  }

  void Place() {
    Sync(1);
    PlaceRecord place = {};
    place.header = {sizeof place, static_cast<uint8_t>(RecordType::kPlace), 0,
                    0};
    place.rank = 0;
    place.world_size = 1;
    place.local_rank = 0;
    Append(&place, sizeof place);
  }

  void Sync(uint64_t next_call) {
    ClockSyncRecord sync = {};
    sync.header = {sizeof sync, static_cast<uint8_t>(RecordType::kClockSync), 0,
                   0};
    sync.monotonic_ns = static_cast<uint64_t>(Clock::now().time_since_epoch() /
                                              std::chrono::nanoseconds(1));
    sync.realtime_ns = static_cast<uint64_t>(
        std::chrono::system_clock::now().time_since_epoch() /
        std::chrono::nanoseconds(1));
    sync.next_call = next_call;
    Append(&sync, sizeof sync);
  }

  void Call(uint32_t call) {
    CallBeginRecord begin = {};
    begin.header = {sizeof begin, static_cast<uint8_t>(RecordType::kCallBegin),
                    0, 1};
    begin.function = 1;
    begin.call = call;
    Append(&begin, sizeof begin);
    CallEndRecord end = {};
    end.header = {sizeof end, static_cast<uint8_t>(RecordType::kCallEnd), 0, 1};
    end.call = call;
    end.function = 1;
    Append(&end, sizeof end);
  }

  void Mark(uint64_t value, MarkKind kind) {
    MarkRecord mark = {};
    mark.header = {sizeof mark, static_cast<uint8_t>(RecordType::kMark),
                   static_cast<uint8_t>(kind), 0};
    mark.value = value;
    Append(&mark, sizeof mark);
  }

  const std::unique_ptr<RingWriter> definitions_;
  const std::unique_ptr<RingWriter> main_;
  Link& link_;
  Counters& counters_;
};

int Main(char** arguments) {
  Counters* counters = MapCounters(arguments[2]);
  if (!counters) return 1;
  Link link(arguments[1], counters);
  Load load(&link, counters);
  if (!load.Begin()) {
    std::cerr << "record_load: the relay takes no rings\n";
    return 1;
  }
  load.Run(std::stoull(arguments[3]), std::stoull(arguments[4]));
  load.End();
  return 0;
}

}  // namespace
}  // namespace traincheck::agent

int main(int argc, char** argv) {
  if (argc != 5) {
    std::cerr << "usage: record_load RELAY COUNTERS CALLS RATE\n";
    return 2;
  }
  return traincheck::agent::Main(argv);
}
