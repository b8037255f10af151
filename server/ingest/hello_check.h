// Is a Hello one that a stream can begin with?
//
// Threads: pure functions.
#ifndef TRAINCHECK_SERVER_INGEST_HELLO_CHECK_H_
#define TRAINCHECK_SERVER_INGEST_HELLO_CHECK_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/traincheck/v1/ingest.pb.h"

namespace traincheck::server {

// InvalidArgument naming the field that is missing, malformed or too long.
[[nodiscard]] absl::Status CheckHelloUntrusted(const v1::Hello& hello);

// Escapes what is not printable in the texts that describe the process: they
// come up in lists and in the log. A process is not refused for an odd script,
// its records would be gone.
void MakePrintable(v1::Hello* hello);

// The record format to speak: the newest that both know. Unimplemented
// with both ranges and what to do if there is none: the relay keeps what it
// has until one side is updated.
[[nodiscard]] absl::StatusOr<uint32_t> ChooseFormat(const v1::Hello& hello);

}  // namespace traincheck::server

#endif  // TRAINCHECK_SERVER_INGEST_HELLO_CHECK_H_
