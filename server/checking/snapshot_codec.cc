#include "server/checking/snapshot_codec.h"

#include <memory>

#include "server/store/payload.h"
#include "zstd.h"

namespace traincheck::server {
namespace {

// Fast: digests do not compress, names do at any level.
constexpr int kLevel = 1;

struct FreeContext {
  void operator()(ZSTD_CCtx* context) const { ZSTD_freeCCtx(context); }
};

}  // namespace

void PackChecker(const std::string& state, stored::CheckSnapshot* snapshot) {
  // Without a state the snapshot does not fit, and the check begins at its
  // first batch.
  if (state.size() > kMaxSnapshotBytes) return;
  std::string* packed = snapshot->mutable_checker();
  packed->resize(ZSTD_compressBound(state.size()));
  const std::unique_ptr<ZSTD_CCtx, FreeContext> context(ZSTD_createCCtx());
  ZSTD_CCtx_setParameter(context.get(), ZSTD_c_compressionLevel, kLevel);
  // DecompressUntrusted asks for it: damage on disk must not pass for a state.
  ZSTD_CCtx_setParameter(context.get(), ZSTD_c_checksumFlag, 1);
  const size_t size =
      ZSTD_compress2(context.get(), packed->data(), packed->size(),
                     state.data(), state.size());
  packed->resize(ZSTD_isError(size) ? 0 : size);
  snapshot->set_plain_bytes(state.size());
}

absl::StatusOr<std::string> UnpackCheckerUntrusted(
    const stored::CheckSnapshot& snapshot) {
  if (snapshot.checker().empty() ||
      snapshot.plain_bytes() > kMaxSnapshotBytes) {
    return absl::DataLossError("it holds no state");
  }
  return DecompressUntrusted(snapshot.checker(), snapshot.plain_bytes());
}

}  // namespace traincheck::server
