// Traces and files that were damaged at random: an error or a verdict, and
// nothing worse.
#include <random>

#include "base/seed_for_testing.h"
#include "invariants/traincheck/conformance/small_trace_for_testing.h"

namespace traincheck {
namespace {

class HostileTraceTest : public SmallTraceTest {
 protected:
  void Fill() {
    for (int step = 0; step < 4; ++step) {
      Step(step);
      State("w", {{"data", step}, {"grad", nullptr}});
      Json& begin = Begin("m.f");
      begin["args"] = {{"0", {{"torch.Tensor", {{"shape", {1, 2}}}}}}};
      begin["kwargs"] = {{"limit", {{"int", 5}}}};
      Call("m.g");
      End({{"torch.Tensor", {{"shape", {1, 2}}, {"dtype", "f16"}}}});
      Call("m.h");
    }
  }
  static std::vector<Json> Rules() {
    Json output = Variable("torch.Tensor", "dtype");
    output["const_value"] = "f16";
    const Json in = Tensor("input_tensors", 0, {"shape", 0});
    const Json out = Tensor("output_tensors", 0, {"shape", 0});
    const Json limit = Tensor("limit", nullptr, nullptr);
    const Json data = Variable("torch.nn.Parameter", "data");
    const Json step = Where(Clause("consistent", "meta_vars.step"));
    const Json f = Function("m.f");
    const Json g = Function("m.g");
    const Json h = Function("m.h");
    return {
        Rule("APIContainRelation", {f, g}, "parent_func_call_pre", step),
        Rule("APIContainRelation", {f, data}, "parent_func_call_pre", step),
        Rule("ConsistencyRelation", {data, data}, "var", step),
        Rule("ConsistentOutputRelation", {f, output}, "pre_event", step),
        Rule("ConsistentInputOutputRelation", {in, f, out}, "pre_event", step),
        Rule("ThresholdRelation", {limit, f, out}, "pre_event", step),
        Rule("FunctionCoverRelation", {f, h}, "func_cover", step),
        Rule("FunctionLeadRelation", {f, h}, "func_lead", step),
        Rule("DistinctArgumentRelation", {f}, "distinct_arg", step),
    };
  }
};

// A value somewhere in it becomes another one.
void Damage(std::mt19937* random, Json* json) {
  static const auto* const kValues =
      new std::vector<Json>{nullptr,
                            true,
                            -1,
                            0,
                            1e300,
                            "",
                            "m.f",
                            Json::array(),
                            Json::object(),
                            {1, nullptr},
                            {{"a", {{"b", 1}}}},
                            18446744073709551615u};
  if (json->is_structured() && !json->empty() && (*random)() % 4 != 0) {
    auto at = json->begin();
    std::advance(at, (*random)() % json->size());
    if (json->is_object() && (*random)() % 8 == 0) {
      json->erase(at);
      return;
    }
    return Damage(random, &*at);
  }
  *json = kValues->at((*random)() % kValues->size());
}

TEST_F(HostileTraceTest, DamagedTracesGiveAnErrorOrVerdicts) {
  std::mt19937 random(SeedForTesting(20));
  Fill();
  const std::deque<Json> whole = lines();
  int judged = 0;
  for (int round = 0; round < 400; ++round) {
    lines() = whole;
    for (int i = 0; i < 1 + round % 3; ++i) {
      Damage(&random, &lines()[random() % lines().size()]);
    }
    const auto check = CheckAll(Rules());
    if (check.ok()) {
      ++judged;
      EXPECT_EQ(check->lines.size(), Rules().size());
    } else {
      EXPECT_NE(check.status().message(), "");
    }
  }
  EXPECT_GT(judged, 40);
}

TEST_F(HostileTraceTest, DamagedRulesGiveAnErrorOrVerdicts) {
  std::mt19937 random(SeedForTesting(21));
  Fill();
  int judged = 0;
  for (int round = 0; round < 400; ++round) {
    std::vector<Json> rules = Rules();
    Damage(&random, &rules[random() % rules.size()]);
    const auto check = CheckAll(rules);
    judged += check.ok() ? 1 : 0;
    if (!check.ok()) {
      EXPECT_EQ(check.status().message().substr(0, 5), "line ");
    }
  }
  EXPECT_GT(judged, 0);
}

TEST_F(HostileTraceTest, CutOffFilesAreNamed) {
  Fill();
  std::string text;
  for (const Json& line : lines()) text += line.dump() + "\n";
  for (size_t size = 1; size < 2000; size += 37) {
    Write("trace_API_1_10.log", text.substr(0, size));
    const auto check = CheckFile(Rules()[0].dump());
    if (check.ok()) continue;
    EXPECT_NE(check.status().message().find("trace_API_1_10.log: line "),
              std::string::npos)
        << check.status();
  }
}

}  // namespace
}  // namespace traincheck
