// A command as a process, against a server with canned data: one run r1, one
// set s1 with one invariant i1, and one violation v1 of r1.
#ifndef TRAINCHECK_CTL_TESTING_COMMANDS_FIXTURE_H_
#define TRAINCHECK_CTL_TESTING_COMMANDS_FIXTURE_H_

#include <string>
#include <vector>

#include "ctl/testing/fake_control.h"
#include "ctl/testing/process.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace traincheck::ctl {

using Json = nlohmann::json;

// A port of loopback on which nothing listens: "discard" on a system port.
inline constexpr char kNobody[] = "127.0.0.1:9";

class CommandsTest : public testing::Test {
 protected:
  CommandsTest() {
    server_.Edit([](FakeData& data) {
      data.status.set_version("0.1");
      v1::Run run;
      run.set_id("r1");
      data.runs.push_back(run);
      v1::SetDetail set;
      set.mutable_summary()->set_name("s1");
      set.set_json("{\"name\": \"s1\"}\n");
      set.add_invariants()->set_id("i1");
      data.sets.push_back(set);
      v1::Violation violation;
      violation.set_id("v1");
      violation.set_run("r1");
      data.violations.push_back(violation);
    });
  }

  Process::Options ForServer(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"--server", server_.address()});
    return Ctl(arguments);
  }

  ProcessResult Run(const std::vector<std::string>& arguments) {
    return RunProcess(ForServer(arguments));
  }

  Json RunJson(std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), {"-o", "json"});
    const ProcessResult result = Run(arguments);
    EXPECT_EQ(result.code, 0) << result.err;
    EXPECT_EQ(result.err, "");
    return Json::parse(result.out, nullptr, false);
  }

  FakeControl server_;
};

}  // namespace traincheck::ctl

#endif  // TRAINCHECK_CTL_TESTING_COMMANDS_FIXTURE_H_
