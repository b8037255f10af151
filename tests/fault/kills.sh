#!/usr/bin/env bash
# Kills parts at random and looks for each record afterwards.
#
#   tests/fault/kills.sh --kills 1000 --seed 7
#   tests/fault/kills.sh --kills 50 --trainings 1 --report docs/reliability.md
#
# Variables as in run.sh.
set -euo pipefail
. "$(dirname "$0")/environment.sh"
exec "$TRAINCHECK_TEST_PYTHON" "$root/tests/fault/kills.py" "$@"
