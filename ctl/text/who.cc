#include "ctl/text/who.h"

#include <limits.h>
#include <pwd.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/printable_text.h"

namespace traincheck::ctl {
namespace {

constexpr char kUsers[] = "/etc/passwd";

// Not by getpwuid: it loads modules of the system's libc, which this program,
// with a libc of its own, cannot use. Users of a directory (LDAP) have their
// name in LOGNAME.
std::string NameOf(uid_t uid) {
  const std::unique_ptr<FILE, int (*)(FILE*)> users(std::fopen(kUsers, "re"),
                                                    std::fclose);
  while (const passwd* user = users ? fgetpwent(users.get()) : nullptr) {
    if (user->pw_uid == uid) return user->pw_name;
  }
  const char* const name = std::getenv("LOGNAME");
  return name != nullptr && *name != '\0' ? name : absl::StrCat("uid ", uid);
}

}  // namespace

std::string UserAtHost() {
  char host[HOST_NAME_MAX + 1] = "";
  // The last byte stays 0: a name that is cut need not have an end.
  if (gethostname(host, sizeof host - 1) != 0) host[0] = '\0';
  return EscapeUnprintable(absl::StrCat(NameOf(geteuid()), "@", host));
}

}  // namespace traincheck::ctl
