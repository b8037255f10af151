#include "invariants/relations/saved_equals_live/saved_models.h"

#include <gtest/gtest.h>

#include <set>

#include "invariants/testing/trace_builder.h"
#include "proto/record_reader.h"

namespace traincheck {
namespace {

constexpr char kFloat[] = "torch.float32";

// Two models of two layers, of which one is a part of the other's name, and a
// buffer.
class SavedModelsTest : public testing::Test {
 protected:
  SavedModelsTest() {
    net_ = trace_.Object("Net", {});
    other_ = trace_.Object("Other", {});
    weight_ = trace_.Variable(net_, "Net", "fc.weight", {});
    bias_ = trace_.Variable(net_, "Net", "fc.bias", {});
    mean_ =
        trace_.Variable(net_, "Net", "mean", {VariableKind::kBuffer, false});
    other_weight_ = trace_.Variable(other_, "Other", "fc.weight", {});
    for (const StoredBatch& batch : trace_.TakeBatches()) {
      RecordReader records(batch.plain);
      while (records.Next()) {
        if (IsDefinition(records.header().type)) definitions_.Apply(records);
      }
    }
  }

  std::vector<SavedModel> Find(const std::vector<SavedEntry>& entries,
                               const Digests& live) const {
    return FindSavedModels(entries, definitions_, live);
  }

  TraceBuilder trace_;
  ProcessDefinitions definitions_;
  uint32_t net_, other_, weight_, bias_, mean_, other_weight_;
};

SavedEntry Tensor(const std::string& key, uint64_t digest,
                  const std::string& dtype = kFloat) {
  return {key, dtype, {}, digest, 0};
}

TEST_F(SavedModelsTest, KeysEndWithNames) {
  const auto models = Find({Tensor("a.b.fc.weight", 1),
                            Tensor("a.b.fc.bias", 2),
                            Tensor("a.b.lr", 3),
                            Tensor("xfc.bias", 4),
                            {"fc.bias", "", {}, std::nullopt, 0}},
                           {{weight_, 1}, {bias_, 2}, {other_weight_, 9}});
  // Of both roots, because both have such a name.
  ASSERT_EQ(models.size(), 2u);
  EXPECT_EQ(models[0].root, net_);
  EXPECT_EQ(models[0].prefix, "a.b.");
  EXPECT_EQ(models[0].variables.size(), 2u);
  EXPECT_EQ(models[1].root, other_);
  EXPECT_EQ(models[1].variables.size(), 1u);
}

TEST_F(SavedModelsTest, EachPrefixIsAModelOfItsOwn) {
  const auto models =
      Find({Tensor("fc.bias", 2), Tensor("ema.fc.bias", 7)}, {{bias_, 2}});
  ASSERT_EQ(models.size(), 2u);
  EXPECT_EQ(models[0].prefix, "");
  EXPECT_EQ(models[0].variables[0].as, SavedAs::kEqual);
  EXPECT_EQ(models[1].prefix, "ema.");
  EXPECT_EQ(models[1].variables[0].as, SavedAs::kDiffers);
}

TEST_F(SavedModelsTest, WhatCannotBeComparedSaysWhy) {
  const auto as = [&](const SavedEntry& entry, const Digests& live) {
    return Find({entry}, live).at(0).variables.at(0).as;
  };
  EXPECT_EQ(as(Tensor("mean", 1, "torch.float16"), {{mean_, 1}}),
            SavedAs::kConverted);
  SavedEntry half = Tensor("mean", 1);
  half.shape = {2};
  EXPECT_EQ(as(half, {{mean_, 1}}), SavedAs::kConverted);
  EXPECT_EQ(as(Tensor("mean", 1), {}), SavedAs::kUnread);
  EXPECT_EQ(as({"mean", kFloat, {}, std::nullopt, 0}, {{mean_, 1}}),
            SavedAs::kUnread);
}

TEST_F(SavedModelsTest, AnotherStateOfTheModelIsNotTheLiveOne) {
  const Digests live = {{weight_, 1}, {bias_, 2}, {mean_, 3}};
  const auto is_live = [&](uint64_t weight, uint64_t bias, uint64_t mean,
                           const Digests& before,
                           const std::set<uint32_t>& stepped = {}) {
    const auto models = Find({Tensor("fc.weight", weight),
                              Tensor("fc.bias", bias), Tensor("mean", mean)},
                             live);
    return IsLiveState(models.at(0), definitions_, live, before,
                       [&](uint32_t v) { return stepped.count(v) > 0; });
  };
  EXPECT_TRUE(is_live(1, 2, 3, {}));
  EXPECT_TRUE(is_live(1, 9, 9, {}));   // one of two is damaged
  EXPECT_FALSE(is_live(8, 9, 3, {}));  // buffers say nothing
  // The bias has not moved since the last save: that it is equal says nothing.
  EXPECT_FALSE(is_live(8, 2, 3, {{weight_, 8}, {bias_, 2}}));
  EXPECT_TRUE(is_live(1, 8, 3, {{weight_, 8}, {bias_, 2}}));
  // The last step left the bias alone: it is equal in an average, too.
  EXPECT_FALSE(is_live(8, 2, 3, {}, {weight_}));
  EXPECT_TRUE(is_live(1, 8, 3, {}, {weight_}));
}

TEST_F(SavedModelsTest, ACopyIsNotTheModelItself) {
  const Digests live = {{weight_, 1}, {bias_, 2}, {mean_, 3}};
  const auto is_anothers = [&](const std::vector<SavedEntry>& entries,
                               const std::string& prefix) {
    const auto models = Find(entries, live);
    for (const SavedModel& model : models) {
      if (model.root == net_ && model.prefix == prefix) {
        return IsAnothers(model, models);
      }
    }
    ADD_FAILURE() << "nothing under " << prefix;
    return false;
  };
  const std::vector<SavedEntry> copy = {Tensor("ema.fc.weight", 1),
                                        Tensor("ema.fc.bias", 2),
                                        Tensor("ema.mean", 9)};
  EXPECT_FALSE(is_anothers(copy, "ema."));
  std::vector<SavedEntry> both = copy;
  both.push_back(Tensor("fc.weight", 1));
  both.push_back(Tensor("fc.bias", 2));
  EXPECT_FALSE(is_anothers(both, "ema."));  // of less than the copy
  both.push_back(Tensor("mean", 3));
  EXPECT_TRUE(is_anothers(both, "ema."));
  EXPECT_FALSE(is_anothers(both, ""));
}

TEST_F(SavedModelsTest, Changed) {
  const Digests live = {{weight_, 1}, {bias_, 2}, {mean_, 3}};
  const SavedModel model = Find({Tensor("fc.weight", 1)}, live).at(0);
  EXPECT_EQ(ChangedParameters(model, definitions_, live, {}), 0u);
  EXPECT_EQ(ChangedParameters(model, definitions_, live, {{weight_, 1}}), 0u);
  EXPECT_EQ(ChangedParameters(model, definitions_, live, {{weight_, 5}}), 1u);
}

}  // namespace
}  // namespace traincheck
