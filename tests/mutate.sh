#!/usr/bin/env bash
# Which faults, put into a script of yours, rules find: mutate.py says more.
#
#   tests/mutate.sh train.py --epochs 2
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
exec "$python" "$root/tests/mutate.py" "$@"
