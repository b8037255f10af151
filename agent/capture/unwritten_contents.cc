#include "agent/capture/unwritten_contents.h"

#include "agent/capture/fork_page.h"

namespace traincheck::agent {
namespace {

// A smaller one is read in the time that the looks take.
constexpr uint64_t kMinBytes = 128u << 10;

// The same memory with the same count of writes.
bool IsSamePlace(const UnwrittenContents::Look& a,
                 const UnwrittenContents::Look& b) {
  return a.data == b.data && a.bytes == b.bytes && a.version == b.version;
}

}  // namespace

UnwrittenContents& UnwrittenContents::Get() {
  static constinit UnwrittenContents* contents = nullptr;
  if (contents == nullptr || contents->generation_ != g_generation) {
    // The parent's is left alone: another thread may have been in it.
    contents = new UnwrittenContents(g_generation);
  }
  return *contents;
}

// Taken before the content is read: a write during the read then shows as a
// difference at the next look.
std::optional<UnwrittenContents::Look> UnwrittenContents::LookAt(
    PyObject* tensor, const TensorView& view) {
  if (view.bytes() < kMinBytes) return std::nullopt;
  const std::optional<uint64_t> version = VersionOf(tensor);
  if (!version) return std::nullopt;
  const std::optional<ContentSample> sample = view.Sample();
  if (!sample) return std::nullopt;
  return Look{view.data(), view.bytes(), *version, *sample};
}

UnwrittenContents::Known& UnwrittenContents::Of(uint32_t variable,
                                                StateContent of) {
  return known_[uint64_t{variable} << 8 | of];
}

// All conditions of the header, the cheap ones first. A digest that is returned
// here is recorded with the flag that says so.
std::optional<ContentDigest> UnwrittenContents::Unwritten(uint32_t variable,
                                                          StateContent of,
                                                          const Look& look) {
  Known& known = Of(variable, of);
  if (known.deceives || known.truths < kProbation) return std::nullopt;
  if (known.left_out >= kMostLeftOut) return std::nullopt;
  if (!IsSamePlace(known.look, look)) return std::nullopt;
  if (!look.sample.is_dense || known.look.sample.hash != look.sample.hash) {
    return std::nullopt;
  }
  ++known.left_out;
  return known.digest;
}

// Called with each digest that was really computed.
void UnwrittenContents::Digested(uint32_t variable, StateContent of,
                                 StatePoint point, const Look& look,
                                 const ContentDigest& digest) {
  Known& known = Of(variable, of);
  if (PrecedesWrites(point)) {
    // It was read, which ends the row of those that were not.
    known.left_out = 0;
    // By the counter nobody has written it, and the digest shows whether that
    // is so. One lie is enough for good.
    if (IsSamePlace(known.look, look)) {
      if (known.digest.digest == digest.digest) {
        ++known.truths;
      } else {
        known.deceives = true;
      }
    }
  }
  // Kept at every point: what a write has left is what the next point before a
  // write is compared with.
  known.look = look;
  known.digest = digest;
}

}  // namespace traincheck::agent
