#!/usr/bin/env bash
# BUILD_INFO names every package whose archives bazel/system.BUILD links, and
# the version of it that is installed.
#
#   build_info_test.sh BUILD_INFO SYSTEM_BUILD
set -euo pipefail
info=$1 system=$2
folder=/usr/lib/$(gcc -print-multiarch)
failed=0

# Tests link these, programs do not.
archives=$( (
  grep -o '"absl_[a-z0-9_]*"' "$system" | tr -d '"' | sed 's/.*/lib&.a/'
  grep -o '"-l:lib[a-z0-9_+]*\.a"' "$system" | sed 's/"-l:\(.*\)"/\1/'
) | grep -v -e '^libgtest' -e '^libgmock' | sort -u)
[ "$(wc -l <<<"$archives")" -gt 50 ] || {
  echo "found too few archives in $system: is the test broken?" >&2
  exit 1
}

# shellcheck disable=SC2086 # names without blanks
packages=$(cd "$folder" && dpkg-query -S $(realpath -s $archives) |
  cut -d: -f1 | sort -u)
for package in $packages; do
  line="$package $(dpkg-query -W -f='${Version}' "$package")"
  grep -qxF "$line" "$info" || {
    echo "not in BUILD_INFO: $line (bazel/library_versions.bzl)" >&2
    failed=1
  }
done
exit "$failed"
