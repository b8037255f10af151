#include "agent/relay/relay.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <utility>

#include "agent/relay/handover.h"
#include "agent/relay/limits.h"
#include "agent/relay/unique_fd.h"
#include "base/logging.h"

namespace traincheck::agent {
namespace {

// A connection that could not be accepted, for lack of descriptors, is tried
// again after this.
constexpr seconds kAcceptAgain{1};

}  // namespace

Relay::Relay(const RelayOptions& options, int listener, int terminate)
    : options_(options),
      listener_(listener),
      terminate_(terminate),
      wake_(std::make_shared<Wake>()),
      spool_directory_(options.spool_places, options.spool_limit_bytes) {
  // A limit that somebody has set holds for a spool in memory, too.
  if (!options.spool_limit_is_set) {
    spool_directory_.SetMemoryLimit(kMemorySpoolBytes);
  }
  context_.server = options.server;
  context_.wake = [wake = wake_] { wake->Set(); };
  context_.spool_directory = &spool_directory_;
  context_.compressor = &compressor_;
  context_.plans = &plans_;
  context_.takes_over = options.start > 1;
  context_.grace = options.grace;
}

// The loop of the whole program: one thread that polls, gives each process a
// turn, and ends when nothing is left. A default socket whose folder belongs to
// another user does not end it, because records can still be spooled.
absl::Status Relay::Run() {
  absl::StatusOr<std::shared_ptr<grpc::Channel>> channel =
      MakeRelayChannel(options_.server, options_.files);
  if (!channel.ok() && options_.server == DefaultAddress()) {
    // Another user has its folder; nobody is at this address.
    channel = MakeRelayChannel("unix:/dev/null/traincheckd", options_.files);
  }
  if (!channel.ok()) return channel.status();
  if (absl::Status s = CheckAddress(options_.server, options_.files); !s.ok()) {
    spdlog::warn("records are spooled until this is mended: {}",
                 std::string(s.message()));
  }
  context_.channel = *std::move(channel);
  orphans_.emplace(&spool_directory_,
                   OrphanDelivery::Dependencies{context_.channel, context_.wake,
                                                &compressor_});
  started_ = std::chrono::steady_clock::now();
  while (!MayEnd(std::chrono::steady_clock::now())) {
    Poll(std::chrono::steady_clock::now());
    const TimePoint now = std::chrono::steady_clock::now();
    bool streaming = false;
    for (const auto& process : processes_) {
      process->Turn(now);
      had_rings_ |= process->has_rings();
      streaming |= process->streaming();
    }
    orphans_->Turn(now, streaming);
    MayLetGoOfStderr(now);
    std::erase_if(processes_, [](const auto& p) { return p->finished(); });
  }
  return absl::OkStatus();
}

// The relay lives as long as it may have something to do, and no longer: nobody
// stops it.
bool Relay::MayEnd(TimePoint now) const {
  // The agent starts the relay and connects afterwards. If it dies in between,
  // nobody ever comes.
  const bool expecting = !had_rings_ && now - started_ < kFirstClientTimeout;
  // Files that other relays left keep this one no longer than the grace after
  // the last process of its own.
  const bool for_orphans =
      orphans_->busy() && now - last_alive_ < context_.grace;
  return processes_.empty() && !expecting && !for_orphans;
}

// Waits for a socket, a process's death, the stream's news or the signal, at
// most one poll period.
void Relay::Poll(TimePoint now) {
  // poll leaves out -1.
  std::vector<pollfd> polled = {
      {now < accept_from_ ? -1 : listener_, POLLIN, 0},
      {wake_->fd(), POLLIN, 0},
      // The signal is never read from its descriptor, which would end each poll
      // at once.
      {terminating_ ? -1 : terminate_, POLLIN, 0}};
  const size_t fixed = polled.size();
  bool active = false;
  for (const auto& process : processes_) {
    polled.push_back({process->socket(), POLLIN, 0});
    polled.push_back({process->pidfd(), POLLIN, 0});
    active |= process->active(now);
  }
  // Writers never wake anybody, so that a training pays for no system call: the
  // rings are polled, more often while records come.
  const auto period = active ? kActivePoll : kIdlePoll;
  if (poll(polled.data(), polled.size(), static_cast<int>(period.count())) <=
      0) {
    return;
  }
  if (polled[1].revents != 0) wake_->Clear();
  if (polled[2].revents != 0) Hurry();
  // Before others are accepted: what was polled is in the order of the
  // processes.
  HearProcesses({polled.begin() + fixed, polled.end()},
                std::chrono::steady_clock::now());
  if (polled[0].revents != 0) AcceptAll(now);
}

// A pidfd is readable when its process is dead.
void Relay::HearProcesses(const std::vector<pollfd>& polled, TimePoint now) {
  for (size_t i = 0; i < processes_.size(); ++i) {
    if (polled[2 * i].revents != 0) processes_[i]->OnSocket();
    if (polled[2 * i + 1].revents != 0) processes_[i]->OnDeath(now);
  }
}

// All connections that wait: a training with many workers connects them at
// once.
void Relay::AcceptAll(TimePoint now) {
  while (true) {
    absl::StatusOr<std::optional<Peer>> peer = AcceptPeer(listener_);
    if (!peer.ok()) {
      spdlog::warn("connection refused: {}",
                   std::string(peer.status().message()));
      // No descriptor is left, most often. The connection still waits, and
      // would end each poll at once.
      if (absl::IsUnavailable(peer.status())) accept_from_ = now + kAcceptAgain;
      return;
    }
    if (!peer->has_value()) return;
    // The agent takes a closed connection for a dead relay, and starts one of
    // its own.
    if (processes_.size() >= kMaxClients) {
      spdlog::warn("connection refused: {} processes are connected",
                   kMaxClients);
      continue;
    }
    processes_.push_back(
        std::make_unique<ProcessStream>(**std::move(peer), &context_));
  }
}

// stderr belongs to the training. Messages about processes that still deliver
// go out before it is closed.
void Relay::MayLetGoOfStderr(TimePoint now) {
  const bool ended = std::all_of(processes_.begin(), processes_.end(),
                                 [](const auto& p) { return p->ended(); });
  // Who reads the training's stderr from a pipe sees its end only when the
  // relay has closed it, too.
  if (!ended || !had_rings_) last_alive_ = now;
  if (!has_stderr_ || now - last_alive_ < kKeepStderr) return;
  if (!context_.told_unreachable) {
    for (const auto& process : processes_) process->TellUndelivered();
  }
  has_stderr_ = false;
  const UniqueFd null(open("/dev/null", O_WRONLY | O_CLOEXEC));
  if (null.valid()) dup2(null.get(), STDERR_FILENO);
}

// SIGTERM is how a scheduler ends a job: what cannot be delivered in the short
// grace is spooled.
void Relay::Hurry() {
  terminating_ = true;
  context_.grace = std::min(context_.grace, kGraceAfterTerm);
}

}  // namespace traincheck::agent
