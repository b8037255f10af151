// What the facts of a process are after its trace was turned into records.
#include "invariants/traincheck/trace_records.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "invariants/facts/process_facts.h"
#include "invariants/trace/call_values.h"

namespace traincheck {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// Writes down what a relation would see.
class Diary : public ProcessObserver {
 public:
  std::vector<std::string> lines;

  void OnCallBegin(const ProcessFacts& facts, const Call& call) override {
    std::string line = "begin " + call.function->name;
    for (const auto& [flag, word] :
         {std::pair(kRootModuleCall, " root"), {kInsideBackward, " inside"}}) {
      if (call.Is(flag)) line += word;
    }
    if (!call.Is(kGradEnabled)) line += " no_grad";
    if (!call.Is(kOutermost)) line += " inner";
    const ObjectInfo* object = facts.definitions().Object(call.object);
    if (object) line += " of " + object->class_name;
    for (const CallArgument& argument :
         ArgumentsOf(call, facts.definitions()).all) {
      line += " " + argument.name + "=" + Text(argument.value);
    }
    lines.push_back(line + " @" + std::to_string(facts.clock().step()) + " " +
                    facts.stage());
  }

  void OnCallEnd(const ProcessFacts& facts, const Call& call,
                 CallOutcome outcome) override {
    std::string line = outcome == CallOutcome::kRaised ? "raise " : "end ";
    line += call.function->name;
    const auto result = ResultOf(call, facts.definitions());
    if (result) line += " " + Text(*result);
    lines.push_back(line);
  }

  void OnState(const ProcessFacts&, const StateEvent& event) override {
    std::string line = "state " + event.variable->FullName() + " " +
                       std::to_string(static_cast<int>(event.point)) +
                       " data " +
                       std::to_string(static_cast<int64_t>(event.data));
    if (event.Has(kHasGrad)) {
      line += " grad " + std::to_string(static_cast<int64_t>(event.grad));
    }
    if (event.Has(kGradIsNone)) line += " no grad";
    lines.push_back(line);
  }

  void OnMark(const ProcessFacts&, const MarkEvent& mark) override {
    lines.push_back("mark " + std::to_string(static_cast<int>(mark.kind)) +
                    " " + std::to_string(mark.value));
  }

 private:
  static std::string Text(const CallValue& value) {
    if (value.Get<NoneValue>()) return "None";
    if (const auto* truth = value.Get<bool>()) return *truth ? "True" : "False";
    if (const auto* number = value.Get<int64_t>()) {
      return std::to_string(*number);
    }
    if (const auto* number = value.Get<double>()) {
      return std::to_string(*number);
    }
    if (const auto* text = value.Get<std::string>()) return *text;
    if (const auto* tensor = value.Get<TensorValue>()) {
      return tensor->dtype + "#" + std::to_string(tensor->storage) + "x" +
             std::to_string(tensor->sizes.size()) +
             (tensor->has_grad_fn.value_or(false) ? "g" : "");
    }
    const auto* other = value.Get<OtherValue>();
    std::string text = other ? other->class_name : "?";
    if (value.length) text += "/" + std::to_string(*value.length);
    for (const CallElement& element : value.elements) {
      text += "," + element.name + ":" + Text(element.value);
    }
    return text;
  }
};

class TraceRecordsTest : public testing::Test {
 protected:
  TraceRecordsTest()
      : path_(fs::path(testing::TempDir()) /
              testing::UnitTest::GetInstance()->current_test_info()->name()),
        facts_(0) {
    fs::remove_all(path_);
    fs::create_directories(path_);
    facts_.AddObserver(&diary_);
  }
  ~TraceRecordsTest() override { fs::remove_all(path_); }

  json Line(const char* type) {
    return {{"type", type},
            {"process_id", 7},
            {"thread_id", thread_},
            {"time", time_ += 1000},
            {"meta_vars", {{"step", step_}, {"stage", stage_}}}};
  }

  void Begin(const std::string& id, const std::string& function,
             json args = json::object(), json kwargs = json::object()) {
    json line = Line("function_call (pre)");
    line["func_call_id"] = id;
    line["function"] = function;
    line["is_bound_method"] = object_ != 0;
    line["obj_id"] = object_ != 0 ? json(object_) : json();
    line["args"] = std::move(args);
    line["kwargs"] = std::move(kwargs);
    text_ += line.dump() + "\n";
    object_ = 0;
  }

  void End(const std::string& id, json result = {{"NoneType", nullptr}}) {
    json line = Line("function_call (post)");
    line["func_call_id"] = id;
    line["function"] = "as in its begin";
    line["return_values"] = std::move(result);
    text_ += line.dump() + "\n";
  }

  void Raise(const std::string& id, const std::string& exception) {
    json line = Line("function_call (post) (exception)");
    line["func_call_id"] = id;
    line["function"] = "as in its begin";
    line["exception"] = exception;
    line["exception_msg"] = "no good";
    text_ += line.dump() + "\n";
  }

  void State(json attributes) {
    json line = Line("state_change");
    line["var_name"] = "model.fc.weight";
    line["var_type"] = "torch.nn.Parameter";
    line["attributes"] = std::move(attributes);
    text_ += line.dump() + "\n";
  }

  void Step(const std::string& id) {
    object_ = 300;
    Begin(id, "torch.optim.sgd.SGD.step",
          {{"0", {{"torch.optim.sgd.SGD", {}}}}});
    End(id);
  }

  ProcessReport Convert() {
    std::ofstream(path_ / "trace_API_7_70.log", std::ios::binary) << text_;
    const auto folder = TraceFolder::Open(path_.string());
    EXPECT_TRUE(folder.ok()) << folder.status();
    const TraceProcess& process = (*folder)->processes().front();
    ImportedProcess identity = IdentityOf(**folder, process, /*alone=*/true);
    identity.run = "r";
    identity.host = "import";
    auto report = ConvertProcess(**folder, process, identity,
                                 [&](const StoredBatch& batch) {
                                   facts_.Consume(batch);
                                   return absl::OkStatus();
                                 });
    EXPECT_TRUE(report.ok()) << report.status();
    facts_.End(ProcessEnd::kClean);
    EXPECT_EQ(facts_.clock().disagreements(), 0u);
    return report.ok() ? *report : ProcessReport();
  }

  std::vector<std::string> Told(const std::string& begins) {
    std::vector<std::string> told;
    for (const std::string& line : diary_.lines) {
      if (line.rfind(begins, 0) == 0) told.push_back(line);
    }
    return told;
  }

  const fs::path path_;
  ProcessFacts facts_;
  Diary diary_;
  std::string text_;
  uint64_t thread_ = 70;
  uint64_t time_ = 5'000'000'000;
  uint64_t step_ = 0;
  const char* stage_ = "init";
  uint64_t object_ = 0;
};

using Lines = std::vector<std::string>;

TEST_F(TraceRecordsTest, AnIdMayComeAgainAfterItsEnd) {
  Begin("a", "m.f");
  for (int i = 0; i < 2; ++i) {
    Begin("b", "m.g");
    Begin("b", "m.g");  // is open already
    End("b");
  }
  End("a");
  const ProcessReport report = Convert();
  EXPECT_EQ(report.incomplete_calls, 0u);
  EXPECT_EQ(report.skipped.size(), 2u);
  EXPECT_EQ(Told("begin m.g").size(), 2u);
}

TEST_F(TraceRecordsTest, CallsNestAndTellTheirValues) {
  const json tensor = {{"torch.FloatTensor",
                        {{"_TRAINCHECK_data_ID", 41},
                         {"dtype", "torch.float32"},
                         {"shape", {2, 3}},
                         {"requires_grad", true},
                         {"is_leaf", false}}}};
  Begin("a", "torch._VariableFunctionsClass.add",
        {{"0", tensor}, {"1", {{"int", -3}}}},
        {{"alpha", {{"float", 0.5}}},
         {"out", {{"NoneType", nullptr}}},
         {"mode", {{"str", "sum"}}},
         {"dtype", {{"torch.dtype", "torch.int64"}}},
         {"api_token", {{"str", "x"}}},
         {"size", {{"list", {4, 5}}}},
         {"model", {{"__main__.Net", {{"training", true}}}}}});
  Begin("b", "torch.nn.init.ones_");
  End("b", json::array({{{"bool", true}}, tensor}));
  End("a", tensor);
  const ProcessReport report = Convert();
  EXPECT_TRUE(report.skipped.empty());
  EXPECT_EQ(report.incomplete_calls, 0u);
  EXPECT_EQ(facts_.gaps(), 0u);
  EXPECT_EQ(Told("begin"),
            (Lines{"begin torch.add args[0]=torch.float32#41x2g args[1]=-3 "
                   "alpha=0.500000 api_token=str/1 dtype=torch.int64 mode=sum "
                   "model=__main__.Net out=None size=list/2,0:4,1:5 @0 init",
                   "begin torch.nn.init.ones_ @0 init"}));
  EXPECT_EQ(Told("end"), (Lines{"end torch.nn.init.ones_ "
                                "tuple/2,0:True,1:torch.float32#41x2g",
                                "end torch.add torch.float32#41x2g"}));
}

TEST_F(TraceRecordsTest, ATrainingHasStepsStagesAndObjects) {
  stage_ = "training";
  for (step_ = 0; step_ < 3; ++step_) {
    const std::string n = std::to_string(step_);
    object_ = 200;
    Begin("f" + n, "__mp_main__.Net.forward",
          {{"0", {{"__mp_main__.Net", {{"training", true}}}}}});
    object_ = 201;
    Begin("l" + n, "torch.nn.modules.linear.Linear.forward",
          {{"0", {{"torch.nn.modules.linear.Linear", json::object()}}}});
    End("l" + n);
    End("f" + n);
    Begin("b" + n, "torch.autograd.backward");
    End("b" + n);
    Step("s" + n);
  }
  Convert();
  EXPECT_EQ(Told("begin __main__"),
            (Lines{"begin __main__.Net.forward root of __main__.Net @0 "
                   "training",
                   "begin __main__.Net.forward root of __main__.Net @1 "
                   "training",
                   "begin __main__.Net.forward root of __main__.Net @2 "
                   "training"}));
  EXPECT_EQ(Told("begin torch.optim").back(),
            "begin torch.optim.sgd.SGD.step of torch.optim.sgd.SGD @2 "
            "training");
  EXPECT_EQ(facts_.clock().step(), 3u);
  EXPECT_EQ(facts_.rank(), 0);
  EXPECT_EQ(facts_.world(), 1);
  EXPECT_TRUE(facts_.definitions().Object(1)->kind == ObjectKind::kModule);
}

TEST_F(TraceRecordsTest, StatesStandWhereTheyWereTaken) {
  json attributes = {{"data", -5},
                     {"grad", nullptr},
                     {"dtype", "torch.bfloat16"},
                     {"shape", {4}},
                     {"requires_grad", true},
                     {"is_leaf", true},
                     {"is_cuda", false},
                     {"tensor_model_parallel", false},
                     {"partition_dim", -1},
                     {"_ML_DAIKON_data_ID", 9}};
  State(attributes);
  Step("s");
  attributes["data"] = 6;
  attributes["grad"] = 9223372036854775807;
  State(attributes);
  attributes["data"] = {{"mean", 1.5}};
  State(attributes);
  const ProcessReport report = Convert();
  const Lines states = Told("state");
  ASSERT_EQ(states.size(), 3u);
  EXPECT_EQ(states[0], "state model.fc.weight 1 data -5 no grad");
  EXPECT_EQ(states[1],
            "state model.fc.weight 8 data 6 grad 9223372036854775807");
  const VariableInfo* variable = facts_.definitions().Variable(1);
  ASSERT_NE(variable, nullptr);
  EXPECT_EQ(variable->dtype, "torch.bfloat16");
  EXPECT_EQ(variable->shape, (std::vector<uint64_t>{4}));
  EXPECT_TRUE(variable->trainable);
  EXPECT_EQ(variable->attributes,
            (Lines{"partition_dim=-1", "tensor_model_parallel=False"}));
  EXPECT_EQ(report.left_out.at("attributes.data_ID"), 3u);
}

TEST_F(TraceRecordsTest, WhatIsIncompleteStaysOpen) {
  Begin("outer", "torch.a");
  Begin("inner", "torch.b");
  End("inner");
  thread_ = 71;
  Begin("other", "torch.c");
  const ProcessReport report = Convert();
  EXPECT_EQ(report.incomplete_calls, 2u);
  EXPECT_TRUE(report.skipped.empty());
  EXPECT_EQ(Told("end"), (Lines{"end torch.b None"}));
  EXPECT_EQ(facts_.gaps(), 0u);
}

// Deltas between records have 32 bits of microseconds.
TEST_F(TraceRecordsTest, PausesAndThreadsLeaveNoGap) {
  stage_ = "checkpointing";  // which makes no mark
  thread_ = 71;
  Begin("a", "my.a");
  time_ += 2 * uint64_t{3'600'000'000'000};
  Begin("b", "my.b");
  End("b");
  End("a");
  thread_ = 72;
  Begin("c", "my.c");
  End("c");
  Convert();
  EXPECT_EQ(facts_.gaps(), 0u) << facts_.gap_reason();
  EXPECT_EQ(Told("end").size(), 3u);
}

TEST_F(TraceRecordsTest, LinesThatDoNotFitAreSkippedByName) {
  End("never begun");
  Begin("a", "torch.a");
  Begin("a", "torch.a");
  Begin("lost", "torch.b");
  Raise("a", "ValueError");
  End("lost");
  const ProcessReport report = Convert();
  ASSERT_EQ(report.skipped.size(), 3u);
  EXPECT_EQ(report.skipped[0].line, 1u);
  EXPECT_EQ(report.skipped[0].reason, "the call has not begun on its thread");
  EXPECT_EQ(report.skipped[1].line, 3u);
  EXPECT_EQ(report.skipped[1].reason, "the call has begun already");
  EXPECT_EQ(report.skipped[2].line, 6u);
  EXPECT_EQ(report.lines, 6u);
  EXPECT_EQ(report.incomplete_calls, 1u);
  EXPECT_EQ(Told("raise"), (Lines{"raise torch.a"}));
  // The end of torch.b is missing.
  EXPECT_EQ(facts_.gaps(), 1u);
}

TEST_F(TraceRecordsTest, GradientsAreOffWhereTorchSaysSo) {
  Begin("e", "torch.autograd.grad_mode.no_grad.__enter__");
  End("e");
  Begin("a", "my.a");
  End("a");
  Begin("x", "torch.autograd.grad_mode.no_grad.__exit__");
  End("x");
  Begin("b", "my.b");
  Begin("q", "torch.is_grad_enabled");
  End("q", {{"bool", false}});
  Begin("c", "my.c");
  End("c");
  End("b");
  Begin("d", "my.d");
  End("d");
  Convert();
  EXPECT_EQ(Told("begin my.a "), (Lines{"begin my.a no_grad @0 init"}));
  EXPECT_EQ(Told("begin my.b "), (Lines{"begin my.b @0 init"}));
  EXPECT_EQ(Told("begin my.c "), (Lines{"begin my.c no_grad @0 init"}));
  EXPECT_EQ(Told("begin my.d "), (Lines{"begin my.d @0 init"}));
}

TEST_F(TraceRecordsTest, ContextsAreToldWhetherGradientsAreOn) {
  const std::string contexts = "torch.autograd.grad_mode.";
  int calls = 0;
  const auto call = [&](const std::string& name, json args = json::object()) {
    const std::string id = "c" + std::to_string(++calls);
    Begin(id, name, std::move(args));
    End(id);
  };
  const auto within = [&](const std::string& context, json args,
                          const std::string& called) {
    if (!args.is_null()) {
      args["0"] = {{contexts + context, json::object()}};
      call(contexts + context + ".__init__", std::move(args));
    }
    call(contexts + context + ".__enter__");
    call(called);
    call(contexts + context + ".__exit__");
  };
  const json on = {{"1", {{"bool", true}}}};
  const json off = {{"1", {{"bool", false}}}};
  within("set_grad_enabled", on, "my.set_on");
  within("set_grad_enabled", off, "my.set_off");
  call("my.behind");
  within("inference_mode", json::object(), "my.inference");
  within("inference_mode", off, "my.no_inference");
  within("set_grad_enabled", json(), "my.not_told");
  call(contexts + "set_grad_enabled.__init__", off);
  call("my.set_for_good");
  Convert();
  EXPECT_EQ(
      Told("begin my."),
      (Lines{"begin my.set_on @0 init", "begin my.set_off no_grad @0 init",
             "begin my.behind @0 init", "begin my.inference no_grad @0 init",
             "begin my.no_inference @0 init", "begin my.not_told @0 init",
             "begin my.set_for_good no_grad @0 init"}));
}

TEST_F(TraceRecordsTest, ACounterOfEachEpochEndsItsSteps) {
  stage_ = "training";
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (step_ = 0; step_ < 3; ++step_) {
      Begin("a", "my.a");
      End("a");
    }
  }
  // An evaluation that counts likewise.
  stage_ = "testing";
  step_ = 0;
  Begin("b", "my.b");
  End("b");
  Convert();
  const Lines calls = Told("begin my.");
  ASSERT_EQ(calls.size(), 7u);
  EXPECT_EQ(calls[3], "begin my.a @2 training");
  EXPECT_EQ(calls[5], "begin my.a @4 training");
  EXPECT_EQ(calls[6], "begin my.b @4 evaluation");
}

TEST_F(TraceRecordsTest, IteratorsBelongToTheLoaderThatMadeThem) {
  const std::string loader = "torch.utils.data.dataloader.DataLoader";
  const std::string iterator =
      "torch.utils.data.dataloader._SingleProcessDataLoaderIter";
  // The iterator of the second pass has the id of the first, which is gone.
  for (int pass = 0; pass < 2; ++pass) {
    object_ = 400;
    Begin("i", loader + "._get_iterator", {{"0", {{loader, {}}}}});
    End("i", {{iterator, json::object()}});
    for (int batch = 0; batch < 3; ++batch) {
      object_ = 401;
      Begin("n", iterator + "._next_data", {{"0", {{iterator, {}}}}});
      if (batch < 2) {
        End("n");
      } else {
        Raise("n", "StopIteration");
      }
    }
  }
  Convert();
  EXPECT_EQ(Told("mark 1 "), (Lines{"mark 1 0", "mark 1 1"}));
  EXPECT_EQ(Told("mark 2 "),
            (Lines{"mark 2 0", "mark 2 1", "mark 2 0", "mark 2 1"}));
  EXPECT_EQ(Told("mark 3 "), (Lines{"mark 3 0", "mark 3 1"}));
}

TEST_F(TraceRecordsTest, TrainChecksOwnTracesAreTakenWhole) {
  const char* const oracles = std::getenv("TRAINCHECK_ORACLES");
  if (oracles == nullptr) {
    GTEST_SKIP() << "TRAINCHECK_ORACLES names no folder of TrainCheck's files";
  }
  for (const auto& entry :
       fs::directory_iterator(fs::path(oracles) / "traces")) {
    SCOPED_TRACE(entry.path());
    const auto folder = TraceFolder::Open(entry.path().string());
    ASSERT_TRUE(folder.ok()) << folder.status();
    uint64_t lines = (*folder)->skipped().size();
    for (const TraceProcess& process : (*folder)->processes()) {
      ProcessFacts facts(process.pid);
      const auto report = ConvertProcess(**folder, process,
                                         IdentityOf(**folder, process, false),
                                         [&](const StoredBatch& batch) {
                                           facts.Consume(batch);
                                           return absl::OkStatus();
                                         });
      ASSERT_TRUE(report.ok()) << report.status();
      EXPECT_TRUE(report->skipped.empty());
      EXPECT_EQ(facts.gaps(), 0u) << facts.gap_reason();
      EXPECT_EQ(facts.clock().disagreements(), 0u);
      lines += report->lines;
    }
    EXPECT_EQ(lines, (*folder)->lines());
  }
}

}  // namespace
}  // namespace traincheck
