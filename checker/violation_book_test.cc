// What a book says while verdicts come in is what it would say of all of them.
#include "checker/violation_book.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "invariants/sets/invariant_for_testing.h"

namespace traincheck {
namespace {

constexpr const char* kFacts[] = {"schedule.outruns", "opt.rates_ended",
                                  "opt.gradients_are_old", "call.shapes_match",
                                  "sampler.shuffles"};

std::vector<Invariant> Rules() {
  std::vector<Invariant> rules;
  for (int i = 0; i < 15; ++i) {
    rules.push_back(NewInvariant(
        "APIArg", {{"is", "fact"},
                   {"function", {{"name", "f" + std::to_string(i)}}},
                   {"fact", kFacts[i % std::size(kFacts)]},
                   {"value", true}}));
  }
  return rules;
}

ViolationBook NewBook() {
  return ViolationBook("run", [](uint32_t) { return std::string(); });
}

Verdict Violated(int64_t step, std::vector<int32_t> ranks) {
  Verdict verdict;
  verdict.outcome = Outcome::kViolated;
  verdict.step = step;
  verdict.unit = ranks.size() == 1 ? ranks[0] : 100;
  verdict.across_ranks = ranks.size() > 1;
  verdict.ranks = std::move(ranks);
  verdict.label = "step " + std::to_string(step);
  return verdict;
}

std::string Words(const Violation& violation) {
  std::string words = violation.id + " " + violation.headline + " in " +
                      violation.grouped.incident + " by " +
                      violation.grouped.cause +
                      (violation.grouped.alerts ? ", alert" : "");
  for (const int32_t rank : violation.ranks) words += std::to_string(rank);
  for (const std::string& line : violation.evidence) words += "\n" + line;
  return words;
}

using Known = std::map<std::string, std::string>;  // words by id

void Take(ViolationBook* book, Known* known) {
  for (const Violation& one : book->TakeChanges())
    (*known)[one.id] = Words(one);
}

Known All(const ViolationBook& book) {
  Known all;
  for (const Violation& one : book.All()) all[one.id] = Words(one);
  return all;
}

class Training {
 public:
  explicit Training(uint32_t seed) : random_(seed) {}

  // One more thing that happens to a run of four ranks.
  void Go(const std::vector<Invariant>& rules, ViolationBook* book) {
    step_ += Below(2);
    const Invariant& rule = rules[Below(static_cast<int>(rules.size()))];
    Verdict verdict = Violated(step_, {Below(4)});
    if (Below(4) == 0) verdict = Violated(step_, {0, 1, 2, 3});
    if (Below(5) == 0) verdict.outcome = Outcome::kPass;
    verdict.attempt = step_ / 40;
    if (!verdict.across_ranks && Below(3) == 0) {
      verdict.process = verdict.ranks[0];
      verdict.ranks.clear();  // it is not known yet
      verdict.unit += 200;
    }
    if (Below(2) == 0) verdict.finding.subjects = {"optimizer 0"};
    for (int i = Below(3); i > 0; --i) {
      verdict.finding.variables.push_back("w" + std::to_string(Below(6)));
    }
    verdict.finding.seen = "seen in step " + std::to_string(step_);
    book->Add(rule, verdict);
    if (Below(20) == 0) book->Place(Below(4), Below(4));
    if (Below(40) == 0) {
      const int rank = Below(4);
      book->EndProcess(rank, verdict.attempt, rank, step_);
    }
  }

 private:
  int Below(int limit) {
    return static_cast<int>(random_() % static_cast<unsigned>(limit));
  }

  std::mt19937 random_;
  int step_ = 1;
};

TEST(ViolationBook, WhatWasTakenIsWhatThereIs) {
  const std::vector<Invariant> rules = Rules();
  for (uint32_t seed = 0; seed < 20; ++seed) {
    ViolationBook often = NewBook(), once = NewBook();
    Known taken, at_the_end;
    Training first(seed), second(seed);
    for (int i = 0; i < 300; ++i) {
      first.Go(rules, &often);
      second.Go(rules, &once);
      if (i % 7 == 0) Take(&often, &taken);
    }
    for (ViolationBook* book : {&often, &once}) book->EndRun();
    Take(&often, &taken);
    Take(&once, &at_the_end);
    EXPECT_EQ(taken, at_the_end) << seed;
    EXPECT_EQ(taken, All(often)) << seed;
    EXPECT_GT(taken.size(), 50u);
  }
}

// What ranks broke in the step in which they began to disagree.
TEST(ViolationBook, CompanionsAreThoseOfTheStepAndTheRanks) {
  const std::vector<Invariant> rules = Rules();
  ViolationBook book = NewBook();
  const auto add = [&](size_t rule, const std::string& seen, Verdict verdict) {
    verdict.finding.seen = seen;
    book.Add(rules[rule], verdict);
  };
  add(0, "lasts", Violated(3, {0}));
  add(0, "lasts", Violated(7, {0}));
  add(1, "is over", Violated(3, {1}));
  add(2, "comes later", Violated(6, {1}));
  add(3, "is elsewhere", Violated(5, {2}));
  add(4, "is there", Violated(5, {1}));
  Verdict other = Violated(5, {0});
  other.attempt = 1;
  add(5, "is of another attempt", other);
  add(6, "disagree", Violated(5, {0, 1}));
  for (const Violation& violation : book.All()) {
    if (violation.seen != "disagree") continue;
    EXPECT_THAT(violation.evidence,
                testing::UnorderedElementsAre(
                    testing::StartsWith("lasts on rank 0"),
                    testing::StartsWith("is there on rank 1")));
  }
}

}  // namespace
}  // namespace traincheck
