#include "invariants/relations/saved_equals_live/missing_parameters.h"

#include <gtest/gtest.h>

#include "invariants/testing/trace_builder.h"
#include "proto/record_reader.h"

namespace traincheck {
namespace {

using Variables = std::vector<uint32_t>;

class MissingParametersTest : public testing::Test {
 protected:
  uint32_t Parameter(const std::string& name, VariableOptions options = {}) {
    return trace_.Variable(net_, "Net", name, options);
  }
  uint32_t Buffer(const std::string& name) {
    return Parameter(name, {VariableKind::kBuffer, false});
  }

  const ProcessDefinitions& Definitions() {
    for (const StoredBatch& batch : trace_.TakeBatches()) {
      RecordReader records(batch.plain);
      while (records.Next()) {
        if (IsDefinition(records.header().type)) definitions_.Apply(records);
      }
    }
    return definitions_;
  }

  Variables Missing(const Digests& live, const std::set<uint32_t>& saved) {
    return MissingParameters({net_, saved, live}, Definitions());
  }
  Variables InModules(const Digests& live, const std::set<uint32_t>& saved) {
    const SavedPart part = {net_, saved, live};
    return MissingInModules(part, MissingParameters(part, Definitions()),
                            Definitions());
  }

  TraceBuilder trace_;
  ProcessDefinitions definitions_;
  const uint32_t net_ = trace_.Object("Net", {});
};

TEST_F(MissingParametersTest, LiveOnesThatAreNotSaved) {
  const uint32_t weight = Parameter("fc.weight");
  const uint32_t bias = Parameter("fc.bias");
  const uint32_t mean = Buffer("mean");
  const Digests live = {{weight, 1}, {bias, 2}, {mean, 3}};
  EXPECT_EQ(Missing(live, {weight}), Variables{bias});
  EXPECT_EQ(Missing(live, {weight, bias}), Variables{});
}

TEST_F(MissingParametersTest, AnUnknownVariableOfASavedStateIsNone) {
  const uint32_t weight = Parameter("fc.weight");
  const uint32_t bias = Parameter("fc.bias");
  const Digests live = {{weight, 1}, {bias, 2}};
  EXPECT_EQ(InModules(live, {weight, 999}), Variables{bias});
}

TEST_F(MissingParametersTest, UnderAnotherNameItIsThere) {
  const uint32_t weight = Parameter("layers.0.weight");
  const uint32_t bias = Parameter("layers.0.bias");
  const SavedPart part = {net_, {}, {{weight, 1}, {bias, 2}}, {1, 7}};
  EXPECT_EQ(MissingParameters(part, Definitions()), Variables{bias});
}

TEST_F(MissingParametersTest, ATieIsThereByOneOfItsNames) {
  const uint32_t in = Parameter("in.weight", {.alias_group = 4});
  const uint32_t out = Parameter("out.weight", {.alias_group = 4});
  EXPECT_EQ(Missing({{in, 1}, {out, 1}}, {in}), Variables{});
  // Two parts of one storage.
  EXPECT_EQ(Missing({{in, 1}, {out, 2}}, {in}), Variables{out});
  EXPECT_EQ(Missing({{in, 1}, {out, 1}}, {}), (Variables{in, out}));
}

TEST_F(MissingParametersTest, APartOfAFlatParameterIsThereWithIt) {
  const uint32_t flat = Parameter("flat", {.shape = {100}, .alias_group = 4});
  const uint32_t part =
      Parameter("fc.weight", {.shape = {4, 5}, .alias_group = 4});
  EXPECT_EQ(Missing({{flat, 1}, {part, 2}}, {flat}), Variables{});
  EXPECT_EQ(Missing({{flat, 1}, {part, 2}}, {part}), Variables{flat});
}

TEST_F(MissingParametersTest, WholeModulesAreLeftOutOnPurpose) {
  const uint32_t weight = Parameter("norm.weight");
  const uint32_t mean = Buffer("norm.mean");
  const uint32_t token = Parameter("token");
  const uint32_t head = Parameter("head.weight");
  const Digests live = {{weight, 1}, {mean, 2}, {token, 3}, {head, 4}};
  EXPECT_EQ(InModules(live, {weight, mean}), Variables{});
  EXPECT_EQ(InModules(live, {mean, head}), Variables{weight});
  // What has children may hold tokens of several of its parts.
  const uint32_t other = Parameter("other_token");
  EXPECT_EQ(InModules({{token, 3}, {other, 5}, {head, 4}}, {token}),
            Variables{});
}

TEST_F(MissingParametersTest, WhatTrainsAloneIsSavedOnPurpose) {
  const VariableOptions frozen = {VariableKind::kParameter, false};
  const uint32_t weight = Parameter("fc.weight", frozen);
  const uint32_t adapter = Parameter("fc.adapter");
  EXPECT_EQ(InModules({{weight, 1}, {adapter, 2}}, {adapter}), Variables{});
  // Frozen or not, statistics without their weight are no choice.
  const uint32_t scale = Parameter("norm.weight", frozen);
  const uint32_t mean = Buffer("norm.mean");
  EXPECT_EQ(InModules({{scale, 1}, {mean, 2}}, {mean}), Variables{scale});
}

TEST_F(MissingParametersTest, OfOptimizers) {
  const uint32_t held = Parameter("fc.weight");
  const uint32_t frozen =
      Parameter("tower.weight", {VariableKind::kParameter, false});
  const uint32_t free = Parameter("probe.weight");
  const uint32_t optimizer = trace_.Object("SGD", {ObjectKind::kOptimizer});
  trace_.Hold(optimizer, 0, {held, frozen});
  EXPECT_EQ(MissingOfOptimizers({held, frozen, free}, Definitions()),
            Variables{held});
}

}  // namespace
}  // namespace traincheck
