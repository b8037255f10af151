#!/usr/bin/env bash
# What rules find, and what they say of healthy programs: evaluate.py says more.
#
#   tests/evaluate.sh --json evaluation.json
#
# TRAINCHECK_DIST takes another build.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
python=$("$root/tools/setup.sh" | tail -n 1)
if [ -z "${TRAINCHECK_DIST:-}" ]; then
  "$root/tools/build.sh" build --noshow_progress --ui_event_filters=-info \
    --show_result=0 //deploy:dist
  TRAINCHECK_DIST=$(readlink -f "$root/bazel-bin/deploy/dist")
fi
export TRAINCHECK_DIST
exec "$python" "$root/tests/evaluate.py" "$@"
