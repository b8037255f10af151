#include "ctl/text/who.h"

#include <limits.h>
#include <pwd.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "base/printable_text.h"

namespace traincheck::ctl {

std::string UserAtHost() {
  const passwd* const user = getpwuid(geteuid());
  char host[HOST_NAME_MAX + 1] = "";
  if (gethostname(host, sizeof host - 1) != 0) host[0] = '\0';
  return EscapeUnprintable(absl::StrCat(
      user == nullptr ? absl::StrCat("uid ", geteuid()) : user->pw_name, "@",
      host));
}

}  // namespace traincheck::ctl
