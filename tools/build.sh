#!/usr/bin/env bash
# Bazel as this project runs it: offline, with a disk cache that all checkouts
# share.
#
#   tools/build.sh build //deploy:dist
#   tools/build.sh test //checker/...
set -euo pipefail
cd "$(dirname "$0")/.."
command="$1"
shift
exec bazel "$command" \
  --disk_cache="${XDG_CACHE_HOME:-$HOME/.cache}/traincheckd/bazel" "$@"
