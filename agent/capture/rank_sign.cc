#include "agent/capture/rank_sign.h"

#include <linux/memfd.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace traincheck::agent {
namespace {

constexpr char kSign[] = "traincheck-rank:";
constexpr size_t kSignBytes = 4096;
// Shells and launchers may stand between a rank and what it starts.
constexpr int kMaxDepth = 32;

// The mapping of this process's sign; null: none is up.
void* g_sign = nullptr;

// Reads the last sign in the maps of `pid`, since a forked child may carry its
// parent's sign beside its own.
std::optional<RankSign> SignOf(const System& system, uint32_t pid) {
  const std::string maps = system.proc_file(pid, "maps");
  const size_t at = maps.rfind(std::string("/memfd:") + kSign);
  if (at == std::string::npos) return std::nullopt;
  const size_t place = maps.find(kSign, at) + sizeof kSign - 1;
  // A place has no colon, so the first one ends it.
  const size_t run = maps.find(':', place);
  const size_t end = maps.find_first_of(" \n", place);
  if (run == std::string::npos || run >= end) return std::nullopt;
  return RankSign{pid, maps.substr(place, run - place),
                  maps.substr(run + 1, end - run - 1)};
}

// What the environment says of this process, in the form of a sign's place.
std::string OwnPlace(const System& system) {
  return system.environment("RANK") + "/" + system.environment("WORLD_SIZE");
}

}  // namespace

// Called again when the process group gives another place or the ranks agree on
// a name.
void PutUpRankSign(const std::string& place, const std::string& run) {
  if (g_sign != nullptr) munmap(g_sign, kSignBytes);
  g_sign = nullptr;
  const std::string name = kSign + place + ":" + run;
  const int fd =
      static_cast<int>(syscall(SYS_memfd_create, name.c_str(), MFD_CLOEXEC));
  if (fd < 0) return;
  // Never touched: the mapping needs no content, and no page.
  void* sign = mmap(nullptr, kSignBytes, PROT_READ, MAP_SHARED, fd, 0);
  if (sign != MAP_FAILED) g_sign = sign;
  // The mapping keeps the file, and with it the name in /proc.
  close(fd);
}

std::optional<RankSign> RankAbove(const System& system) {
  const bool spawned = SpawnedByMultiprocessing(system, system.pid);
  const bool has_rank = !system.environment("RANK").empty();
  if (!spawned && !has_rank) return std::nullopt;
  uint32_t pid = ReadStat(system, system.pid).parent;
  // Upwards from the parent. The bound ends a loop in what /proc says.
  for (int depth = 0; depth < kMaxDepth && pid > 1; ++depth) {
    if (auto sign = SignOf(system, pid)) {
      // The nearest sign alone counts: a process with another place is of a
      // training that was started within that rank.
      const bool mine = spawned || sign->place == OwnPlace(system);
      return mine ? sign : std::nullopt;
    }
    pid = ReadStat(system, pid).parent;
  }
  return std::nullopt;
}

bool InheritsRank(const System& system) {
  const auto above = RankAbove(system);
  return above.has_value() && above->place == OwnPlace(system);
}

}  // namespace traincheck::agent
