#!/usr/bin/env bash
# Runs a Python test module under the torch environment.
set -euo pipefail
if [ -z "${TRAINCHECK_TEST_PYTHON:-}" ]; then
  echo "TRAINCHECK_TEST_PYTHON is not set: run ./test.sh, or export the path" \
    "that tools/setup.sh prints" >&2
  exit 1
fi
export PYTHONPATH="$PWD/tests:$PWD/tests/integration"
export PYTHONDONTWRITEBYTECODE=1
export HOME="${TEST_TMPDIR:?}"
exec "$TRAINCHECK_TEST_PYTHON" tests/xml_runner.py "$@"
