#include "server/checking/check_summary.h"

#include <map>
#include <string>

namespace traincheck {
namespace {

using Reasons = google::protobuf::Map<std::string, uint32_t>;
using ApiReasons = google::protobuf::RepeatedPtrField<v1::UnknownReason>;

void ToApi(const Reasons& reasons, ApiReasons* api) {
  const std::map<std::string, uint32_t> sorted(reasons.begin(), reasons.end());
  for (const auto& [reason, invariants] : sorted) {
    v1::UnknownReason* added = api->Add();
    added->set_reason(reason);
    added->set_invariants(invariants);
  }
}

}  // namespace

stored::Check Summarise(const CheckSummary& summary) {
  stored::Check check;
  check.set_total(summary.total);
  check.set_decided(summary.decided);
  check.set_violated(summary.violated);
  check.set_not_applied(summary.not_applied);
  check.mutable_unknown()->insert(summary.unknown.begin(),
                                  summary.unknown.end());
  check.mutable_partly_unknown()->insert(summary.partly_unknown.begin(),
                                         summary.partly_unknown.end());
  return check;
}

v1::CheckProgress ToApi(const stored::Check& check) {
  v1::CheckProgress progress;
  progress.set_finished(check.finished());
  progress.set_total(check.total());
  progress.set_decided(check.decided());
  progress.set_violated(check.violated());
  progress.set_not_applied(check.not_applied());
  ToApi(check.unknown(), progress.mutable_unknown());
  ToApi(check.partly_unknown(), progress.mutable_partly_unknown());
  return progress;
}

}  // namespace traincheck
