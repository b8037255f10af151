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
# After an upgrade of packages the programs are linked again: see
# bazel/library_versions.bzl.
packages=$(stat -c %Y /var/lib/dpkg/status)
exec bazel "$command" --repo_env=TRAINCHECK_PACKAGES="$packages" \
  --disk_cache="${XDG_CACHE_HOME:-$HOME/.cache}/traincheckd/bazel" "$@"
