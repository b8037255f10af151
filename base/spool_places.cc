#include "base/spool_places.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace traincheck {
namespace {

using Kind = SpoolPlace::Kind;

std::string Value(const GetVariable& get, const char* name) {
  const char* const value = get(name);
  return value == nullptr ? "" : value;
}

// `below` names the user: a temporary folder is everybody's.
void AddTemporary(const std::string& folder, uint32_t uid,
                  std::vector<SpoolPlace>* places) {
  // A relative path would mean another folder for each training.
  if (folder.empty() || folder[0] != '/') return;
  places->push_back(
      {Kind::kTemporary, folder, absl::StrCat("traincheck-", uid, "/spool")});
}

}  // namespace

std::vector<SpoolPlace> SpoolPlacesIn(const std::string& folder, uint32_t uid) {
  return {{Kind::kNamed, folder, absl::StrCat(uid)}};
}

// The order of docs/decisions.md: the setting, folders of the node, at last the
// home, which nodes may share.
std::vector<SpoolPlace> SpoolPlaces(const GetVariable& get, uint32_t uid) {
  std::vector<SpoolPlace> places;
  const std::string named = Value(get, "TRAINCHECK_SPOOL_DIR");
  if (!named.empty()) places = SpoolPlacesIn(named, uid);
  AddTemporary(Value(get, "SLURM_TMPDIR"), uid, &places);
  AddTemporary(Value(get, "TMPDIR"), uid, &places);
  AddTemporary("/tmp", uid, &places);
  std::string state = Value(get, "XDG_STATE_HOME");
  // Users of containers often have no home.
  const std::string home = Value(get, "HOME");
  if (state.empty() && !home.empty()) state = home + "/.local/state";
  if (!state.empty()) {
    places.push_back({Kind::kState, state + "/traincheck", "spool"});
  }
  return places;
}

// Also the folders of earlier versions, whose files are still to be delivered.
std::vector<std::string> SpoolFolders(const std::vector<SpoolPlace>& places) {
  std::vector<std::string> folders;
  const auto add = [&folders](const std::string& folder) {
    if (std::find(folders.begin(), folders.end(), folder) == folders.end()) {
      folders.push_back(folder);
    }
  };
  for (const SpoolPlace& place : places) {
    const std::string below = absl::StrCat(place.folder, "/", place.below);
    add(below);
    // Where nobody else may write to it, files lie in the named folder itself.
    if (place.kind == Kind::kNamed) add(place.folder);
    // Earlier versions spooled into /tmp/traincheck-UID itself.
    if (place.kind == Kind::kTemporary) add(below.substr(0, below.rfind('/')));
  }
  return folders;
}

}  // namespace traincheck
