// What each method of each service needs: the one table. A method that is not
// in it can be called by nobody.
//
// Threads: pure functions.
#ifndef TRAINCHECK_SERVER_ACCESS_METHOD_ROLES_H_
#define TRAINCHECK_SERVER_ACCESS_METHOD_ROLES_H_

#include <span>
#include <string_view>

#include "absl/status/status.h"
#include "proto/traincheck/v1/access.pb.h"

namespace traincheck::server {

struct MethodRole {
  std::string_view method;  // "/traincheck.v1.Control/GetStatus"
  v1::Role needs;
};
std::span<const MethodRole> AllMethodRoles();

// OK, or PermissionDenied naming both roles. An owner may do what a relay and
// what a viewer may, an administrator everything.
[[nodiscard]] absl::Status CheckRole(v1::Role role, std::string_view method);

// "relay", "viewer", "owner", "admin".
std::string_view RoleName(v1::Role role);

}  // namespace traincheck::server

#endif  // TRAINCHECK_SERVER_ACCESS_METHOD_ROLES_H_
