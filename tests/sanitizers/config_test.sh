#!/usr/bin/env bash
# Under --config=asan or --config=tsan, which TRAINCHECK_SANITIZER names, the
# programs as Bazel builds them fail: the configuration bites.
set -euo pipefail
folder=tests/sanitizers
. "$folder/planted_bugs.sh"
"expect_$TRAINCHECK_SANITIZER" "$folder/"
