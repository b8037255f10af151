#include "checker/zoom/closer_look.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checker/zoom/zoom_reader.h"
#include "invariants/testing/trace_builder.h"

namespace traincheck {
namespace {

using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

constexpr uint64_t kVersion = 3;
constexpr uint64_t kFirst = 2;  // step of the zoom
constexpr uint64_t kSteps = 3;

struct RankOptions {
  int32_t rank = 0;
  bool updates = true;       // the step changes the weight
  bool no_grad = false;      // the gradient is None
  uint64_t nan = 0;          // elements of the gradient
  bool drifts = false;       // one row of the weight is another
  bool loses = false;        // records of the zoom
  bool relu_raises = false;  // in the zoom
  bool gives_way = true;     // the zoom ends while the process runs
};

// One process of a training whose plan zooms in for some steps.
class Rank {
 public:
  explicit Rank(const RankOptions& options) : options_(options) {
    model_ = trace_.Object("pkg.Net", {});
    sgd_ =
        trace_.Object("torch.optim.sgd.SGD", {.kind = ObjectKind::kOptimizer});
    weight_ = trace_.Variable(model_, "Net", "fc.weight", {.shape = {3, 2}});
    bias_ = trace_.Variable(model_, "Net", "fc.bias", {.shape = {3}});
    forward_ = trace_.Function("pkg.Net.forward", "forward", {});
    relu_ = trace_.Function("torch.nn.functional.relu", "operation", {});
    backward_ = trace_.Function("torch.Tensor.backward", "backward", {});
    clear_ = trace_.Function("torch.optim.sgd.SGD.zero_grad", "zero_grad", {});
    step_ = trace_.Function("torch.optim.sgd.SGD.step", "optimizer_step", {});
    trace_.Place(options.rank, 2);
    trace_.Hold(sgd_, 0, {weight_, bias_});
  }

  ZoomedProcess Read(const ZoomSubject& subject) {
    for (now_ = 0; now_ < kFirst + kSteps + 2; ++now_) Step();
    trace_.Mark(MarkKind::kCleanExit, 0, 0);
    ZoomReader reader(&subject, kVersion);
    for (const StoredBatch& batch : trace_.TakeBatches()) {
      reader.Consume(batch);
    }
    return reader.found();
  }

 private:
  bool IsZoomed() const { return now_ >= kFirst && now_ < kFirst + kSteps; }

  void Weight(StatePoint point, uint64_t digest) {
    trace_.State(point, weight_, {.data = digest});
    if (!IsZoomed()) return;
    trace_.Statistics(point, weight_, kHasData, 0);
    trace_.Rows(point, weight_, kHasData,
                {digest, options_.drifts ? 8u : 7u, digest + 1});
  }

  void Gradient() {
    if (options_.no_grad) {
      trace_.State(StatePoint::kPreStep, weight_, {.no_grad = true});
      return;
    }
    trace_.State(StatePoint::kPreStep, weight_, {.grad = 40 + now_});
    if (IsZoomed()) {
      trace_.Statistics(StatePoint::kPreStep, weight_, kHasGrad, options_.nan);
    }
  }

  void Relu() {
    if (!IsZoomed()) return;
    trace_.Begin(relu_, {.site = "net.py:8",
                         .arguments = {{"slope", 0.1}},
                         .truths = {{"inplace", false}}});
    if (options_.relu_raises) {
      trace_.Raise();
    } else {
      trace_.Return("torch.float32", 2);
    }
  }

  void Step() {
    trace_.Begin(clear_, {.object = sgd_, .site = "train.py:3"});
    if (now_ > 0) trace_.Mark(MarkKind::kStepClosed, 0, now_ - 1);
    trace_.End();
    const bool ends = now_ == kFirst + kSteps && options_.gives_way;
    if (now_ == kFirst || ends) {
      trace_.Mark(MarkKind::kPlanApplied, 0, kVersion);
    }
    if (now_ == kFirst + 1 && options_.loses) trace_.Lose();
    const uint64_t other = options_.drifts ? 1 : 0;
    const uint64_t before = options_.updates ? 100 + 10 * now_ : 100;
    const uint64_t after = options_.updates ? before + 10 : before;
    trace_.Begin(forward_, {.object = model_,
                            .site = "train.py:4",
                            .flags = kOutermost | kGradEnabled |
                                     kRootModuleCall | kModuleTraining});
    Relu();
    trace_.End(kOutputSearched | kOutputHasGradFn);
    trace_.Begin(backward_, {.site = "train.py:5"});
    trace_.End();
    trace_.Begin(step_, {.object = sgd_, .site = "train.py:6"});
    Weight(StatePoint::kPreStep, before + other);
    Gradient();
    trace_.End();
    Weight(StatePoint::kPostStep, after + other);
    trace_.State(StatePoint::kPostStep, bias_, {.data = now_});
  }

  const RankOptions options_;
  TraceBuilder trace_;
  uint64_t now_ = 0;
  uint32_t model_, sgd_, weight_, bias_;
  uint32_t forward_, relu_, backward_, clear_, step_;
};

const ZoomSubject& Subject() {
  static const auto* const kSubject =
      new ZoomSubject{.functions = {"torch.nn.functional.relu"},
                      .variables = {"Net.fc.weight"}};
  return *kSubject;
}

std::vector<Observation> Look(const std::vector<RankOptions>& ranks) {
  std::map<int32_t, ZoomedProcess> found;
  for (const RankOptions& options : ranks) {
    found[options.rank] = Rank(options).Read(Subject());
  }
  return LookCloser(found);
}

// What was seen of the thing that is named so; "": it was not.
std::string Seen(const std::vector<Observation>& all, const std::string& what) {
  for (const Observation& one : all) {
    if (one.what == what) return one.seen;
  }
  return "";
}

constexpr char kRelu[] = "torch.nn.functional.relu at net.py:8";
constexpr char kBefore[] = "Net.fc.weight before the optimizer's step";
constexpr char kAfter[] = "Net.fc.weight after the optimizer's step";
constexpr char kGradient[] =
    "the gradient of Net.fc.weight before the optimizer's step";

TEST(ZoomReader, TakesTheStepsBetweenTheTwoMarks) {
  const ZoomedProcess found = Rank({}).Read(Subject());
  EXPECT_TRUE(found.began);
  EXPECT_TRUE(found.over);
  EXPECT_EQ(found.missing, "");
  EXPECT_THAT(found.steps, ElementsAre(2, 3, 4));
  for (const auto& [place, values] : found.values) {
    EXPECT_EQ(place.variable, "Net.fc.weight");
    EXPECT_EQ(values.begin()->first, kFirst) << place.variable;
    EXPECT_EQ(values.size(), kSteps);
  }
}

TEST(ZoomReader, AZoomThatGoesOnIsNotOver) {
  const ZoomedProcess found = Rank({.gives_way = false}).Read(Subject());
  EXPECT_TRUE(found.began);
  EXPECT_FALSE(found.over);
}

TEST(ZoomReader, WhatIsMissingIsSaid) {
  EXPECT_NE(Rank({.loses = true}).Read(Subject()).missing, "");
}

TEST(CloserLook, OfAHealthyTraining) {
  const std::vector<Observation> all = Look({{.rank = 0}, {.rank = 1}});
  ASSERT_EQ(all.size(), 4u);
  EXPECT_EQ(all[0].what, kRelu);
  EXPECT_EQ(all[0].seen,
            "6 calls: slope=0.1, inplace=False -> float32 [2] on cpu");
  EXPECT_THAT(all[0].ranks, ElementsAre(0, 1));
  EXPECT_EQ(all[0].first_step, 2u);
  EXPECT_EQ(all[0].last_step, 4u);
  EXPECT_EQ(Seen(all, kBefore),
            "norm 0, largest magnitude 0, all finite; equal on ranks 0, "
            "1");
  EXPECT_EQ(Seen(all, kAfter),
            "norm 0, largest magnitude 0, all finite; equal on ranks 0, "
            "1; the optimizer's step changed it in 6 of 6 records, first in 2 "
            "of 3 rows: 0, 2");
  EXPECT_EQ(Seen(all, kGradient),
            "norm 0, largest magnitude 0, all finite; equal on "
            "ranks 0, 1");
}

TEST(CloserLook, CallsOfMoreKindsThanAreShown) {
  ZoomedProcess process;
  for (int kind = 0; kind < 6; ++kind) {
    process.calls["f"]["p=" + std::to_string(kind)].count = 1;
  }
  EXPECT_THAT(LookCloser({{0, process}}).back().seen,
              EndsWith("; 2 further kinds of call"));
  process.more_calls["f"] = 36;
  EXPECT_THAT(LookCloser({{0, process}}).back().seen,
              EndsWith("; 2 further kinds of call, and 36 other calls"));
}

TEST(CloserLook, SizesOverAllStepsAndRanks) {
  std::map<int32_t, ZoomedProcess> ranks;
  const ZoomedPlace place = {"Net.fc.weight", false, StatePoint::kPreStep};
  for (const int rank : {0, 1}) {
    for (const uint64_t step : {5u, 6u}) {
      ZoomedValue& value = ranks[rank].values[place][step];
      value.kind = ZoomedValue::Kind::kOther;
      value.statistics = {.norm = 0.25 * static_cast<double>(step + rank),
                          .absmax = 0.1 * static_cast<double>(step)};
    }
  }
  EXPECT_THAT(
      Seen(LookCloser(ranks), kBefore),
      HasSubstr("norm 1.25 to 1.75, largest magnitude 0.6, all finite"));
}

TEST(CloserLook, ARankThatDiffersIsNamedWithItsRows) {
  const std::vector<Observation> all =
      Look({{.rank = 0}, {.rank = 1, .drifts = true}, {.rank = 2}});
  EXPECT_THAT(Seen(all, kBefore),
              HasSubstr("rank 1 differs from ranks 0, 2 since step 2 in 3 of 3 "
                        "rows"));
}

TEST(CloserLook, TwoRanksHaveNoMajority) {
  const std::vector<Observation> all =
      Look({{.rank = 0}, {.rank = 1, .drifts = true}});
  EXPECT_THAT(Seen(all, kBefore),
              HasSubstr("rank 0 and rank 1 differ since step 2"));
}

TEST(CloserLook, WhatAStepDoesNotChange) {
  EXPECT_THAT(Seen(Look({{.updates = false}}), kAfter),
              HasSubstr("the optimizer's step changed it in 0 of 3 records"));
}

TEST(CloserLook, GradientsThatAreNoneOrNotFinite) {
  EXPECT_EQ(Seen(Look({{.no_grad = true}}), kGradient),
            "there is none in 3 of 3 records");
  EXPECT_THAT(Seen(Look({{.nan = 5}}), kGradient),
              HasSubstr("15 NaN and 0 infinite elements since step 2"));
}

TEST(CloserLook, ACallThatRaises) {
  EXPECT_THAT(Seen(Look({{.relu_raises = true}}), kRelu),
              HasSubstr("inplace=False -> an exception"));
}

TEST(CloserLook, OneRankIsComparedWithNobody) {
  EXPECT_THAT(Seen(Look({{}}), kBefore), Not(HasSubstr("rank")));
}

TEST(CloserLook, OfNothingNothingIsSaid) {
  EXPECT_THAT(LookCloser({}), IsEmpty());
  EXPECT_THAT(LookCloser({{0, ZoomedProcess()}}), IsEmpty());
}

}  // namespace
}  // namespace traincheck
