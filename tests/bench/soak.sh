#!/usr/bin/env bash
# The daemon's memory while two ranks stream.
#
#   tests/bench/soak.sh --minutes 60 --csv soak.csv
#
# TRAINCHECK_DIST and TRAINCHECK_TEST_PYTHON take another build or interpreter.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
if [ -z "${TRAINCHECK_TEST_PYTHON:-}" ]; then
  TRAINCHECK_TEST_PYTHON=$("$root/tools/setup.sh" | tail -n 1)
fi
if [ -z "${TRAINCHECK_DIST:-}" ]; then
  "$root/tools/build.sh" build --noshow_progress --ui_event_filters=-info \
    --show_result=0 //deploy:dist
  TRAINCHECK_DIST=$(readlink -f "$root/bazel-bin/deploy/dist")
fi
export TRAINCHECK_DIST
exec "$TRAINCHECK_TEST_PYTHON" "$root/tests/bench/soak.py" "$@"
