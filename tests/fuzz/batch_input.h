// Batches out of a fuzzer's bytes: records and numbers are the fuzzer's, the
// frame around them is whole, so that what lies behind zstd and protobuf is
// reached.
#ifndef TRAINCHECK_TESTS_FUZZ_BATCH_INPUT_H_
#define TRAINCHECK_TESTS_FUZZ_BATCH_INPUT_H_

#include <string>

#include "proto/traincheck/v1/ingest.pb.h"
#include "tests/fuzz/fuzz_input.h"

namespace traincheck {

// number u8 | slices - 1 u8 | slices: ring u8, from / 8 u8, records u8,
// bytes u16, bytes. Sizes are right; counts and places need not be.
v1::Batch BatchOf(FuzzInput* input);

// A zstd frame of one raw block with checksum: no time goes into compressing.
// REQUIRES: plain has less than 128 KiB.
std::string ZstdFrame(const std::string& plain);

}  // namespace traincheck

#endif  // TRAINCHECK_TESTS_FUZZ_BATCH_INPUT_H_
