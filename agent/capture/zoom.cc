#include "agent/capture/zoom.h"

#include <algorithm>

#include "agent/capture/model_definitions.h"

namespace traincheck::agent {
namespace {

// Few, so that a search in order is the fastest. Two variables of one hash are
// both recorded, which costs time and nothing else.
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
