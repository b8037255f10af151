#!/usr/bin/env bash
# Runs a Python test module under the torch environment.
#
#   run_python.sh [--usual-torch] path/to/foo_test.py [Class.test_method ...]
#
# --usual-torch: torch starts as it does for users, without what tests/quick replaces.
set -euo pipefail
if [ -z "${TRAINCHECK_TEST_PYTHON:-}" ]; then
  echo "TRAINCHECK_TEST_PYTHON is not set: run ./test.sh, or export the path" \
    "that tools/setup.sh prints" >&2
  exit 1
fi
export PYTHONPATH="$PWD/tests:$PWD/tests/integration"
if [ "${1:-}" = --usual-torch ]; then
  shift
else
  PYTHONPATH+=":$PWD/tests/quick"
fi
export PYTHONDONTWRITEBYTECODE=1
# Sets have the same order in each run; see base/seed_for_testing.h.
export PYTHONHASHSEED=$((${TRAINCHECK_SEED:-0} % 4294967296))
export HOME="${TEST_TMPDIR:?}"
exec "$TRAINCHECK_TEST_PYTHON" tests/xml_runner.py "$@"
