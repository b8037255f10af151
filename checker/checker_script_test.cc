// Runs the scripts that a target has as data: events go in, and after each step
// of a story the script says what the checker must have found.
// testdata/SCRIPTS.md describes the language. Scripts of a relation are in the
// testdata of its folder, those of the checker in its own.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <sstream>

#include "checker/checker.h"
#include "checker/script_words_for_testing.h"
#include "invariants/sets/identity.h"
#include "invariants/sets/invariant_for_testing.h"
#include "invariants/sets/set_json.h"
#include "invariants/testing/trace_builder.h"

namespace traincheck {
namespace {

// One process of a script, by the names that the script gives to things.
class ScriptProcess {
 public:
  void Event(const Words& words) {
    if (words[0] == "thread") {
      ring_ = Number(words[1]);
      Record(Words(words.begin() + 2, words.end()));
      ring_ = 1;
      return;
    }
    const std::string& what = words[0];
    if (what == "rank") {
      trace_.Place(std::stoi(words[1]), std::stoi(words[3]));
    } else if (what == "process") {
      trace_.Owner(Number(words[1]));
    } else if (what == "worker") {
      trace_.Worker({Number(words[1]), Number(words[3]), Number(words[5]),
                     Number(words[7])});
    } else if (what == "group") {
      trace_.ProcessGroup(Number(words[1]), Ranks(words[3]));
    } else if (what == "generator") {
      variables_[words[1]] = trace_.Variable(
          0, "generator", words[1].substr(words[1].find('.') + 1),
          {.kind = VariableKind::kGenerator});
    } else if (what == "rows") {
      variables_[words[1]] = trace_.Variable(
          0, "DataLoader", "indices", {.kind = VariableKind::kLoaderState});
    } else if (what == "module" || what == "optimizer") {
      DefineObject(words, what == "module" ? ObjectKind::kModule
                                           : ObjectKind::kOptimizer);
    } else if (what == "param" || what == "buffer") {
      DefineVariable(words);
    } else if (what == "inputs") {
      variables_[words[1]] =
          trace_.Variable(objects_.at(words[1].substr(0, words[1].find('.'))),
                          "DDP", "inputs", {.kind = VariableKind::kInputs});
    } else if (what == "hold") {
      const bool grouped = words[2] == "group";
      trace_.Hold(objects_.at(words[1]), grouped ? Number(words[3]) : 0,
                  Variables(words, grouped ? 4 : 2));
    } else if (what == "replicas") {
      trace_.Replicas(1, objects_.at(words[1]), Ranks(words[3]),
                      Variables(words, 4));
    } else {
      Record(words);
    }
  }

  std::vector<StoredBatch> TakeBatches() { return trace_.TakeBatches(); }
  void Define(const std::string& name, const Words& words) {
    functions_[name] = {words[0], Words(words.begin() + 1, words.end())};
  }

 private:
  void Record(const Words& words) {
    const std::string& what = words[0];
    if (what == "begin") {
      Begin(words);
    } else if (what == "end" && words.size() == 1) {
      trace_.End(/*output_flags=*/0, ring_);
    } else if (what == "end" && words[1] == "gives") {
      trace_.Return(std::stod(words[2]));
    } else if (what == "end") {
      trace_.Return("torch." + words[2], std::stoull(words[3]));
    } else if (what == "collective") {
      trace_.Collective(Number(words[1]), Number(words[2]));
    } else if (what == "closed") {
      trace_.Mark(MarkKind::kStepClosed, 0, Number(words[1]));
    } else if (what == "step") {
      trace_.Mark(MarkKind::kUserStep, 0, 0);
    } else if (what == "mode") {
      trace_.Mark(
          MarkKind::kCaptureMode, 0,
          static_cast<uint64_t>(words[1] == "all" ? CaptureMode::kAll
                                                  : CaptureMode::kSkeleton));
    } else if (what == "skipped") {
      trace_.Mark(MarkKind::kStepSkipped, objects_.at(words[1]), 0);
    } else if (what == "autocast" && words[1] == "leave") {
      trace_.LeaveAutocast();
    } else if (what == "autocast") {
      trace_.EnterAutocast(words[1] == "off" ? "" : "torch." + words[1]);
    } else if (what == "raise") {
      trace_.Raise();
    } else if (what == "call") {
      Begin(words);
      trace_.End(/*output_flags=*/0, ring_);
    } else if (what == "state") {
      State(words);
    } else if (what == "statistics") {
      trace_.Statistics(PointOf(words[1]), variables_.at(words[2]), kHasGrad,
                        Number(words[3].substr(words[3].find('=') + 1)));
    } else if (what == "entry") {
      Entry(words);
    } else if (what == "lr") {
      trace_.LearningRate(objects_.at(words[1]), 0, std::stod(words[2]));
    } else if (what == "scalar") {
      trace_.Scalar(StatePoint::kPreStep, objects_.at(words[1]), 0,
                    words[2].c_str(), std::stod(words[3]));
    } else if (what == "sight") {
      Sight(words);
    } else if (what == "switch") {
      trace_.Mark(
          words[2] == "on" ? MarkKind::kFunctionOn : MarkKind::kFunctionOff, 0,
          Function(words[1]));
    } else if (what == "plan") {
      trace_.Mark(MarkKind::kPlanApplied, 0, std::stoull(words[1]));
    } else {
      Pass(words);
    }
  }

  // Time passes, records are missing, the end comes.
  void Pass(const Words& words) {
    const std::string& what = words[0];
    if (what == "wait") {
      trace_.Wait(std::stod(words[1]));
    } else if (what == "quiet") {
      trace_.Quiet(std::stod(words[1]));
    } else if (what == "ends") {
      trace_.Mark(MarkKind::kCleanExit, 0, 0);
    } else if (what == "gap") {
      trace_.Lose();
    } else {
      FAIL() << "no such event: " << what;
    }
  }

  void Sight(const Words& words) {
    std::string name = "sight:" + words[1];
    for (size_t i = 2; i < words.size(); ++i) name += " " + words[i];
    trace_.Scalar(StatePoint::kConstruction, 0, 0, name.c_str(), 1);
  }

  void DefineObject(const Words& words, ObjectKind kind) {
    ObjectOptions options;
    options.kind = kind;
    options.bases = {"torch.nn.modules.module.Module"};
    const std::string wrapped = After(words, "wraps");
    if (!wrapped.empty()) options.wrapped = objects_.at(wrapped);
    const std::string place = After(words, "in");
    if (const size_t dot = place.find('.'); dot != std::string::npos) {
      options.root = objects_.at(place.substr(0, dot));
      options.path = place.substr(dot + 1);
    }
    objects_[words[1]] = trace_.Object(words[2], options);
  }

  // "param net.w": w of the module net.
  void DefineVariable(const Words& words) {
    const size_t dot = words[1].find('.');
    VariableOptions options;
    options.kind =
        words[0] == "param" ? VariableKind::kParameter : VariableKind::kBuffer;
    options.trainable = !Has(words, "frozen");
    options.owner_class = After(words, "of");
    options.shape = Numbers(After(words, "size"));
    const std::string group = After(words, "storage");
    if (!group.empty()) options.alias_group = std::stoull(group);
    variables_[words[1]] =
        trace_.Variable(objects_.at(words[1].substr(0, dot)), "Net",
                        words[1].substr(dot + 1), options);
  }

  std::vector<uint32_t> Variables(const Words& words, size_t from) {
    std::vector<uint32_t> ids;
    for (size_t i = from; i < words.size(); ++i) {
      ids.push_back(variables_.at(words[i]));
    }
    return ids;
  }

  uint32_t Function(const std::string& name) {
    const auto& [category, roles] = functions_.at(name);
    return trace_.Function(name, category, roles);
  }

  void Begin(const Words& words) {
    CallOptions options;
    options.ring = ring_;
    const std::string object = After(words, "on");
    if (!object.empty()) options.object = objects_.at(object);
    options.site = After(words, "at");
    if (Has(words, "root")) options.flags |= kRootModuleCall;
    if (Has(words, "training")) options.flags |= kModuleTraining;
    if (Has(words, "no_grad")) options.flags &= ~kGradEnabled;
    options.sizes = SizesIn(words);
    const std::string memory = After(words, "memory");
    if (!memory.empty()) {
      const size_t equals = memory.find('=');
      options.storages[memory.substr(0, equals)] =
          std::stoull(memory.substr(equals + 1));
    }
    for (const char* name : {"sends", "expects"}) {
      const std::string parts = After(words, name);
      if (parts.empty()) continue;
      options.lists[name == std::string("sends") ? "input_split_sizes"
                                                 : "output_split_sizes"] =
          Numbers(parts);
    }
    const std::string argument = After(words, "with");
    if (!argument.empty()) {
      const size_t equals = argument.find('=');
      const std::string name = argument.substr(0, equals);
      const std::string value = argument.substr(equals + 1);
      if (value == "true") options.truths[name] = true;
      if (value != "true") options.arguments[name] = std::stod(value);
    }
    trace_.Begin(Function(words[1]), options);
  }

  void State(const Words& words) {
    StateOptions options;
    for (const std::string& word : words) {
      const size_t equals = word.find('=');
      const std::string key = word.substr(0, equals);
      const std::string value =
          equals == std::string::npos ? "" : word.substr(equals + 1);
      if (key == "data") options.data = std::stoull(value);
      if (key == "grad" && value == "none") options.no_grad = true;
      if (key == "grad" && value != "none") options.grad = std::stoull(value);
      if (key == "unreadable") options.unreadable = true;
      if (key == "frozen") options.requires_grad = false;
    }
    trace_.State(PointOf(words[1]), variables_.at(words[2]), options);
  }

  void Entry(const Words& words) {
    EntryOptions options;
    options.ring = ring_;
    const std::string digest = After(words, "data");
    const std::string dtype = After(words, "dtype");
    const std::string more = After(words, "more");
    if (!digest.empty()) options.digest = std::stoull(digest);
    if (!dtype.empty()) options.dtype = dtype == "none" ? "" : "torch." + dtype;
    options.shape = Numbers(After(words, "size"));
    const std::string live = After(words, "live");
    if (!live.empty()) options.variable = variables_.at(live);
    if (!more.empty()) options.left_out = std::stoull(more);
    trace_.CheckpointEntry(PointOf(words[1]), words[2], options);
  }

  TraceBuilder trace_;
  uint32_t ring_ = 1;  // of the event
  std::map<std::string, uint32_t> objects_;
  std::map<std::string, uint32_t> variables_;
  std::map<std::string, std::pair<std::string, Words>> functions_;
};

class Script {
 public:
  // `restarts`: the checker is saved and restored after every batch.
  Script(const std::string& path, bool restarts)
      : path_(path), restarts_(restarts) {}

  void Run() {
    std::ifstream in(path_);
    ASSERT_TRUE(in.is_open()) << path_;
    int number = 0;
    for (std::string line; std::getline(in, line);) {
      SCOPED_TRACE(path_ + ":" + std::to_string(++number) + ": " + line);
      if (line.empty() || line[0] == '#') continue;
      RunLine(line);
      if (testing::Test::HasFatalFailure()) return;
    }
  }

 private:
  void RunLine(const std::string& line) {
    const size_t colon = line.find(": ");
    ASSERT_NE(colon, std::string::npos);
    const std::string key = line.substr(0, colon);
    const std::string rest = line.substr(colon + 2);
    std::istringstream in(rest);
    Words words{std::istream_iterator<std::string>(in), {}};
    if (key == "rule") {
      Rule(rest);
    } else if (key == "function") {
      functions_.push_back(words);
    } else if (key == "event") {
      Event(words);
    } else if (key == "expect") {
      Flush();
      Expect(words, rest);
    } else {
      FAIL() << "no such line";
    }
  }

  // RELATION PARAMETERS [when PRECONDITION]
  void Rule(const std::string& text) {
    const size_t space = text.find(' ');
    const size_t when = text.find(" when ");
    const nlohmann::json parameters =
        nlohmann::json::parse(text.substr(space + 1, when - space - 1));
    set_.invariants.push_back(
        when == std::string::npos
            ? NewInvariant(text.substr(0, space), parameters)
            : NewInvariant(text.substr(0, space), parameters,
                           nlohmann::json::parse(text.substr(when + 6))));
  }

  ScriptProcess& Process(uint32_t number) {
    auto [found, added] = processes_.try_emplace(number);
    if (added) {
      found->second = std::make_unique<ScriptProcess>();
      for (const Words& function : functions_) {
        found->second->Define(function[0],
                              Words(function.begin() + 1, function.end()));
      }
    }
    return *found->second;
  }

  // "event: 0 begin f", "event: 0,1 begin f", "event: 0 exit died",
  // "event: run ends".
  void Event(const Words& words) {
    if (words[0] == "run") {
      Flush();
      checker().EndRun();
      return;
    }
    for (int32_t number : Ranks(words[0])) {
      const auto process = static_cast<uint32_t>(number);
      if (words[1] == "exit") {
        Flush();
        checker().EndProcess(process, words[2] == "clean"  ? ProcessEnd::kClean
                                      : words[2] == "died" ? ProcessEnd::kDied
                                                           : ProcessEnd::kLost);
        continue;
      }
      Process(process).Event(Words(words.begin() + 1, words.end()));
    }
  }

  Checker& checker() {
    if (!checker_) {
      checker_ = std::make_unique<Checker>("run", "experiment", set_);
    }
    return *checker_;
  }

  void Flush() {
    for (auto& [number, process] : processes_) {
      for (const StoredBatch& batch : process->TakeBatches()) {
        checker().Consume(number, batch);
        if (restarts_) Restart();
      }
    }
  }

  void Restart() {
    const std::string state = checker().Save();
    checker_ = std::make_unique<Checker>("run", "experiment", set_);
    const absl::Status restored = checker_->RestoreUntrusted(state);
    ASSERT_TRUE(restored.ok()) << restored;
  }

  void Expect(const Words& words, const std::string& text) {
    for (Violation& violation : checker().TakeChanges()) {
      violations_[violation.id] = violation;
    }
    if (words[0] == "none") {
      EXPECT_TRUE(violations_.empty()) << violations_.begin()->second.seen;
    } else if (words[0] == "decided") {
      EXPECT_EQ(checker().Summary().decided,
                static_cast<uint32_t>(std::stoi(words[1])));
    } else if (words[0] == "unknown") {
      const auto unknown = checker().Summary().unknown;
      EXPECT_EQ(unknown.count(text.substr(8)), 1u)
          << (unknown.empty() ? "nothing is" : unknown.begin()->first);
    } else if (words[0] == "unknown-rules") {
      ExpectUnknownRules(words, text);
    } else if (words[0] == "no-occasion") {
      EXPECT_EQ(checker().Summary().no_occasion,
                static_cast<uint32_t>(std::stoi(words[1])));
    } else if (words[0] == "partly-unknown") {
      const auto unknown = checker().Summary().partly_unknown;
      EXPECT_EQ(unknown.count(text.substr(15)), 1u)
          << (unknown.empty() ? "nothing is" : unknown.begin()->first);
    } else if (words[0] == "known") {
      EXPECT_TRUE(checker().Summary().partly_unknown.empty())
          << checker().Summary().partly_unknown.begin()->first;
    } else if (words[0] == "violation") {
      ExpectViolation(words);
    } else {
      FAIL() << "no such expectation";
    }
  }

  // "unknown-rules N REASON": so many rules are unknown for this reason.
  void ExpectUnknownRules(const Words& words, const std::string& text) {
    const std::string reason = text.substr(15 + words[1].size());
    const auto unknown = checker().Summary().unknown;
    const auto found = unknown.find(reason);
    EXPECT_EQ(found == unknown.end() ? 0 : found->second,
              static_cast<uint32_t>(std::stoi(words[1])))
        << reason;
  }

  // "violation RELATION steps A-B ranks 0,1 count N [variable V] [site S]
  // [api F] [open|ended] [says TEXT]": exactly one is like this.
  void ExpectViolation(const Words& words) {
    size_t alike = 0;
    std::ostringstream all;
    for (const auto& [id, violation] : violations_) {
      const std::string steps =
          StepText(violation.first_step) + "-" + StepText(violation.last_step);
      all << violation.relation << " steps " << steps << " count "
          << violation.count << ": " << violation.seen << "\n";
      EXPECT_EQ(violation.headline.starts_with("At an unknown step "),
                !violation.first_step);
      alike +=
          violation.relation == words[1] && After(words, "steps") == steps &&
          Ranks(After(words, "ranks")) == violation.ranks &&
          After(words, "count") == std::to_string(violation.count) &&
          Fits(words, "variable", violation.variables) &&
          Fits(words, "site", violation.sites) &&
          Fits(words, "api", violation.apis) && Says(words, violation.seen) &&
          (!Has(words, "open") || violation.open) &&
          (!Has(words, "ended") || !violation.open);
    }
    EXPECT_EQ(alike, 1u) << all.str();
  }

  static std::string StepText(std::optional<int64_t> step) {
    return step ? std::to_string(*step) : "?";
  }

  static bool Fits(const Words& words, const std::string& key,
                   const std::vector<std::string>& values) {
    const std::string wanted = After(words, key);
    return wanted.empty() || Has(values, wanted);
  }

  const std::string path_;
  const bool restarts_;
  InvariantSet set_;
  std::vector<Words> functions_;
  std::map<uint32_t, std::unique_ptr<ScriptProcess>> processes_;
  std::unique_ptr<Checker> checker_;
  std::map<std::string, Violation> violations_;
};

class CheckerScript : public testing::TestWithParam<std::string> {};

TEST_P(CheckerScript, DoesWhatItSays) { Script(GetParam(), false).Run(); }

TEST_P(CheckerScript, DoesItWhenRestoredAfterEveryBatch) {
  Script(GetParam(), true).Run();
}

std::vector<std::string> Scripts() {
  std::vector<std::string> paths;
  for (const char* folder : {"checker/testdata", "invariants/relations"}) {
    if (!std::filesystem::exists(folder)) continue;
    for (const auto& entry :
         std::filesystem::recursive_directory_iterator(folder)) {
      if (entry.path().extension() == ".txt") paths.push_back(entry.path());
    }
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

// Without any, gtest would run nothing and call it a pass.
TEST(CheckerScripts, AreThere) { EXPECT_FALSE(Scripts().empty()); }

INSTANTIATE_TEST_SUITE_P(
    Testdata, CheckerScript, testing::ValuesIn(Scripts()),
    [](const auto& info) {
      return std::filesystem::path(info.param).stem().string();
    });

}  // namespace
}  // namespace traincheck
