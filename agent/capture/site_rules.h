// Which source files are the user's? Not torch, not the standard library, not
// installed packages, not what is built into the interpreter or into us.
//
// Threads: one object, one thread.
#ifndef TRAINCHECK_AGENT_CAPTURE_SITE_RULES_H_
#define TRAINCHECK_AGENT_CAPTURE_SITE_RULES_H_

#include <string>
#include <string_view>
#include <vector>

namespace traincheck::agent {

class SiteRules {
 public:
  // Everything below `folder` is library code.
  void AddLibraryFolder(std::string_view folder);

  // `file` as code objects name it: a path, or "<string>" and the like.
  bool IsUserFile(std::string_view file) const;

 private:
  std::vector<std::string> folders_;  // each ends in '/'
};

}  // namespace traincheck::agent

#endif  // TRAINCHECK_AGENT_CAPTURE_SITE_RULES_H_
