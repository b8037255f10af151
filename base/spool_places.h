// Where a user's relays keep records while the daemon is away, in the order in
// which they are tried. On the node itself where it can be: a folder that many
// nodes share would be one spool for the whole job.
//
// Threads: all functions are pure over the environment that is passed in.
#ifndef TRAINCHECK_BASE_SPOOL_PLACES_H_
#define TRAINCHECK_BASE_SPOOL_PLACES_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace traincheck {

struct SpoolPlace {
  enum class Kind {
    kNamed,      // by TRAINCHECK_SPOOL_DIR: made if it is missing
    kTemporary,  // there already, and perhaps open to everybody
    kState,      // of this user, perhaps on all nodes: made if it is missing
  };
  Kind kind = Kind::kNamed;
  std::string folder;
  // In `folder`: folders that are this user's alone. Those of kNamed are used
  // only where others may write to `folder`.
  std::string below;
};

// Value of an environment variable; nullptr: not set.
using GetVariable = std::function<const char*(const char*)>;

// The setting's, $SLURM_TMPDIR, $TMPDIR, /tmp, and last the state folder, where
// earlier versions spooled: whoever has taken the name in /tmp ends no spool.
std::vector<SpoolPlace> SpoolPlaces(const GetVariable& get, uint32_t uid);
// One folder, as if the setting named it.
std::vector<SpoolPlace> SpoolPlacesIn(const std::string& folder, uint32_t uid);

// All folders in which spool files of this user may lie: those of the places,
// and those of earlier versions.
std::vector<std::string> SpoolFolders(const std::vector<SpoolPlace>& places);

}  // namespace traincheck

#endif  // TRAINCHECK_BASE_SPOOL_PLACES_H_
