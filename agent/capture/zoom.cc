#include "agent/capture/zoom.h"

#include <algorithm>

#include "agent/capture/model_definitions.h"

namespace traincheck::agent {
namespace {

// Variables are found by the hash of their name, since plans name them and
// numbers differ between ranks. They are few, so a search in order is the
// fastest. If two have the same hash, both are recorded, which costs time and
// nothing else.
std::vector<uint32_t>& Hashes() {
  static auto* hashes = new std::vector<uint32_t>;
  return *hashes;
}

}  // namespace

void ZoomInOn(const std::vector<std::string>& variables) {
  std::vector<uint32_t>& hashes = Hashes();
  hashes.clear();
  for (const std::string& name : variables) {
    hashes.push_back(VariableNameHash(name));
  }
}

bool IsZoomedInOn(uint32_t variable) {
  const std::vector<uint32_t>& hashes = Hashes();
  return !hashes.empty() && std::find(hashes.begin(), hashes.end(),
                                      VariableHash(variable)) != hashes.end();
}

}  // namespace traincheck::agent
