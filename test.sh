#!/usr/bin/env bash
# Installs what is missing, checks the sources, builds everything and runs all
# tests of the suite, side by side as far as the processors go. What draws seeds
# or takes long is in tools/long_tests.sh. Prints which targets take longest and
# why tests were skipped; the last line counts test cases: "N passed, N failed".
set -euo pipefail
cd "$(dirname "$0")"

. tools/test_environment.sh

presubmit=0
tools/presubmit.sh || presubmit=$?

# Whole processes wait for each other half of the time: two tests a
# processor. Those that take more say so (tag cpu:2), and while they wait for
# room they hold a job.
slots=$((2 * $(nproc)))
events=$(mktemp)
trap 'rm -f "$events"' EXIT
tests=0
tools/build.sh test --keep_going --noshow_progress \
  --jobs="$((2 * slots))" --local_cpu_resources="$slots" \
  --build_event_json_file="$events" //... || tests=$?

# After the build, which makes headers that the sources include.
tools/clang_checks.sh || presubmit=$?

python3 tools/count_tests.py --presubmit "$presubmit" --bazel "$tests" \
  --slowest 10 "$events"
