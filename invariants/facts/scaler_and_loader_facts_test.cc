// Facts of gradient scaling and of passes over loaders, on records.
#include <gtest/gtest.h>

#include <limits>

#include "invariants/facts/loader_passes.h"
#include "invariants/facts/named_facts_for_testing.h"

namespace traincheck {
namespace {

class GradScaledTest : public NamedFactsTest {
 protected:
  GradScaledTest() {
    trace_.Hold(optimizer_, 0, {w_});
    facts_.AddObserver(&scaled_);
  }
  // As GradScaler.scale does; a disabled one gives back what it got.
  void Scale(bool enabled) {
    trace_.Begin(scale_, {.storages = {{"outputs", 5}}});
    trace_.ReturnStorage(enabled ? 6 : 5);
  }
  void Unscale() { CallOf(unscale_, {.objects = {{"optimizer", optimizer_}}}); }
  void Step() { CallOf(step_, {.object = optimizer_}); }
  void Clear() { CallOf(zero_grad_, {.object = optimizer_}); }

  const std::string scaler_ = "torch.amp.grad_scaler.GradScaler.";
  const uint32_t scale_ = trace_.Function(scaler_ + "scale", "scaler", {});
  const uint32_t unscale_ = trace_.Function(scaler_ + "unscale_", "scaler", {});
  const uint32_t scaler_step_ = trace_.Function(scaler_ + "step", "scaler", {});
  Reading scaled_{"grad.scaled", step_};
};

TEST_F(GradScaledTest, FromTheBackwardToUnscaleOrClear) {
  Step();
  EXPECT_EQ(Read(&scaled_), Values{});  // no scaler is used
  Scale(true);
  CallOf(backward_);
  Step();
  Unscale();
  Step();
  Scale(true);
  CallOf(backward_);
  Clear();
  Step();
  EXPECT_EQ(Read(&scaled_), (Values{kYes, kNo, kNo}));
}

TEST_F(GradScaledTest, TheScalersOwnStepSeesToIt) {
  Scale(true);
  CallOf(backward_);
  trace_.Begin(scaler_step_, {});
  Step();
  trace_.End();
  EXPECT_EQ(Read(&scaled_), Values{kNo});
}

TEST_F(GradScaledTest, ADisabledScalerScalesNothing) {
  Scale(true);
  CallOf(backward_);
  Clear();
  Scale(false);
  CallOf(backward_);
  Step();
  EXPECT_EQ(Read(&scaled_), Values{kNo});
}

TEST_F(GradScaledTest, UnknownWhereTheScalerWasNotSeen) {
  Scale(true);
  CallOf(backward_);
  Unscale();
  trace_.Lose();
  Step();
  EXPECT_EQ(Read(&scaled_), Values{kUnknown});
  Clear();
  Step();
  EXPECT_EQ(Read(&scaled_), Values{kNo});
  // In a step that was not sampled the scaler's calls are not recorded.
  trace_.Mark(MarkKind::kCaptureMode, 0,
              static_cast<uint64_t>(CaptureMode::kSkeleton));
  CallOf(backward_);
  Step();
  EXPECT_EQ(Read(&scaled_), Values{kUnknown});
}

TEST_F(GradScaledTest, UnknownInAStepWhereTheScalersOwnStepIsNotRecorded) {
  Scale(true);
  CallOf(backward_);
  trace_.Begin(scaler_step_, {});
  Step();
  trace_.End();
  // Gradients are accumulated: nothing clears them in between.
  trace_.Mark(MarkKind::kCaptureMode, 0,
              static_cast<uint64_t>(CaptureMode::kSkeleton));
  Step();
  CallOf(backward_);
  Step();
  trace_.Mark(MarkKind::kCaptureMode, 0,
              static_cast<uint64_t>(CaptureMode::kAll));
  Step();
  EXPECT_EQ(Read(&scaled_), (Values{kNo, kUnknown, kUnknown, kUnknown}));
}

TEST_F(GradScaledTest, UnknownWhereAnotherLossWasNotScaled) {
  Clear();
  Scale(true);
  CallOf(backward_);  // of another model
  CallOf(backward_);  // of its own
  Step();
  EXPECT_EQ(Read(&scaled_), Values{kUnknown});
}

TEST_F(GradScaledTest, UnknownWhereTheOptimizerCameLater) {
  Scale(true);
  CallOf(backward_);
  const uint32_t later = trace_.Object("SGD", {.kind = ObjectKind::kOptimizer});
  trace_.Hold(later, 0, {w_});
  CallOf(trace_.Function("SGD.__init__", "optimizer_init", {}),
         {.object = later});
  CallOf(step_, {.object = later});
  Scale(true);
  CallOf(backward_);
  CallOf(step_, {.object = later});
  EXPECT_EQ(Read(&scaled_), (Values{kUnknown, kYes}));
}

TEST_F(GradScaledTest, TheScaleAfterAnUpdate) {
  Reading scale("backward.scale", step_);
  facts_.AddObserver(&scale);
  Step();
  trace_.Scale(net_, 1024);
  Step();
  EXPECT_EQ(Read(&scale), (Values{kUnknown, FactValue(1024.0)}));
}

class LoaderFactsTest : public NamedFactsTest {
 protected:
  LoaderFactsTest() {
    for (Reading* reading : {&consumed_, &shuffles_, &trains_}) {
      facts_.AddObserver(reading);
    }
  }
  void Begin(uint64_t ordinal) {
    trace_.Begin(iter_, {});
    trace_.Mark(MarkKind::kIteratorCreated, loader_, ordinal);
    trace_.End();
  }
  // Batches whose indices have digests from `first` on; as many indices are in
  // one.
  void Fetch(uint64_t batches, uint64_t first, double indices = 5) {
    for (uint64_t i = 0; i < batches; ++i) {
      trace_.Begin(next_, {});
      trace_.State(StatePoint::kFetch, indices_, {.data = first + i});
      if (i == 0) {
        trace_.Scalar(StatePoint::kFetch, loader_, 0, "indices", indices);
      }
      trace_.Mark(MarkKind::kBatchFetched, loader_, i);
      trace_.End();
      CallOf(backward_);
    }
  }
  void Exhaust(uint64_t ordinal) {
    trace_.Mark(MarkKind::kIteratorExhausted, loader_, ordinal);
  }

  const uint32_t loader_ =
      trace_.Object("DataLoader", {.kind = ObjectKind::kLoader});
  const uint32_t indices_ = trace_.Variable(
      loader_, "DataLoader", "indices", {.kind = VariableKind::kLoaderState});
  const uint32_t iter_ = trace_.Function("iter", "loader_iter", {});
  const uint32_t next_ = trace_.Function("next", "loader_next", {});
  Reading consumed_{"loader.consumed", iter_};
  Reading shuffles_{"sampler.shuffles", next_};
  Reading trains_{"loader.trains", iter_};
};

TEST_F(LoaderFactsTest, PassesAreCompared) {
  Begin(0);
  Fetch(6, 10);
  Exhaust(0);
  Begin(1);
  Fetch(6, 20);
  Begin(2);
  Fetch(6, 20);
  EXPECT_EQ(Read(&consumed_), (Values{kYes, kNo}));
  EXPECT_EQ(shuffles_.Take(), (Values{kYes, kNo}));
  EXPECT_EQ(trains_.Take(), (Values{kNo, kYes, kYes}));
  EXPECT_NE(facts_.loader_passes().PrefixDigest(loader_), std::nullopt);
}

TEST_F(LoaderFactsTest, OneOrderIsMeantWhereNothingIsDrawnOrTrained) {
  const auto passes = [&](double random) {
    for (uint64_t pass = 0; pass < 2; ++pass) {
      trace_.Scalar(StatePoint::kFetch, loader_, 0, "shuffles", random);
      Begin(pass);
      Fetch(4, 20);
    }
    return Read(&shuffles_);
  };
  EXPECT_EQ(passes(0), Values{});
  EXPECT_EQ(passes(1), (Values{kNo, kNo}));
}

TEST_F(LoaderFactsTest, OneBatchOfManyIsEnough) {
  for (uint64_t pass = 0; pass < 2; ++pass) {
    Begin(pass);
    for (uint64_t i = 0; i < 3; ++i) {
      trace_.Begin(next_, {});
      trace_.State(StatePoint::kFetch, indices_, {.data = 20 + i});
      if (i == 0) trace_.Scalar(StatePoint::kFetch, loader_, 0, "indices", 16);
      trace_.Mark(MarkKind::kBatchFetched, loader_, i);
      trace_.End();
      CallOf(backward_);
    }
    Exhaust(pass);
  }
  EXPECT_EQ(Read(&shuffles_), Values{kNo});
}

// Four images, one in a batch, are in one epoch of 24 in the order of the one
// before, and nine, eight in a batch, in one of 362,880.
TEST_F(LoaderFactsTest, AFewSamplesMayBeInOneOrderByChance) {
  const auto passes = [&](uint64_t batches) {
    for (uint64_t pass = 0; pass < 3; ++pass) {
      Begin(pass);
      Fetch(batches, 20, 1);
      Exhaust(pass);
    }
    return Read(&shuffles_);
  };
  EXPECT_EQ(passes(4), Values{});
  EXPECT_EQ(passes(15), Values{});
  // The first of these has nothing to be compared with.
  EXPECT_EQ(passes(16), (Values{kUnknown, kNo, kNo}));
}

TEST_F(LoaderFactsTest, TheLastBatchOfAPassMayBeShort) {
  for (uint64_t pass = 0; pass < 3; ++pass) {
    Begin(pass);
    Fetch(2, 20, 8);
    Exhaust(pass);
  }
  EXPECT_EQ(Read(&shuffles_), Values{});
}

// As next(iter(loader)) before the epoch is set: what it looks at is in the
// order of the pass before, and not trained with.
TEST_F(LoaderFactsTest, ALookAtABatchIsNotAnEpoch) {
  const auto look = [&](uint64_t ordinal, uint64_t first) {
    Begin(ordinal);
    trace_.Begin(next_, {});
    trace_.State(StatePoint::kFetch, indices_, {.data = first});
    trace_.Scalar(StatePoint::kFetch, loader_, 0, "indices", 16);
    trace_.Mark(MarkKind::kBatchFetched, loader_, 0);
    trace_.End();
  };
  look(0, 10);
  for (uint64_t epoch = 1; epoch < 4; ++epoch) {
    Begin(2 * epoch - 1);
    Fetch(3, 10 * epoch);
    Exhaust(2 * epoch - 1);
    look(2 * epoch, 10 * epoch);
  }
  Begin(7);
  Fetch(3, 30);  // as the look
  EXPECT_EQ(Read(&shuffles_), (Values{kYes, kYes, kNo}));
}

// A search for a learning rate sets everything back, and the training begins.
TEST_F(LoaderFactsTest, TheOrderOfATrialMayComeAgain) {
  for (uint64_t pass = 0; pass < 3; ++pass) {
    Begin(pass);
    Fetch(6, 20);
  }
  EXPECT_EQ(Read(&shuffles_), Values{kNo});
}

TEST_F(LoaderFactsTest, NumbersOfIndicesThatAreNone) {
  using Limits = std::numeric_limits<double>;
  for (const double count : {Limits::infinity(), -Limits::infinity(), 0x1p64,
                             Limits::quiet_NaN(), 0.5, -1.0}) {
    const uint32_t loader =
        trace_.Object("DataLoader", {.kind = ObjectKind::kLoader});
    const uint32_t indices = trace_.Variable(
        loader, "DataLoader", "indices", {.kind = VariableKind::kLoaderState});
    trace_.State(StatePoint::kFetch, indices, {.data = 20});
    trace_.Scalar(StatePoint::kFetch, loader, 0, "indices", count);
    Read(&shuffles_);
    EXPECT_EQ(facts_.loader_passes().Prefix(loader), LoaderPasses::kIndices)
        << count;
  }
}

TEST_F(LoaderFactsTest, ABatchOfTheWholeDatasetIsEnough) {
  trace_.State(StatePoint::kFetch, indices_, {.data = 20});
  trace_.Scalar(StatePoint::kFetch, loader_, 0, "indices", 0x1p62);
  Read(&shuffles_);
  EXPECT_EQ(facts_.loader_passes().Prefix(loader_), 1u);
}

TEST_F(LoaderFactsTest, WorkersDrawAheadWhileTheIteratorIsMade) {
  for (uint64_t pass = 0; pass < 2; ++pass) {
    trace_.Begin(iter_, {});
    for (uint64_t i = 0; i < 4; ++i) {
      trace_.State(StatePoint::kFetch, indices_, {.data = 30 + i});
      if (i == 0) trace_.Scalar(StatePoint::kFetch, loader_, 0, "indices", 5);
    }
    trace_.Mark(MarkKind::kIteratorCreated, loader_, pass);
    trace_.End();
    Fetch(6, 34);
    Exhaust(pass);
  }
  EXPECT_EQ(Read(&shuffles_), Values{kNo});
}

TEST_F(LoaderFactsTest, UnknownAfterMissingRecordsAndInShortPasses) {
  Begin(0);
  Fetch(3, 10);
  Exhaust(0);
  Begin(1);
  Fetch(4, 10);
  EXPECT_EQ(Read(&shuffles_), Values{kUnknown});
  trace_.Lose();
  Begin(2);
  Fetch(4, 10);
  EXPECT_EQ(Read(&consumed_), (Values{kYes, kUnknown}));
  EXPECT_EQ(shuffles_.Take(), Values{kUnknown});
  // Two passes that begin after it are known again.
  Exhaust(2);
  Begin(3);
  Fetch(4, 50);
  Begin(4);
  Fetch(4, 60);
  EXPECT_EQ(Read(&consumed_), (Values{kYes, kNo}));
  EXPECT_EQ(shuffles_.Take(), (Values{kUnknown, kYes}));
}

}  // namespace
}  // namespace traincheck
