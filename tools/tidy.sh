#!/usr/bin/env bash
# Runs clang-tidy (Debian package clang-tidy) with the checks of .clang-tidy on
# the C++ files that changed since a revision (default: the last commit).
#
#   tools/tidy.sh [REVISION]
set -euo pipefail
cd "$(dirname "$0")/.."

files=$(git diff --name-only --diff-filter=d "${1:-HEAD~1}" -- '*.cc' '*.h')
[ -n "$files" ] || { echo "tidy: no C++ file changed"; exit 0; }
command -v clang-tidy >/dev/null || {
  echo "tidy: install the package clang-tidy" >&2
  exit 1
}
# shellcheck disable=SC2086 # a list of names without blanks
exec clang-tidy --quiet $files -- -std=c++20 -I. -Ibazel-bin \
  -isystem /usr/include/python3.11 -DSPDLOG_FMT_EXTERNAL -DFMT_HEADER_ONLY
