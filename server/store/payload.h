// Batches travel and lie on disk as one zstd frame with a content checksum.
//
// Threads: pure function (with a decoder a thread, kept for its buffers).
#ifndef TRAINCHECK_SERVER_STORE_PAYLOAD_H_
#define TRAINCHECK_SERVER_STORE_PAYLOAD_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace traincheck::server {

// Exactly `plain_bytes` bytes, or InvalidArgument with what is wrong. Never
// allocates more than that, whatever the frame says.
[[nodiscard]] absl::StatusOr<std::string> DecompressUntrusted(
    std::string_view payload, uint32_t plain_bytes);

}  // namespace traincheck::server

#endif  // TRAINCHECK_SERVER_STORE_PAYLOAD_H_
