#include "tests/clocks/rings.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>

namespace traincheck {

StoredBatch ReadRings(const std::string& folder, const std::string& pid) {
  std::map<uint32_t, std::string> rings;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (name.rfind(pid + ".", 0) != 0 || name.find(".json") != name.npos) {
      continue;
    }
    std::ifstream file(entry.path(), std::ios::binary);
    rings[static_cast<uint32_t>(std::stoul(name.substr(pid.size() + 1)))] =
        std::string(std::istreambuf_iterator<char>(file), {});
  }
  StoredBatch batch;
  for (const auto& [ring, bytes] : rings) {
    batch.slices.push_back({ring, 0, bytes.size(), 0});
    batch.plain += bytes;
  }
  return batch;
}

}  // namespace traincheck
