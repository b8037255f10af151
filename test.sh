#!/usr/bin/env bash
# Installs what is missing, builds everything, checks the sources and runs all
# tests. The last line counts test cases: "N passed, N failed".
set -euo pipefail
cd "$(dirname "$0")"

python=$(tools/setup.sh | tail -n 1)
export TRAINCHECK_TEST_PYTHON="$python"
TRAINCHECK_TEST_ENV_HASH=$(basename "$(dirname "$(dirname "$python")")")
export TRAINCHECK_TEST_ENV_HASH
if [ -d ../shared/oracles ]; then
  TRAINCHECK_ORACLES=$(cd ../shared/oracles && pwd)
  export TRAINCHECK_ORACLES
fi

presubmit=0
tools/presubmit.sh || presubmit=$?

tests=0
tools/build.sh test --keep_going --noshow_progress //... || tests=$?

python3 tools/count_tests.py --presubmit "$presubmit" --bazel "$tests" \
  bazel-testlogs
