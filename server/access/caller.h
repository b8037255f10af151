// Who makes a call, and what that lets them see and change.
//
// Threads: plain value.
#ifndef TRAINCHECK_SERVER_ACCESS_CALLER_H_
#define TRAINCHECK_SERVER_ACCESS_CALLER_H_

#include <string>

#include "proto/traincheck/v1/access.pb.h"

namespace traincheck::server {

struct Caller {
  // UNSPECIFIED: nobody, who sees nothing.
  v1::Role role = v1::ROLE_UNSPECIFIED;
  // Empty of administrators, and of what belongs to them. Nobody's is not a
  // name that a token can have.
  std::string owner = "(nobody)";
  // Id of its token; empty where the socket says who it is.
  std::string token;

  bool is_admin() const { return role == v1::ROLE_ADMIN; }
  // May it know of what belongs to `owner`, or change it if its role lets it?
  bool Sees(const std::string& whose) const {
    return is_admin() || (role != v1::ROLE_UNSPECIFIED && owner == whose);
  }
};

}  // namespace traincheck::server

#endif  // TRAINCHECK_SERVER_ACCESS_CALLER_H_
