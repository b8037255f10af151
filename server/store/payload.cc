#include "server/store/payload.h"

#include <memory>

#include "absl/strings/str_cat.h"
#include "zstd.h"

namespace traincheck::server {
namespace {

// Bit 2 of the byte after the magic number, by the zstd frame format.
constexpr size_t kDescriptorOffset = 4;
constexpr uint8_t kChecksumFlag = 1 << 2;

struct FreeContext {
  void operator()(ZSTD_DCtx* context) const { ZSTD_freeDCtx(context); }
};

ZSTD_DCtx* Context() {
  // A context has buffers that would otherwise be made anew for each batch.
  thread_local const std::unique_ptr<ZSTD_DCtx, FreeContext> context(
      ZSTD_createDCtx());
  return context.get();
}

}  // namespace

absl::StatusOr<std::string> DecompressUntrusted(std::string_view payload,
                                                uint32_t plain_bytes) {
  const size_t frame =
      ZSTD_findFrameCompressedSize(payload.data(), payload.size());
  if (ZSTD_isError(frame)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "payload is not a zstd frame: ", ZSTD_getErrorName(frame)));
  }
  // ZSTD_decompressDCtx takes one frame after the other; a payload has one.
  if (frame != payload.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("payload has ", payload.size() - frame,
                     " bytes behind its zstd frame"));
  }
  // With it, zstd finds what was damaged on the way or on disk. The byte is
  // there: a frame that was measured has its whole header.
  if ((static_cast<uint8_t>(payload[kDescriptorOffset]) & kChecksumFlag) == 0) {
    return absl::InvalidArgumentError(
        "payload is a zstd frame without content checksum");
  }
  // The size is the one that the sender said and that was held against a limit,
  // never the one in the header of the frame.
  std::string plain(plain_bytes, '\0');
  const size_t size = ZSTD_decompressDCtx(Context(), plain.data(), plain.size(),
                                          payload.data(), payload.size());
  if (ZSTD_isError(size)) {
    return absl::InvalidArgumentError(
        absl::StrCat("payload does not decompress to plain_bytes ", plain_bytes,
                     ": ", ZSTD_getErrorName(size)));
  }
  if (size != plain_bytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "payload has ", size, " bytes, plain_bytes says ", plain_bytes));
  }
  return plain;
}

}  // namespace traincheck::server
