#!/usr/bin/env bash
# Runs all C++ tests, the corpora of the fuzz targets among them, under
# AddressSanitizer with UndefinedBehaviorSanitizer, or under ThreadSanitizer; or
# the agent in real trainings under the first two.
#
#   tools/sanitize.sh asan|tsan|training [BAZEL_OPTION...]
#
# Instrumented is all code of ours in these programs, the relay and the daemon
# that they start included; of a training what is loaded into Python (see
# tests/sanitizers/training.sh). Not instrumented: Debian's libraries (gRPC,
# protobuf, absl, RocksDB, zstd), the interpreter and torch. First a planted bug
# proves that the configuration bites.
set -euo pipefail
cd "$(dirname "$0")/.."

sanitizer=${1:-}
case "$sanitizer" in
  asan | tsan) shift ;;
  training)
    shift
    exec tests/sanitizers/training.sh "$@"
    ;;
  *)
    echo "usage: tools/sanitize.sh asan|tsan|training [BAZEL_OPTION...]" >&2
    exit 2
    ;;
esac

options=(
  "--config=$sanitizer"
  --keep_going
  --noshow_progress
  "--test_env=TRAINCHECK_SANITIZER=$sanitizer"
  # Five times what they have otherwise: instrumented programs are as much slower.
  --test_timeout=300,1500,4500,18000
  # Tests preload instrumented libraries into programs that are not.
  "--test_env=ASAN_OPTIONS=detect_stack_use_after_return=1:verify_asan_link_order=0"
  "--test_env=UBSAN_OPTIONS=print_stacktrace=1"
)
tools/build.sh test "${options[@]}" "$@" //tests/sanitizers:config_test
exec tools/build.sh test "${options[@]}" "$@" --test_lang_filters=cc \
  --build_tests_only //...
