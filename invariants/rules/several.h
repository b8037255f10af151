// A relation of several forms: one generator and one evaluator out of many.
//
// Threads: as relation.h.
#ifndef TRAINCHECK_INVARIANTS_RULES_SEVERAL_H_
#define TRAINCHECK_INVARIANTS_RULES_SEVERAL_H_

#include <memory>
#include <utility>
#include <vector>

#include "invariants/rules/relation.h"

namespace traincheck {

// Hands each event of a process to several observers, in their order.
class SeveralObservers : public ProcessObserver {
 public:
  void Add(std::unique_ptr<ProcessObserver> part) {
    parts_.push_back(std::move(part));
  }

  void OnCallBegin(const ProcessFacts& facts, const Call& call) override {
    for (const auto& part : parts_) part->OnCallBegin(facts, call);
  }
  void OnCallEnd(const ProcessFacts& facts, const Call& call,
                 CallOutcome outcome) override {
    for (const auto& part : parts_) part->OnCallEnd(facts, call, outcome);
  }
  void OnState(const ProcessFacts& facts, const StateEvent& event) override {
    for (const auto& part : parts_) part->OnState(facts, event);
  }
  void OnWorkerState(const ProcessFacts& facts,
                     const StateEvent& event) override {
    for (const auto& part : parts_) part->OnWorkerState(facts, event);
  }
  void OnMark(const ProcessFacts& facts, const MarkEvent& event) override {
    for (const auto& part : parts_) part->OnMark(facts, event);
  }
  void OnCollective(const ProcessFacts& facts,
                    const CollectiveEvent& event) override {
    for (const auto& part : parts_) part->OnCollective(facts, event);
  }
  void OnCheckpointEntry(const ProcessFacts& facts,
                         const CheckpointEntryEvent& event) override {
    for (const auto& part : parts_) part->OnCheckpointEntry(facts, event);
  }
  void OnDefinition(const ProcessFacts& facts, RecordType type,
                    uint32_t id) override {
    for (const auto& part : parts_) part->OnDefinition(facts, type, id);
  }
  void OnEnd(const ProcessFacts& facts, ProcessEnd end) override {
    for (const auto& part : parts_) part->OnEnd(facts, end);
  }
  void OnQuiet(const ProcessFacts& facts) override {
    for (const auto& part : parts_) part->OnQuiet(facts);
  }
  void Fields(Archive& archive) override {
    for (const auto& part : parts_) part->Fields(archive);
  }

 private:
  std::vector<std::unique_ptr<ProcessObserver>> parts_;
};

// Base is RunObserver or Generator.
template <typename Base>
class Several : public Base {
 public:
  void Add(std::unique_ptr<Base> form) { forms_.push_back(std::move(form)); }

  std::unique_ptr<ProcessObserver> AddProcess(
      const ProcessFacts& facts) override {
    auto all = std::make_unique<SeveralObservers>();
    for (const auto& form : forms_) all->Add(form->AddProcess(facts));
    return all;
  }
  void EndRun() override {
    for (const auto& form : forms_) form->EndRun();
  }
  void GiveUpRank(uint32_t attempt, int32_t rank,
                  const std::string& reason) override {
    for (const auto& form : forms_) form->GiveUpRank(attempt, rank, reason);
  }
  void Fields(Archive& archive) override {
    for (const auto& form : forms_) form->Fields(archive);
  }

 protected:
  std::vector<std::unique_ptr<Base>> forms_;
};

class SeveralGenerators : public Several<Generator> {
 public:
  std::vector<Hypothesis> Take() override {
    std::vector<Hypothesis> all;
    for (const auto& form : forms_) {
      for (Hypothesis& hypothesis : form->Take()) {
        all.push_back(std::move(hypothesis));
      }
    }
    return all;
  }
};

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_RULES_SEVERAL_H_
