#include "server/access/method_roles.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"

namespace traincheck::server {
namespace {

constexpr v1::Role kRelay = v1::ROLE_RELAY;
constexpr v1::Role kViewer = v1::ROLE_VIEWER;
constexpr v1::Role kOwner = v1::ROLE_OWNER;
constexpr v1::Role kAdmin = v1::ROLE_ADMIN;

// Viewers and owners get what belongs to their owner; the services see to that.
// What concerns everybody's runs is for administrators: rules that are disabled
// or silent, deployed sets, what speaks against a set in all runs.
constexpr MethodRole kMethods[] = {
    {"/traincheck.v1.Ingest/Stream", kRelay},

    {"/traincheck.v1.Control/GetStatus", kViewer},
    {"/traincheck.v1.Control/ListRuns", kViewer},
    {"/traincheck.v1.Control/GetRun", kViewer},
    {"/traincheck.v1.Control/DeleteRun", kOwner},
    {"/traincheck.v1.Control/KeepRun", kOwner},
    {"/traincheck.v1.Control/GetRunPlan", kViewer},
    {"/traincheck.v1.Control/ChangeRunPlan", kOwner},
    {"/traincheck.v1.Control/Backup", kAdmin},
    {"/traincheck.v1.Control/Infer", kOwner},
    {"/traincheck.v1.Control/StartInference", kOwner},
    {"/traincheck.v1.Control/ListJobs", kViewer},
    {"/traincheck.v1.Control/GetJob", kViewer},
    {"/traincheck.v1.Control/CancelJob", kOwner},
    {"/traincheck.v1.Control/CheckRun", kViewer},
    {"/traincheck.v1.Control/ListSets", kViewer},
    {"/traincheck.v1.Control/GetSet", kViewer},
    {"/traincheck.v1.Control/ImportSet", kOwner},
    {"/traincheck.v1.Control/GetSetInParts", kViewer},
    {"/traincheck.v1.Control/ImportSetInParts", kOwner},
    {"/traincheck.v1.Control/GetSetPlan", kViewer},
    {"/traincheck.v1.Control/DeleteSet", kOwner},
    {"/traincheck.v1.Control/DisableRule", kAdmin},
    {"/traincheck.v1.Control/EnableRule", kAdmin},
    {"/traincheck.v1.Control/ListDisabledRules", kViewer},
    {"/traincheck.v1.Control/DeploySets", kAdmin},
    {"/traincheck.v1.Control/ListDeployments", kViewer},
    {"/traincheck.v1.Control/GetSelection", kViewer},
    {"/traincheck.v1.Control/GetInvariant", kViewer},
    {"/traincheck.v1.Control/ListViolations", kViewer},
    {"/traincheck.v1.Control/GetViolation", kViewer},
    {"/traincheck.v1.Control/WatchViolations", kViewer},

    {"/traincheck.v1.Feedback/MarkViolation", kOwner},
    {"/traincheck.v1.Feedback/ListMarks", kViewer},
    {"/traincheck.v1.Feedback/AddSilence", kAdmin},
    {"/traincheck.v1.Feedback/RemoveSilence", kAdmin},
    {"/traincheck.v1.Feedback/ListSilences", kViewer},
    {"/traincheck.v1.Feedback/ReviewSet", kAdmin},
    {"/traincheck.v1.Feedback/GetRuleRecord", kViewer},
    {"/traincheck.v1.Feedback/GetAlertCalls", kViewer},

    {"/traincheck.v1.Comparison/CompareRuns", kViewer},
    {"/traincheck.v1.Zoom/ShowZoom", kViewer},

    {"/traincheck.v1.Access/CreateToken", kAdmin},
    {"/traincheck.v1.Access/ListTokens", kAdmin},
    {"/traincheck.v1.Access/RevokeToken", kAdmin},
};

bool Includes(v1::Role role, v1::Role needed) {
  switch (role) {
    case v1::ROLE_ADMIN:
      return true;
    case v1::ROLE_OWNER:
      return needed != v1::ROLE_ADMIN;
    default:
      // A relay's token reads nothing, and a viewer's writes nothing: neither
      // has what the other may.
      return role == needed;
  }
}

}  // namespace

std::span<const MethodRole> AllMethodRoles() { return kMethods; }

// As `traincheckctl token create` takes them.
std::string_view RoleName(v1::Role role) {
  switch (role) {
    case v1::ROLE_RELAY:
      return "relay";
    case v1::ROLE_VIEWER:
      return "viewer";
    case v1::ROLE_OWNER:
      return "owner";
    case v1::ROLE_ADMIN:
      return "admin";
    default:
      return "none";
  }
}

// The one place where a role is compared with a method, before any service sees
// the call (Gate::Process). A search through some forty entries is nothing
// beside a call.
absl::Status CheckRole(v1::Role role, std::string_view method) {
  const auto* const found = std::find_if(
      std::begin(kMethods), std::end(kMethods),
      [&](const MethodRole& entry) { return entry.method == method; });
  // Nobody may call what the table does not have, administrators included: a
  // new method without an entry is noticed at once.
  if (found == std::end(kMethods)) {
    return absl::UnimplementedError("this daemon does not have this method");
  }
  if (role != v1::ROLE_UNSPECIFIED && Includes(role, found->needs)) {
    return absl::OkStatus();
  }
  const std::string_view name = method.substr(method.rfind('/') + 1);
  return absl::PermissionDeniedError(
      absl::StrCat(std::string(name), " needs a token with the role ",
                   std::string(RoleName(found->needs)),
                   "; this one has the role ", std::string(RoleName(role))));
}

}  // namespace traincheck::server
