// The services for clients as plain calls: the one file of traincheckctl,
// besides delivery.h, that speaks gRPC. Statuses keep the server's code and
// message; Unavailable means that nobody answered in time.
//
// Threads: all methods may be called from any thread.
#ifndef TRAINCHECK_CTL_CLIENT_H_
#define TRAINCHECK_CTL_CLIENT_H_

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/traincheck/v1/access.pb.h"
#include "proto/traincheck/v1/compare.pb.h"
#include "proto/traincheck/v1/control.pb.h"
#include "proto/traincheck/v1/feedback.pb.h"
#include "proto/traincheck/v1/zoom.pb.h"

namespace traincheck::ctl {

class Client {
 public:
  // How long a single answer may take.
  static constexpr std::chrono::milliseconds kAnswerTimeout{10'000};

  // Connects with the first call. Fails for an address that base/credentials
  // refuses.
  static absl::StatusOr<std::unique_ptr<Client>> Make(
      const std::string& address,
      std::chrono::milliseconds answer_timeout = kAnswerTimeout);
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  absl::StatusOr<v1::ServerStatus> GetStatus();
  // Without their processes.
  absl::StatusOr<std::vector<v1::Run>> ListRuns(v1::ListRunsRequest request);
  absl::StatusOr<std::vector<v1::Run>> ListRunsByPrefix(const std::string& id);
  absl::StatusOr<v1::Run> GetRun(const std::string& run);
  absl::StatusOr<v1::DeleteRunReply> DeleteRun(const std::string& run);
  absl::StatusOr<v1::Run> KeepRun(const std::string& run, bool keep);
  absl::StatusOr<v1::RunPlan> GetRunPlan(const std::string& run);
  absl::StatusOr<v1::RunPlan> ChangeRunPlan(const std::string& run,
                                            const std::string& json);
  // Without a time limit: copying to another disk takes as long as it takes.
  absl::StatusOr<v1::BackupReply> Backup(const std::string& folder);
  absl::StatusOr<std::vector<v1::SetSummary>> ListSets();
  // NAME, or NAME@VERSION for an older one.
  absl::StatusOr<v1::SetDetail> GetSet(const std::string& name);
  absl::StatusOr<v1::SetPlan> GetSetPlan(const std::string& name);
  absl::StatusOr<v1::SetSummary> ImportSet(const std::string& name,
                                           const std::string& json);
  // NAME, or NAME@VERSION for that version alone.
  absl::StatusOr<v1::DeleteSetReply> DeleteSet(const std::string& set);
  absl::StatusOr<v1::DisabledRule> DisableRule(const std::string& id,
                                               const std::string& reason);
  absl::StatusOr<v1::DisabledRule> EnableRule(const std::string& id);
  absl::StatusOr<std::vector<v1::DisabledRule>> ListDisabledRules();
  absl::StatusOr<v1::Deployment> DeploySets(
      const std::string& experiment, const std::vector<std::string>& sets);
  absl::StatusOr<std::vector<v1::Deployment>> ListDeployments();
  // What a run of the experiment that asks for `asked` is checked against.
  absl::StatusOr<std::string> GetSelection(const std::string& experiment,
                                           const std::string& asked);
  absl::StatusOr<v1::Invariant> GetInvariant(const std::string& id);
  // Empty run: of all runs.
  absl::StatusOr<std::vector<v1::Violation>> ListViolations(
      const std::string& run);
  absl::StatusOr<v1::Violation> GetViolation(const std::string& id);

  absl::StatusOr<v1::MarkViolationReply> MarkViolation(
      const v1::MarkViolationRequest& request);
  absl::StatusOr<std::vector<v1::Mark>> ListMarks(const std::string& run);
  absl::StatusOr<v1::Silence> AddSilence(const v1::Silence& silence);
  absl::StatusOr<v1::Silence> RemoveSilence(const std::string& id);
  absl::StatusOr<std::vector<v1::Silence>> ListSilences();
  // Empty set: of all rules.
  absl::StatusOr<v1::SetReview> ReviewSet(const std::string& set);
  absl::StatusOr<v1::RuleRecord> GetRuleRecord(const std::string& violation);
  absl::StatusOr<v1::AlertCalls> GetAlertCalls();

  absl::StatusOr<v1::CreateTokenReply> CreateToken(
      const v1::CreateTokenRequest& request);
  absl::StatusOr<std::vector<v1::Token>> ListTokens();
  absl::StatusOr<v1::Token> RevokeToken(const std::string& id);

  absl::StatusOr<v1::Job> StartInference(const v1::InferRequest& request);
  absl::StatusOr<std::vector<v1::Job>> ListJobs();
  absl::StatusOr<v1::Job> GetJob(const std::string& id);
  absl::StatusOr<v1::Job> CancelJob(const std::string& id);

  // Without a time limit; on_progress is told the part that is done.
  absl::StatusOr<v1::CheckResult> CheckRun(
      const v1::CheckRunRequest& request,
      const std::function<void(double)>& on_progress);

  // Likewise.
  absl::StatusOr<v1::CompareRunsResult> CompareRuns(
      const v1::CompareRunsRequest& request,
      const std::function<void(double)>& on_progress);

  // What the zoom on the violation's incident has shown; of an older server
  // none. Without a time limit.
  absl::StatusOr<v1::ZoomReport> ShowZoom(const std::string& violation);

  // Without a time limit; on_progress sees every message but the result.
  absl::StatusOr<v1::InferResult> Infer(
      const v1::InferRequest& request,
      const std::function<void(const v1::InferProgress&)>& on_progress);

 private:
  friend class ViolationStream;
  struct Impl;
  explicit Client(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// One WatchViolations call. The client must outlive it.
class ViolationStream {
 public:
  // Empty run: of all runs.
  ViolationStream(Client* client, const std::string& run);
  ~ViolationStream();
  ViolationStream(const ViolationStream&) = delete;
  ViolationStream& operator=(const ViolationStream&) = delete;

  // Calls on_violation until the stream ends: OK if the server has no more to
  // send, Cancelled after Cancel. Call once.
  absl::Status Read(
      const std::function<void(const v1::Violation&)>& on_violation);

  // From any thread; Read returns soon.
  void Cancel();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace traincheck::ctl

#endif  // TRAINCHECK_CTL_CLIENT_H_
