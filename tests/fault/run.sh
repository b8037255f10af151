#!/usr/bin/env bash
# The fault suite: kills, stops, cuts, fills and damages parts while ranks
# train, and checks that nothing was lost and nobody was hurt.
#
#   tests/fault/run.sh --seed 7                          everything, ten times
#   tests/fault/run.sh --seed 7 --repeats 1 --only relay-kill --ranks 2
#   tests/fault/run.sh --seed 7 --slice 2/8              the second eighth of it
#   tests/fault/run.sh --list
#   tests/fault/run.sh --seed 7 --report docs/reliability.md
#
# TRAINCHECK_DIST and TRAINCHECK_FAULT_TOOLS take another build,
# TRAINCHECK_TEST_PYTHON another interpreter.
set -euo pipefail
. "$(dirname "$0")/environment.sh"
exec "$TRAINCHECK_TEST_PYTHON" "$root/tests/fault/run.py" "$@"
