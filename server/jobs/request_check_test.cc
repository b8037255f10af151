#include "server/jobs/request_check.h"

#include <gtest/gtest.h>

namespace traincheck::server {
namespace {

v1::InferRequest Good() {
  v1::InferRequest request;
  request.add_runs("r1");
  request.set_set("s");
  return request;
}

std::string Words(const absl::Status& status) {
  return std::string(status.message());
}

TEST(RequestCheck, SaysWhichOptionMakesNoSense) {
  EXPECT_TRUE(CheckRequest(Good()).ok());
  v1::InferRequest request = Good();
  request.mutable_options()->set_max_chance(0);
  EXPECT_EQ(Words(CheckRequest(request)),
            "--max-chance is 0: write a number above 0 and at most 1");
  request = Good();
  request.mutable_options()->set_min_programs(0);
  EXPECT_EQ(Words(CheckRequest(request)),
            "--min-programs is 0: write 1 or more");
  request = Good();
  for (int i = 0; i < 257; ++i) {
    request.mutable_options()->add_exclude_variables("x");
  }
  EXPECT_EQ(Words(CheckRequest(request)),
            "--exclude-variables has 257 entries, the limit is 256");
  request = Good();
  request.add_relations("Foo");
  EXPECT_NE(Words(CheckRequest(request)).find("\"Foo\" is not a relation"),
            std::string::npos);
}

TEST(RequestCheck, EveryRunHasAName) {
  v1::InferRequest request = Good();
  request.add_runs("");
  request.add_runs("r2");
  EXPECT_EQ(Words(CheckRequest(request)),
            "--from: name 2 of 3 is empty: remove the comma or name the run");
  request.clear_runs();
  EXPECT_EQ(CheckRequest(request).code(), absl::StatusCode::kInvalidArgument);
}

TEST(RequestCheck, ARunWithoutRecordsTeachesNothing) {
  RunView run;
  run.id = "r1";
  run.processes.resize(1);
  EXPECT_EQ(Words(CheckContent(run)), "run r1 has no records: name other runs");
  run.processes[0].next_batch = 1;
  EXPECT_TRUE(CheckContent(run).ok());
}

TEST(RequestCheck, RanksOfOneAttemptHaveOneWorld) {
  RunView run;
  run.id = "r1";
  run.processes.resize(2);
  for (int32_t rank : {0, 1}) {
    run.processes[rank].next_batch = 1;
    run.processes[rank].rank = rank;
    run.processes[rank].world = 2;
  }
  EXPECT_TRUE(CheckContent(run).ok());
  run.processes[1].world = 4;
  EXPECT_EQ(Words(CheckContent(run)),
            "the ranks of run r1 are of different worlds: rank 0 is one of 2, "
            "rank 1 one of 4; name other runs, or give each world a run of its "
            "own");
  // An attempt after a change of the world is another world by right.
  run.processes[1].attempt = 1;
  EXPECT_TRUE(CheckContent(run).ok());
}

}  // namespace
}  // namespace traincheck::server
