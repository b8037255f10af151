// Derives the clocks and stages of one process from its records and prints
// them as JSON: what is expected of it is in clocks_test.py.
//
//   clock_dump FOLDER PID
//
// FOLDER is what agent/capture/relay_for_testing.py wrote.
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "invariants/facts/process_facts.h"
#include "tests/clocks/rings.h"

namespace traincheck {
namespace {

using Json = nlohmann::json;

// Notes what the facts say at the end of root forwards and optimizer steps.
class Notes : public ProcessObserver {
 public:
  void OnCallEnd(const ProcessFacts& facts, const Call& call,
                 CallOutcome outcome) override {
    if (IsRootForward(call)) {
      forwards_.push_back({{"step", facts.clock().step()},
                           {"stage", facts.stage()},
                           {"class", call.function->name}});
    }
    if (!IsOptimizerStep(call)) return;
    const auto epoch = facts.clock().epoch();
    steps_.push_back({{"step", facts.clock().step()},
                      {"optimizer", call.object},
                      {"stage", facts.stage()},
                      {"epoch", epoch ? Json(*epoch) : Json()}});
  }
  void OnMark(const ProcessFacts& facts, const MarkEvent& mark) override {
    closed_by_agent_ += mark.kind == MarkKind::kStepClosed;
  }

  Json Of(const ProcessFacts& facts) const {
    Json optimizers = Json::object();
    for (const auto& [id, object] : facts.definitions().objects()) {
      if (object.kind != ObjectKind::kOptimizer) continue;
      optimizers[std::to_string(id)] = {
          {"steps", *facts.clock().OptimizerSteps(id)},
          {"skipped", facts.clock().SkippedSteps(id)}};
    }
    return {{"forwards", forwards_},
            {"optimizer_steps", steps_},
            {"optimizers", optimizers},
            {"steps", facts.clock().step()},
            {"closed_by_agent", closed_by_agent_},
            {"disagreements", facts.clock().disagreements()},
            {"gaps", facts.gaps()}};
  }

 private:
  Json forwards_ = Json::array();
  Json steps_ = Json::array();
  uint64_t closed_by_agent_ = 0;
};

}  // namespace
}  // namespace traincheck

int main(int argc, char** argv) {
  if (argc != 3) {
    std::cerr << "usage: clock_dump FOLDER PID\n";
    return 2;
  }
  traincheck::Notes notes;
  traincheck::ProcessFacts facts(0);
  facts.AddObserver(&notes);
  facts.Consume(traincheck::ReadRings(argv[1], argv[2]));
  std::cout << notes.Of(facts) << "\n";
  return 0;
}
