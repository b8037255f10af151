#!/usr/bin/env bash
# Checks the sources without building: formatting, include layering, sizes,
# types of the hooks, proto comments, names of open points, links of the
# documents. Prints FILE:LINE: MESSAGE and exits with 1 if anything is found.
#
#   tools/presubmit.sh            all checks
#   tools/presubmit.sh sizes      one check (a module of tools/presubmit)
set -euo pipefail
cd "$(dirname "$0")/.."
exec python3 -B tools/presubmit/run_checks.py "$@"
