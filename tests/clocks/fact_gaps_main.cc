// Takes records of one process away, in many ways, and asks whether a fact
// that is known all the same has the value that it has with all records.
//
//   fact_gaps FOLDER PID TIMES
//
// FOLDER is what agent/capture/relay_for_testing.py wrote. Prints JSON:
// {asked, known, wrong: ["seed 3: call.stage of ...: training, not init"]};
// asked: facts that are known with all records.
#include <algorithm>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "invariants/facts/fact.h"
#include "invariants/facts/fact_value.h"
#include "invariants/facts/loader_passes.h"
#include "invariants/facts/process_facts.h"
#include "invariants/testing/random_run.h"
#include "invariants/trace/events.h"
#include "tests/clocks/rings.h"

namespace traincheck {
namespace {

using Json = nlohmann::json;
using Random = std::mt19937_64;

constexpr size_t kMostShown = 20;

// Ring and number of a call, whether it ends, a variable, a fact.
using Place = std::tuple<uint32_t, uint64_t, bool, uint32_t, std::string>;

struct Seen {
  bool applies = true;
  FactValue value;
  std::string function;
};

// Notes all facts where rules on facts read them.
class Notes : public ProcessObserver {
 public:
  void OnCallBegin(const ProcessFacts& facts, const Call& call) override {
    Note(facts, call, /*at_end=*/false);
    const auto step = facts.clock().known_step();
    const FactValue value = step ? FactValue(double(*step)) : FactValue();
    seen_[{call.ring, call.number, false, 0, "step"}] = {true, value, ""};
  }
  void OnCallEnd(const ProcessFacts& facts, const Call& call,
                 CallOutcome outcome) override {
    if (outcome == CallOutcome::kUnknown) return;
    Note(facts, call, /*at_end=*/true);
    if (!IsOptimizerStep(call)) return;
    for (const auto& [key, variables] : facts.definitions().holds()) {
      if (key.first != call.object) continue;
      for (const uint32_t variable : variables) {
        FactSubject subject{&facts, &call,    call.object,
                            0,      variable, key.second};
        for (const Fact& fact : VariableFacts()) Put(fact, subject, true);
      }
    }
  }

  const std::map<Place, Seen>& seen() const { return seen_; }

 private:
  void Note(const ProcessFacts& facts, const Call& call, bool at_end) {
    FactSubject subject{&facts, &call};
    if (IsOptimizerStep(call)) subject.optimizer = call.object;
    subject.loader = facts.loader_passes().LoaderOn(call.ring);
    for (const auto* table :
         {&CallFacts(), &OptimizerFacts(), &LoaderFacts(), &ObservedFacts()}) {
      for (const Fact& fact : *table) {
        if (fact.at_end == at_end) Put(fact, subject, at_end);
      }
    }
  }
  void Put(const Fact& fact, const FactSubject& subject, bool at_end) {
    const Call& call = *subject.call;
    const Place place(call.ring, call.number, at_end, subject.variable,
                      fact.name);
    seen_[place] = {fact.Applies(subject), fact.read(subject),
                    call.function ? call.function->name : ""};
  }

  std::map<Place, Seen> seen_;
};

std::map<Place, Seen> Replay(const std::vector<StoredBatch>& batches) {
  Notes notes;
  ProcessFacts facts(0);
  facts.AddObserver(&notes);
  for (const StoredBatch& batch : batches) facts.Consume(batch);
  return notes.seen();
}

// Takes slices out of a batch: of all rings (0) or of one; definitions stay.
void Drop(uint32_t ring, StoredBatch* batch) {
  StoredBatch kept;
  kept.number = batch->number;
  size_t at = 0;
  for (const RingSlice& slice : batch->slices) {
    const size_t size = slice.to - slice.from;
    if (slice.ring == kDefinitionRing || (ring != 0 && slice.ring != ring)) {
      kept.slices.push_back(slice);
      kept.plain.append(batch->plain, at, size);
    }
    at += size;
  }
  *batch = std::move(kept);
}

// A beginning, as where the daemon's store is new, or up to two holes.
std::vector<StoredBatch> WithHoles(std::vector<StoredBatch> batches,
                                   Random* random) {
  for (int i = 0; i < 4; ++i) batches = Split(batches, random);
  const auto draw = [random](size_t below) {
    return static_cast<size_t>((*random)() % below);
  };
  const size_t holes = draw(3);
  if (holes == 0) {
    const size_t kept = draw(batches.size());
    for (size_t i = 0; i < kept; ++i) Drop(0, &batches[i]);
  }
  for (size_t hole = 0; hole < holes; ++hole) {
    const auto ring = static_cast<uint32_t>(draw(3));
    const size_t first = draw(batches.size());
    const size_t last = std::min(batches.size(), first + 1 + draw(4));
    for (size_t i = first; i < last; ++i) Drop(ring, &batches[i]);
  }
  return batches;
}

std::string Text(const FactValue& value) { return FactToJson(value).dump(); }

Json Compare(const std::vector<StoredBatch>& whole, uint64_t times) {
  const std::map<Place, Seen> expected = Replay(whole);
  uint64_t asked = 0;
  uint64_t known = 0;
  Json wrong = Json::array();
  for (uint64_t seed = 0; seed < times; ++seed) {
    Random random(seed);
    for (const auto& [place, seen] : Replay(WithHoles(whole, &random))) {
      const auto found = expected.find(place);
      if (found == expected.end() || !seen.applies) continue;
      asked += IsKnown(found->second.value);
      if (!IsKnown(seen.value)) continue;
      ++known;
      if (found->second.applies && found->second.value == seen.value) continue;
      if (wrong.size() >= kMostShown) continue;
      wrong.push_back(
          "seed " + std::to_string(seed) + ": " + std::get<std::string>(place) +
          " of " + seen.function + " " +
          std::to_string(std::get<uint64_t>(place)) +
          (std::get<bool>(place) ? " (end)" : "") + " is " + Text(seen.value) +
          ", not " +
          (found->second.applies ? Text(found->second.value) : "asked for"));
    }
  }
  return {{"asked", asked}, {"known", known}, {"wrong", wrong}};
}

}  // namespace
}  // namespace traincheck

int main(int argc, char** argv) {
  if (argc != 4) {
    std::cerr << "usage: fact_gaps FOLDER PID TIMES\n";
    return 2;
  }
  std::cout << traincheck::Compare({traincheck::ReadRings(argv[1], argv[2])},
                                   std::stoull(argv[3]))
            << "\n";
  return 0;
}
