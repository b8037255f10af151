#!/usr/bin/env bash
# Runs the C++ tests of rings, records, store, checker, relay and server, and
# the corpora of the fuzz targets, under AddressSanitizer with
# UndefinedBehaviorSanitizer, or under ThreadSanitizer.
#
#   tools/sanitize.sh asan|tsan [BAZEL_OPTION...]
#
# Instrumented is all code of ours in these programs, the relay and the daemon
# that they start included. Not instrumented: Debian's libraries (gRPC,
# protobuf, absl, RocksDB, zstd), and what is loaded into Python (preload
# library and core: they would need the interpreter to be instrumented).
# The first test proves that the configuration bites.
set -euo pipefail
cd "$(dirname "$0")/.."

sanitizer=${1:-}
case "$sanitizer" in
  asan | tsan) shift ;;
  *)
    echo "usage: tools/sanitize.sh asan|tsan [BAZEL_OPTION...]" >&2
    exit 2
    ;;
esac

options=(
  "--config=$sanitizer"
  --keep_going
  --noshow_progress
  "--test_env=TRAINCHECK_SANITIZER=$sanitizer"
  "--test_env=ASAN_OPTIONS=detect_stack_use_after_return=1"
  "--test_env=UBSAN_OPTIONS=print_stacktrace=1"
  "--test_env=TSAN_OPTIONS=suppressions=$PWD/bazel/sanitizers/tsan.supp"
)
tools/build.sh test "${options[@]}" "$@" //tests/sanitizers:config_test
exec tools/build.sh test "${options[@]}" "$@" --test_lang_filters=cc \
  --build_tests_only //base/... //proto/... //agent/ring/... \
  //agent/relay/... //invariants/... //checker/... //inference/... \
  //server/... //tests/engine/... //tests/fuzz/...
