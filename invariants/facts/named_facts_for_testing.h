// Facts read by their names at calls of a trace that a test writes.
#ifndef TRAINCHECK_INVARIANTS_FACTS_NAMED_FACTS_FOR_TESTING_H_
#define TRAINCHECK_INVARIANTS_FACTS_NAMED_FACTS_FOR_TESTING_H_

#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "invariants/facts/fact.h"
#include "invariants/facts/loader_passes.h"
#include "invariants/facts/process_facts.h"
#include "invariants/testing/trace_builder.h"
#include "invariants/trace/events.h"

namespace traincheck {
inline const FactValue kUnknown;
inline const FactValue kYes(true);
inline const FactValue kNo(false);

// Reads a fact at the begin and at the end of every call of one function.
class Reading : public ProcessObserver {
 public:
  Reading(const char* fact, uint32_t function)
      : fact_(FindFact(fact)), function_(function) {}

  void OnCallBegin(const ProcessFacts& facts, const Call& call) override {
    if (!fact_->at_end) Read(facts, call);
  }
  void OnCallEnd(const ProcessFacts& facts, const Call& call,
                 CallOutcome outcome) override {
    if (fact_->at_end) Read(facts, call);
  }
  // Since the last call; a call that the fact says nothing of has none.
  std::vector<FactValue> Take() { return std::move(values_); }

 private:
  void Read(const ProcessFacts& facts, const Call& call) {
    if (call.function_id != function_) return;
    FactSubject subject;
    subject.facts = &facts;
    subject.call = &call;
    if (IsOptimizerStep(call)) subject.optimizer = call.object;
    subject.loader = facts.loader_passes().LoaderOn(call.ring);
    if (fact_->Applies(subject)) values_.push_back(fact_->read(subject));
  }

  const Fact* const fact_;
  const uint32_t function_;
  std::vector<FactValue> values_;
};

using Values = std::vector<FactValue>;

class NamedFactsTest : public testing::Test {
 protected:
  // Values of the fact at calls of the function in what was written since.
  Values Read(Reading* reading) {
    for (const StoredBatch& batch : trace_.TakeBatches()) {
      facts_.Consume(batch);
    }
    return reading->Take();
  }
  FactValue OfVariable(const char* name, uint32_t variable) {
    for (const StoredBatch& batch : trace_.TakeBatches()) {
      facts_.Consume(batch);
    }
    FactSubject subject;
    subject.facts = &facts_;
    subject.optimizer = optimizer_;
    subject.variable = variable;
    return FindFact(name)->read(subject);
  }
  void CallOf(uint32_t function, const CallOptions& options = {}) {
    trace_.Begin(function, options);
    trace_.End();
  }

  TraceBuilder trace_;
  ProcessFacts facts_{0};
  const uint32_t net_ = trace_.Object("Net", {});
  const uint32_t optimizer_ =
      trace_.Object("SGD", {.kind = ObjectKind::kOptimizer});
  const uint32_t w_ = trace_.Variable(net_, "Net", "w", {.shape = {3, 2}});
  const uint32_t forward_ = trace_.Function("Net.forward", "forward", {});
  const uint32_t backward_ = trace_.Function("backward", "backward", {});
  const uint32_t step_ = trace_.Function("SGD.step", "optimizer_step", {});
  const uint32_t zero_grad_ = trace_.Function("zero_grad", "zero_grad", {});
};

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_FACTS_NAMED_FACTS_FOR_TESTING_H_
