#include "agent/capture/plan_inbox.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <utility>
#include <vector>

#include "agent/capture/log.h"
#include "agent/ring/ring_abi.h"

namespace traincheck::agent {
namespace {

// A plan comes with one descriptor. There is room for more, so that a message
// with several is seen as malformed and all of them are closed.
constexpr size_t kMaxDescriptors = 4;
constexpr int kSeals = F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW;

// Takes over the descriptors of a message and closes them at the end. A
// descriptor that was received and not closed would stay in the training for
// good.
class Descriptors {
 public:
  explicit Descriptors(msghdr& message) {
    for (cmsghdr* part = CMSG_FIRSTHDR(&message); part != nullptr;
         part = CMSG_NXTHDR(&message, part)) {
      if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) {
        continue;
      }
      const size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
      for (size_t i = 0; i < count; ++i) {
        int file;
        std::memcpy(&file, CMSG_DATA(part) + i * sizeof file, sizeof file);
        files_.push_back(file);
      }
    }
  }
  ~Descriptors() {
    for (const int file : files_) close(file);
  }
  Descriptors(const Descriptors&) = delete;
  Descriptors& operator=(const Descriptors&) = delete;

  int only() const { return files_.size() == 1 ? files_[0] : -1; }

 private:
  std::vector<int> files_;
};

bool IsPlan(const PlanMessage& message, size_t size) {
  return size >= sizeof message.magic &&
         std::memcmp(message.magic, kPlanMagic, sizeof message.magic) == 0;
}

// "": the plan is in *text; otherwise the reason for the refusal. The seals
// guarantee that nobody can change or shorten the file while it is read, and
// pipes have no seals, so the read does not block.
std::string ReadSealed(int file, uint32_t bytes, std::string* text) {
  if (file < 0) return "it comes without its file";
  if (bytes == 0 || bytes > kMaxPlanBytes) {
    return "it has " + std::to_string(bytes) + " bytes; 1 MiB is allowed";
  }
  const int seals = fcntl(file, F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals) return "its file is not sealed";
  if (lseek(file, 0, SEEK_END) != static_cast<off_t>(bytes)) {
    return "its file has another size than it says";
  }
  text->resize(bytes);
  const ssize_t count = pread(file, text->data(), bytes, 0);
  if (count == static_cast<ssize_t>(bytes)) return "";
  return std::string("its file cannot be read: ") + std::strerror(errno);
}

}  // namespace

// The relay is not trusted with more than a plan: the message's size, its
// flags, its descriptors and the file are checked before anything is used.
bool PlanInbox::Receive(int socket) {
  PlanMessage message = {};
  iovec data = {&message, sizeof message};
  alignas(cmsghdr) char control[CMSG_SPACE(kMaxDescriptors * sizeof(int))] = {};
  msghdr header = {};
  header.msg_iov = &data;
  header.msg_iovlen = 1;
  header.msg_control = control;
  header.msg_controllen = sizeof control;
  const ssize_t size =
      recvmsg(socket, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  // The end of the connection reads as nothing, too: whoever polls it sees it.
  if (size <= 0) return false;
  const Descriptors files(header);
  // The relay's answers to rings are messages as well and say nothing that is
  // needed here.
  if (!IsPlan(message, static_cast<size_t>(size))) return true;

  PlanChange change = {message.version, message.from_step, {}};
  const bool whole = static_cast<size_t>(size) == sizeof message &&
                     (header.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) == 0;
  // A relay that was restarted sends its plan again; it is not read twice.
  if (whole && newest_ && message.version <= *newest_) return true;
  const std::string why =
      whole ? ReadSealed(files.only(), message.bytes, &change.json)
            : "the message is malformed";
  if (!why.empty()) {
    LogOnce("change of plan",
            "a change of the capture plan is refused: " + why);
    return true;
  }
  // Only of a plan that was taken: one that was refused may come again.
  newest_ = change.version;
  waiting_ = std::move(change);
  return true;
}

std::optional<PlanChange> PlanInbox::Take() {
  return std::exchange(waiting_, std::nullopt);
}

}  // namespace traincheck::agent
