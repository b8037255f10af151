#include "agent/relay/plan_table.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

namespace traincheck::agent {
namespace {

constexpr int kSeals = F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;

absl::Status SystemError(const char* call) {
  return absl::UnavailableError(absl::StrCat(call, ": ", std::strerror(errno)));
}

// A file in memory that is passed on by descriptor: one copy serves all
// processes of the run.
absl::StatusOr<UniqueFd> MakeSealed(const std::string& bytes) {
  UniqueFd file(memfd_create("plan", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file.valid()) return SystemError("memfd_create");
  size_t written = 0;
  while (written < bytes.size()) {
    const ssize_t count =
        write(file.get(), bytes.data() + written, bytes.size() - written);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return SystemError("write");
    written += static_cast<size_t>(count);
  }
  // An agent refuses a plan that somebody could still change.
  if (fcntl(file.get(), F_ADD_SEALS, kSeals) != 0) return SystemError("fcntl");
  return file;
}

}  // namespace

// Streams of the same run hear the same plan, one after the other, and the
// newest counts. Sizes are checked here, since the agent refuses what is
// larger.
absl::Status PlanTable::Put(const std::string& run,
                            const v1::PlanChange& change) {
  const auto held = plans_.find(run);
  // Each stream of the run hears of the same plan.
  if (held != plans_.end() &&
      held->second.message.version >= change.version()) {
    return absl::OkStatus();
  }
  if (change.plan().empty() || change.plan().size() > kMaxPlanBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("plan ", change.version(), " has ", change.plan().size(),
                     " bytes, the limit is ", kMaxPlanBytes));
  }
  absl::StatusOr<UniqueFd> file = MakeSealed(change.plan());
  if (!file.ok()) return file.status();
  HeldPlan plan;
  std::memcpy(plan.message.magic, kPlanMagic, sizeof kPlanMagic);
  plan.message.bytes = static_cast<uint32_t>(change.plan().size());
  plan.message.version = change.version();
  plan.message.from_step = change.from_step();
  plan.file = *std::move(file);
  // Processes that were handed the older plan have descriptors of their own.
  plans_.insert_or_assign(run, std::move(plan));
  return absl::OkStatus();
}

const HeldPlan* PlanTable::Find(const std::string& run) const {
  const auto held = plans_.find(run);
  return held == plans_.end() ? nullptr : &held->second;
}

// The message and the file's descriptor go together. A process that does not
// read now gets the plan, or a newer one, at a later turn.
bool SendPlan(int socket, const HeldPlan& plan) {
  PlanMessage message = plan.message;
  iovec part = {&message, sizeof message};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr header = {};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  header.msg_control = control;
  header.msg_controllen = sizeof control;
  cmsghdr* files = CMSG_FIRSTHDR(&header);
  files->cmsg_level = SOL_SOCKET;
  files->cmsg_type = SCM_RIGHTS;
  files->cmsg_len = CMSG_LEN(sizeof(int));
  const int file = plan.file.get();
  std::memcpy(CMSG_DATA(files), &file, sizeof file);
  if (sendmsg(socket, &header, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0) return true;
  // ETOOMANYREFS: messages with files that nobody takes off are too many.
  return errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR &&
         errno != ENOBUFS && errno != ENOMEM && errno != ETOOMANYREFS;
}

}  // namespace traincheck::agent
