// Two relays that say what they like to one daemon: sessions over the registry
// and a store in memory, with disconnects, restarts and time that passes.
//
// Input: operations, one byte each (which session: bit 7; whose it is, where
// one connects: bits 4 to 6) with the operands behind it.
#include <array>
#include <memory>
#include <string>

#include "server/ingest/session.h"
#include "server/plans/run_plans.h"
#include "server/store/memory_store_for_testing.h"
#include "spdlog/spdlog.h"
#include "tests/fuzz/batch_input.h"

namespace traincheck::server {
namespace {

constexpr absl::Duration kStep = absl::Seconds(30);
constexpr std::array<const char*, 3> kOwners = {"", "alice", "bob"};

v1::Hello HelloOf(FuzzInput* input) {
  v1::Hello hello;
  const uint8_t bits = input->Byte();
  hello.set_format_version_min(1);
  hello.set_format_version_max(bits % 4);
  hello.set_run(std::string(1, static_cast<char>('a' + bits % 3)));
  hello.set_resumes((bits & 4) != 0);
  hello.set_experiment("e");
  hello.set_role(static_cast<v1::RunRole>(bits >> 6));
  if ((bits & 8) != 0) hello.set_check_set("set");
  const uint8_t program = input->Byte();
  hello.set_attempt(program % 16);
  v1::ProcessIdentity* process = hello.mutable_process();
  process->set_image(program / 16);
  process->set_host("h");
  process->set_pid(input->Byte());
  process->set_kind(static_cast<v1::ProcessKind>(bits >> 4 & 3));
  process->set_start_ticks(7);
  return hello;
}

template <typename Message>
void AddReports(FuzzInput* input, Message* to) {
  for (int i = input->Byte() % 4; i > 0; --i) {
    v1::RingReport* report = to->add_rings();
    report->set_ring(input->Byte());
    report->set_head(input->Number<uint16_t>());
    report->set_offered_records(input->Byte());
    report->set_committed_records(input->Number<uint16_t>());
    report->set_dropped_records(input->Byte());
  }
}

// What a stream is of: whoever does not know all of it takes no other over.
std::string ProcessOf(const v1::Hello& hello) {
  const v1::ProcessIdentity& process = hello.process();
  return hello.run() + "\n" + process.host() + "\n" +
         std::to_string(process.pid()) + "\n" +
         std::to_string(process.start_ticks()) + "\n" +
         std::to_string(process.image());
}

class Play {
 public:
  explicit Play(FuzzInput* input) : input_(*input) { Start(); }
  ~Play() {
    store_.Sync();
    for (const std::string& run : registry_->RunIds()) {
      Require(registry_->Run(run).ok());
      Require(registry_->View(run).ok());
    }
  }

  void Run() {
    while (!input_.empty()) {
      const uint8_t operation = input_.Byte();
      const size_t which = operation >> 7;
      if (operation % 16 == 1) {
        Connect(which, kOwners[operation / 16 % kOwners.size()]);
      } else {
        Do(operation % 16, which);
      }
      Drain(which);
    }
  }

 private:
  // The daemon, killed and started on what was synced.
  void Start() {
    for (auto& session : sessions_) session.reset();
    store_.Forget();
    auto registry = Registry::Load(&store_, {.now = [this] { return now_; }});
    Require(registry.ok());
    registry_ = *std::move(registry);
    plans_ = std::make_unique<RunPlans>(
        RunPlans::Dependencies{.store = &store_, .registry = registry_.get()});
    Connect(0);
    Connect(1);
  }

  // An owner's token, or an administrator's: "".
  void Connect(size_t which, const std::string& owner = "") {
    if (sessions_[which]) sessions_[which]->Disconnect();
    owners_[which] = owner;
    sessions_[which] = std::make_unique<Session>(
        Session::Dependencies{registry_.get(), plans_.get(), store_.id(),
                              budget_, pace_},
        owner, [] {});
    acknowledged_[which] = 0;
  }

  void Do(uint8_t operation, size_t which) {
    v1::IngestRequest request;
    switch (operation) {
      case 0:
        return store_.Sync();
      case 2:
        now_ += kStep * input_.Byte();
        return registry_->Tick();
      case 3:
        return Start();
      case 4:
      case 5:
        if (!request.ParseFromString(input_.Bytes(input_.Number<uint16_t>()))) {
          return;
        }
        break;
      case 6:
      case 7:
        *request.mutable_hello() = HelloOf(&input_);
        break;
      case 8:
        AddReports(&input_, request.mutable_ring_reports());
        break;
      case 9:
        AddReports(&input_, request.mutable_goodbye());
        request.mutable_goodbye()->set_end(
            static_cast<v1::EndKind>(input_.Byte() % 4));
        break;
      default:
        *request.mutable_batch() = BatchOf(&input_);
    }
    Receive(request, which);
  }

  void Receive(const v1::IngestRequest& request, size_t which) {
    const size_t other = 1 - which;
    const bool other_was_current = sessions_[other]->CheckCurrent().ok();
    const absl::Status status = sessions_[which]->Receive(request);
    Require(status.ok() || !status.message().empty());
    if (!status.ok()) return Connect(which, owners_[which]);
    if (!request.has_hello()) return;
    const v1::Hello& hello = request.hello();
    processes_[which] = ProcessOf(hello);
    const bool other_is_current = sessions_[other]->CheckCurrent().ok();
    if (other_was_current && !other_is_current) {
      Require(processes_[which] == processes_[other]);
    }
    if (owners_[which].empty()) return;
    const auto run = registry_->Run(hello.run());
    Require(run.ok() && run->owner() == owners_[which]);
  }

  // Acknowledgements only ever go forward.
  void Drain(size_t which) {
    while (auto reply = sessions_[which]->NextReply()) {
      if (!reply->has_acknowledged()) continue;
      const uint64_t next = reply->acknowledged().next_batch();
      Require(next >= acknowledged_[which]);
      acknowledged_[which] = next;
    }
  }

  FuzzInput& input_;
  absl::Time now_ = absl::FromUnixSeconds(1'700'000'000);
  MemoryStore store_;
  std::unique_ptr<Registry> registry_;
  std::unique_ptr<RunPlans> plans_;
  const std::shared_ptr<ByteBudget> budget_ =
      std::make_shared<ByteBudget>(1 << 20);
  const std::shared_ptr<BatchPace> pace_ = std::make_shared<BatchPace>();
  std::array<std::unique_ptr<Session>, 2> sessions_;
  std::array<std::string, 2> owners_;
  std::array<std::string, 2> processes_;  // ProcessOf of those that are greeted
  std::array<uint64_t, 2> acknowledged_ = {};
};

}  // namespace
}  // namespace traincheck::server

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  spdlog::set_level(spdlog::level::off);
  traincheck::FuzzInput input(data, size);
  traincheck::server::Play(&input).Run();
  return 0;
}
