#include "agent/capture/site_rules.h"

#include <algorithm>

namespace traincheck::agent {

void SiteRules::AddLibraryFolder(std::string_view folder) {
  // A prefix of every path: no code would be the user's.
  if (folder.empty() || folder == "/") return;
  std::string with_slash(folder);
  // Without the slash, /opt/lib would cover /opt/library, too.
  if (with_slash.back() != '/') with_slash += '/';
  folders_.push_back(std::move(with_slash));
}

// Called once for each code object. A path that belongs to nobody ("<stdin>", a
// cell of a notebook) is the user's.
bool SiteRules::IsUserFile(std::string_view file) const {
  // Modules that are built into the interpreter, our hooks, and NumPy's
  // dispatcher.
  if (file.starts_with("<frozen ") || file.starts_with("<traincheck/") ||
      file.starts_with("<__array_function__") ||
      file.find("/site-packages/") != std::string_view::npos ||
      file.find("/dist-packages/") != std::string_view::npos) {
    return false;
  }
  return std::none_of(
      folders_.begin(), folders_.end(),
      [file](const std::string& folder) { return file.starts_with(folder); });
}

}  // namespace traincheck::agent
