#!/usr/bin/env bash
# Builds and runs one benchmark of this folder.
#
#   tests/bench/run.sh bytes_per_record.py     Python benchmarks, whole processes
#   tests/bench/run.sh digest_bench            Google Benchmark targets
set -euo pipefail
cd "$(dirname "$0")/../.."
name=$1
shift
case "$name" in
  *.py)
    python=$(tools/setup.sh | tail -n 1)
    tools/build.sh build --noshow_progress --ui_event_filters=-info --show_result=0 //deploy:dist
    TRAINCHECK_DIST="$PWD/bazel-bin/deploy/dist" exec "$python" \
      "tests/bench/$name" "$@"
    ;;
  *)
    tools/build.sh build --noshow_progress --ui_event_filters=-info --show_result=0 \
      "//tests/bench:$name"
    exec "bazel-bin/tests/bench/$name" "$@"
    ;;
esac
