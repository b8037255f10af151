// A relation, or a form of one, whose rules compare what the ranks of a group
// show, window by window (rank_comparison.h): what it needs is the
// specification of a rule (spec_relation.h), which has besides
//   RankComparison::Words Words() const;
// and the part of one process, a ProcessObserver made of a RankRules<Spec>*. It
// hands the values of its process to the comparison; that the process has
// ended, and that a rank will not come, the frame says.
//
// What is to be judged otherwise than by "all are equal" brings a Comparison of
// its own: JoinedRanks (joined_ranks.h) made of a RuleSink*, with Fields.
//
// Threads: as relation.h.
#ifndef TRAINCHECK_INVARIANTS_RULES_RANK_RELATION_H_
#define TRAINCHECK_INVARIANTS_RULES_RANK_RELATION_H_

#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "invariants/rules/rank_comparison.h"
#include "invariants/rules/spec_relation.h"

namespace traincheck {

// What the parts of an evaluator have in common.
template <typename Spec, typename Comparison = RankComparison>
struct RankRules {
  RankRules(std::vector<SpecRule<Spec>> all, RuleSink* sink)
      : rules(std::move(all)), comparison(sink) {
    for (const SpecRule<Spec>& rule : rules) {
      indices.push_back(rule.index);
      if constexpr (std::is_same_v<Comparison, RankComparison>) {
        comparison.SetWords(rule.index, rule.spec.Words());
      }
    }
  }

  const std::vector<SpecRule<Spec>> rules;
  std::vector<size_t> indices;  // of the rules
  Comparison comparison;
};

template <typename Spec, typename Part, typename Comparison>
class AcrossRanks : public RunObserver {
 public:
  AcrossRanks(std::vector<SpecRule<Spec>> rules, RuleSink* sink)
      : judged_(std::move(rules), sink) {}

  std::unique_ptr<ProcessObserver> AddProcess(
      const ProcessFacts& facts) override {
    return std::make_unique<EndingPart>(&judged_);
  }
  void GiveUpRank(uint32_t attempt, int32_t rank,
                  const std::string& reason) override {
    judged_.comparison.GiveUpRank(attempt, rank, reason);
  }
  void EndRun() override { judged_.comparison.EndRun(); }
  void Fields(Archive& archive) override { archive(judged_.comparison); }

 private:
  class EndingPart : public Part {
   public:
    explicit EndingPart(RankRules<Spec, Comparison>* judged)
        : Part(judged), judged_(judged) {}
    void OnEnd(const ProcessFacts& facts, ProcessEnd end) override {
      Part::OnEnd(facts, end);
      judged_->comparison.EndProcess(facts, end);
    }

   private:
    RankRules<Spec, Comparison>* const judged_;
  };

  RankRules<Spec, Comparison> judged_;
};

template <typename Spec, typename Part, typename Comparison = RankComparison>
using RankRelation = SpecRelation<Spec, AcrossRanks<Spec, Part, Comparison>>;

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_RULES_RANK_RELATION_H_
