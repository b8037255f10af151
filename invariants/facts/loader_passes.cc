#include "invariants/facts/loader_passes.h"

#include <algorithm>

#include "base/whole_part.h"
#include "invariants/trace/call_contexts.h"

namespace traincheck {

namespace {

// Indices that are drawn while an iterator is made are of its pass, whose mark
// comes after.
bool IsAhead(const StateEvent& event) {
  return event.call && event.call->function &&
         event.call->function->category.text() == "loader_iter";
}

}  // namespace

void LoaderPasses::Indices::Add(uint64_t batch, uint64_t prefix) {
  // Later batches would only make passes of different lengths look different.
  if (batches >= prefix) return;
  ++batches;
  // A multiplication by an odd number can be undone, so that no batch is lost
  // in the digest; after it the order of the batches matters.
  digest = (digest ^ batch) * 0x9e3779b97f4a7c15;
}

std::optional<uint64_t> LoaderPasses::Indices::Digest(uint64_t prefix) const {
  if (!whole || batches < prefix) return std::nullopt;
  return digest;
}

void LoaderPasses::Begin(Loader* loader, uint64_t ordinal) {
  loader->consumed = loader->passes > 0 ? loader->exhausted : Tri::kUnknown;
  loader->exhausted = Tri::kNo;
  // A pass that was left before its prefix was complete has no digest, and the
  // next pass then nothing to be compared with.
  loader->prefix_before = loader->indices.Digest(loader->prefix);
  // What was drawn while the iterator was made belongs to the pass that begins
  // now.
  loader->indices = loader->early;
  loader->indices.whole &= inputs().recorded.whole();
  loader->early = Indices();
  loader->ordinal = ordinal;
  loader->fetched = loader->compared_at = 0;
  loader->trains_now = false;
  ++loader->passes;
}

void LoaderPasses::Fetched(Loader* loader, uint64_t batches) {
  loader->fetched = batches;
  // Only a pass that is trained with is compared, and once: see IsCompared.
  const bool whole = batches >= loader->prefix && loader->trains_now;
  if (whole && loader->compared_at == 0) loader->compared_at = batches;
}

// The loader that was last read on this thread feeds the backward.
void LoaderPasses::OnCallBegin(const Call& call) {
  if (!HasCategory(call, CallCategory::kBackward)) return;
  if (!call.Is(kOutermost)) return;
  const auto current = current_.find(call.ring);
  if (current == current_.end()) return;
  Loader& loader = At(current->second);
  loader.trains = loader.trains_now = true;
}

void LoaderPasses::OnMark(const MarkEvent& mark) {
  const bool whole = inputs().recorded.whole();
  switch (mark.kind) {
    case MarkKind::kIteratorCreated:
      current_[mark.ring] = mark.object;
      return Begin(&At(mark.object), mark.value);
    case MarkKind::kBatchFetched:
      current_[mark.ring] = mark.object;
      return Fetched(&At(mark.object), mark.value + 1);
    case MarkKind::kIteratorExhausted: {
      Loader& loader = At(mark.object);
      // An older iterator of this loader may end later than a newer one began.
      // It says nothing of the pass that goes on.
      if (loader.ordinal == mark.value) loader.exhausted = Tri::kYes;
      return;
    }
    case MarkKind::kCaptureMode:
      for (auto& [id, loader] : loaders_) {
        loader.early.whole &= whole;
        // A prefix that is complete does not suffer from what is left out
        // behind it.
        if (loader.indices.batches < loader.prefix) {
          loader.indices.whole &= whole;
        }
      }
      return;
    default:
      return;
  }
}

void LoaderPasses::OnScalar(const ScalarEvent& event) {
  // What the agent records of a sampler at a fetch: whether it shuffles, and
  // how many indices are in a batch.
  if (event.point != StatePoint::kFetch) return;
  Loader& loader = At(event.object);
  if (*event.name == "shuffles") loader.random = ToTri(event.value != 0);
  // Said behind the first batch of a pass: how many are in one. Settled before
  // anything else is added: digests over different numbers of batches cannot be
  // compared.
  const bool first = loader.passes <= 1 && std::max(loader.indices.batches,
                                                    loader.early.batches) == 1;
  if (*event.name != "indices" || !first) return;
  const int64_t said = WholePart(event.value).value_or(0);
  if (said < 1) return;
  // As many batches as have kIndices indices together. The last one may be the
  // last of its pass, and shorter: it counts as one index.
  const uint64_t count = std::min<uint64_t>(said, kIndices);
  loader.prefix = count == kIndices ? 1 : 1 + (kIndices - 2 + count) / count;
}

void LoaderPasses::OnState(const StateEvent& event) {
  if (event.variable->kind != VariableKind::kLoaderState) return;
  if (event.point != StatePoint::kFetch || !event.Has(kHasData)) return;
  Loader& loader = At(event.variable->root);
  Indices& indices = IsAhead(event) ? loader.early : loader.indices;
  indices.Add(event.data, loader.prefix);
}

void LoaderPasses::OnGap() {
  gap_ = true;
  // An iterator may have been made unseen: which loader feeds the next backward
  // is not known until a batch is fetched.
  current_.clear();
  for (auto& [id, loader] : loaders_) {
    loader.exhausted = Tri::kUnknown;
    loader.consumed = Tri::kUnknown;
    // What was seen of it once (trains, prefix) stays true.
    loader.early.whole = loader.indices.whole = false;
    loader.prefix_before.reset();
  }
}

LoaderPasses::Loader& LoaderPasses::At(uint32_t loader) {
  const auto [found, is_new] = loaders_.try_emplace(loader);
  if (is_new) {
    // The begin of a loader that is new behind a gap may be missing.
    found->second.early.whole = found->second.indices.whole = !gap_;
  }
  return found->second;
}

const LoaderPasses::Loader* LoaderPasses::Find(uint32_t loader) const {
  const auto found = loaders_.find(loader);
  return found == loaders_.end() ? nullptr : &found->second;
}

uint32_t LoaderPasses::LoaderOn(uint32_t ring) const {
  const auto current = current_.find(ring);
  return current == current_.end() ? 0 : current->second;
}

uint64_t LoaderPasses::Passes(uint32_t loader) const {
  const Loader* found = Find(loader);
  return found ? found->passes : 0;
}

uint64_t LoaderPasses::Prefix(uint32_t loader) const {
  const Loader* found = Find(loader);
  return found ? found->prefix : kIndices;
}

bool LoaderPasses::IsCompared(uint32_t loader) const {
  const Loader* found = Find(loader);
  return found && found->fetched > 0 && found->fetched == found->compared_at;
}

Tri LoaderPasses::Trains(uint32_t loader) const {
  const Loader* found = Find(loader);
  // That it trains was seen; that it does not is known only without gaps.
  if (found && found->trains) return Tri::kYes;
  return found && !gap_ ? Tri::kNo : Tri::kUnknown;
}

Tri LoaderPasses::Consumed(uint32_t loader) const {
  const Loader* found = Find(loader);
  return found ? found->consumed : Tri::kUnknown;
}

Tri LoaderPasses::Shuffles(uint32_t loader) const {
  const Loader* found = Find(loader);
  if (!found || !found->prefix_before) return Tri::kUnknown;
  const auto prefix = found->indices.Digest(found->prefix);
  if (!prefix) return Tri::kUnknown;
  return ToTri(*prefix != *found->prefix_before);
}

Tri LoaderPasses::DrawsAtRandom(uint32_t loader) const {
  const Loader* found = Find(loader);
  return found ? found->random : Tri::kUnknown;
}

std::optional<uint64_t> LoaderPasses::PrefixDigest(uint32_t loader) const {
  const Loader* found = Find(loader);
  return found ? found->indices.Digest(found->prefix) : std::nullopt;
}

void LoaderPasses::Fields(Archive& archive) {
  archive(loaders_, current_, gap_);
}

void LoaderPasses::Indices::Fields(Archive& archive) {
  archive(batches, digest, whole);
}

void LoaderPasses::Loader::Fields(Archive& archive) {
  archive(passes, ordinal, fetched, compared_at, exhausted, consumed, trains,
          trains_now, random, prefix, early, indices, prefix_before);
}

}  // namespace traincheck
