// A real daemon with rules that its trainings violate, for tests of what people
// say back and of whom it calls.
//
// Threads: one object, one thread.
#ifndef TRAINCHECK_SERVER_FEEDBACK_FOR_TESTING_H_
#define TRAINCHECK_SERVER_FEEDBACK_FOR_TESTING_H_

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "invariants/sets/invariant_for_testing.h"
#include "invariants/sets/set_json.h"
#include "proto/traincheck/v1/feedback.grpc.pb.h"
#include "server/daemon_for_testing.h"
#include "server/ingest/test_batches.h"

namespace traincheck::server {

class FeedbackTest : public testing::Test {
 protected:
  FeedbackTest()
      : folder_(testing::TempDir() + "/feedback-" +
                testing::UnitTest::GetInstance()->current_test_info()->name()),
        daemon_(folder_) {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }

  std::unique_ptr<v1::Feedback::Stub> Feedback() const {
    return v1::Feedback::NewStub(daemon_.Channel());
  }

  // "rules": one that a training violates in each step, and as many more as
  // asked for that it violates together with it; and one that it keeps.
  void SaveRules(int violated) {
    InvariantSet set;
    const auto call = [](const std::string& function) {
      return nlohmann::json{{"kind", "call"},
                            {"function", {{"name", function}}}};
    };
    const auto add = [&](const std::string& within) {
      nlohmann::json event = call(within);
      event["binding"] = "any";
      set.invariants.push_back(NewInvariant(
          "EventContain", {{"window", call("torch.optim.adam.Adam.step")},
                           {"event", std::move(event)}}));
    };
    for (int i = 0; i < violated; ++i) add("never.called" + std::to_string(i));
    v1::ImportSetRequest request;
    request.set_name("rules");
    request.set_json(ToJson(set).dump());
    v1::SetSummary summary;
    grpc::ClientContext context;
    const grpc::Status status =
        daemon_.Control()->ImportSet(&context, request, &summary);
    ASSERT_TRUE(status.ok()) << status.error_message();
  }

  // Reference runs are checked against what they ask for alone.
  static v1::Hello HelloOf(const std::string& run,
                           const std::string& experiment = "") {
    v1::Hello hello = MakeHello(run, 1);
    hello.set_check_set("rules");
    hello.set_role(v1::RUN_ROLE_TARGET);
    hello.set_experiment(experiment);
    return hello;
  }
  // A training that is checked to its end.
  void Train(const std::string& run, const std::string& experiment = "") {
    TestRelay relay(daemon_.Channel());
    relay.Greet(HelloOf(run, experiment));
    for (const v1::Batch& batch : TrainingBatches()) {
      ASSERT_TRUE(relay.Send(Request(batch)));
    }
    EXPECT_TRUE(relay.Leave(v1::END_KIND_CLEAN, {}).ok());
    ASSERT_TRUE(WaitUntil([&] { return IsChecked(run); }));
  }
  bool IsChecked(const std::string& run) {
    v1::GetRunRequest request;
    request.set_run(run);
    v1::Run shown;
    grpc::ClientContext context;
    return daemon_.Control()->GetRun(&context, request, &shown).ok() &&
           shown.check().finished();
  }
  void Delete(const std::string& run) {
    v1::DeleteRunRequest request;
    request.set_run(run);
    grpc::ClientContext context;
    v1::DeleteRunReply reply;
    const grpc::Status status =
        daemon_.Control()->DeleteRun(&context, request, &reply);
    ASSERT_TRUE(status.ok()) << status.error_message();
  }

  // Lead first.
  std::vector<v1::Violation> Violations(const std::string& run) {
    v1::ListViolationsRequest request;
    request.set_run(run);
    grpc::ClientContext context;
    const auto control = daemon_.Control();
    const auto reader = control->ListViolations(&context, request);
    std::vector<v1::Violation> all;
    v1::Violation violation;
    while (reader->Read(&violation)) all.push_back(violation);
    EXPECT_TRUE(reader->Finish().ok());
    std::stable_partition(all.begin(), all.end(), [](const v1::Violation& v) {
      return v.incident() == v.id();
    });
    return all;
  }
  v1::Violation Lead(const std::string& run) {
    const auto all = Violations(run);
    EXPECT_THAT(all, testing::Not(testing::IsEmpty()));
    return all.empty() ? v1::Violation() : all[0];
  }

  grpc::Status Mark(const std::string& id, const std::string& mark,
                    bool only = false, v1::MarkViolationReply* out = nullptr) {
    v1::MarkViolationRequest request;
    request.set_violation(id);
    request.set_mark(mark);
    request.set_only(only);
    if (mark != "none") request.set_comment("looked at it");
    request.set_by("alice@node7");
    grpc::ClientContext context;
    v1::MarkViolationReply reply;
    const grpc::Status status =
        Feedback()->MarkViolation(&context, request, &reply);
    if (out != nullptr) *out = reply;
    return status;
  }
  // Mark by violation, of all runs; "": none.
  std::vector<std::string> MarksOf(const std::string& run) {
    std::vector<std::string> marks;
    for (const v1::Violation& v : Violations(run)) marks.push_back(v.mark());
    return marks;
  }

  // Its id, or why it was refused.
  std::string Silence(v1::Silence silence) {
    if (silence.comment().empty()) silence.set_comment("known");
    grpc::ClientContext context;
    v1::Silence added;
    const grpc::Status status =
        Feedback()->AddSilence(&context, silence, &added);
    return status.ok() ? added.id() : status.error_message();
  }
  std::string SilenceRule(const std::string& rule, uint64_t until = 0) {
    v1::Silence silence;
    silence.set_rule(rule);
    silence.set_until_unix_ns(until);
    return Silence(silence);
  }
  bool Unsilence(const std::string& id) {
    v1::RemoveSilenceRequest request;
    request.set_id(id);
    grpc::ClientContext context;
    v1::Silence was;
    return Feedback()->RemoveSilence(&context, request, &was).ok();
  }

  const std::string folder_;
  DaemonProcess daemon_;
};

}  // namespace traincheck::server

#endif  // TRAINCHECK_SERVER_FEEDBACK_FOR_TESTING_H_
