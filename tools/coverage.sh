#!/usr/bin/env bash
# Which lines and branches of the engine the relations' scripts reach: gcovr's
# table, worst file last, and the lines and branches that nothing reaches.
#
#   tools/coverage.sh [TARGET...]
#
# The targets are C++ tests; without them those of each relation's scripts. The
# report, with the source beside the counts, goes to /tmp/traincheckd-coverage
# (TRAINCHECK_COVERAGE_DIR).
set -euo pipefail
cd "$(dirname "$0")/.."
checkout=$PWD

if [ $# -eq 0 ]; then
  mapfile -t targets < <(
    tools/build.sh query --noshow_progress \
      'filter(":scripts_test$", //invariants/relations/...)'
  )
  set -- "${targets[@]}"
fi
command -v gcovr > /dev/null || apt-get install -y --no-install-recommends gcovr

# Without a sandbox, so that the compiler's notes stay beside the objects; and
# without the disk cache, which has objects and no notes.
options=(
  --config=coverage
  --noshow_progress
  --spawn_strategy=local
  --disk_cache=
)
root=$(tools/build.sh info "${options[@]}" execution_root)
objects=$(tools/build.sh info "${options[@]}" bazel-bin)
find "$objects" -name '*.gcda' -delete 2> /dev/null || true
tools/build.sh build "${options[@]}" "$@"
# Not by Bazel: the counts go beside the objects, by paths from where a test is
# run, and all tests add to the same.
cd "$root"
for target in "$@"; do
  program=${target#//}
  "$objects/${program/://}" --gtest_brief=1
done

report=${TRAINCHECK_COVERAGE_DIR:-/tmp/traincheckd-coverage}
mkdir -p "$report"
gcovr --root "$checkout" --filter "$checkout/invariants/" \
  --filter "$checkout/checker/" --exclude '.*_test\.cc' --exclude '.*testing' \
  --exclude-throw-branches --exclude-unreachable-branches --sort-percentage \
  --html-details "$report/index.html" --json "$report/coverage.json" \
  --txt "$report/coverage.txt" "${objects#"$root/"}"
cat "$report/coverage.txt"
