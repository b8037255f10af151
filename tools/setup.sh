#!/usr/bin/env bash
# Installs what the build and the tests need and prints, as its last line on
# stdout, the Python of the test environment. Everything else goes to stderr.
# Cheap when all is there.
#
#   tools/setup.sh [PACKAGE...]   Debian packages and the torch environment;
#                                 further packages for tests of the long tier
#
# The environment lives in the user's cache folder under the hash of its
# requirements, is shared by all checkouts and is complete only when its stamp
# file is there.
set -euo pipefail
cd "$(dirname "$0")/.."

as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi
}

install_packages() {
  local missing
  missing=$( (grep -v '^#' tools/packages.txt; printf '%s\n' "$@") |
    grep . | while read -r package; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null |
      grep -q 'install ok installed' || echo "$package"
  done)
  [ -z "$missing" ] && return
  echo "setup: installing Debian packages (up to 700 MB of downloads):" \
    $missing >&2
  as_root apt-get update -qq >&2
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq \
    --no-install-recommends $missing >&2
}

torch_environment() {
  local requirements=tests/requirements.txt python hash env
  python=$(command -v python3.11 || command -v python3)
  hash=$( (cat "$requirements"; "$python" -V) | sha256sum | cut -c1-16)
  env="${XDG_CACHE_HOME:-$HOME/.cache}/traincheckd/envs/$hash"
  mkdir -p "$(dirname "$env")"
  (
    flock 9 # two checkouts may set up at the same time
    if [ ! -e "$env/complete" ]; then
      echo "setup: installing $(tr '\n' ' ' <"$requirements")into $env" \
        "(about 1 GB on disk; where the package index has no CPU build," \
        "several GB of CUDA packages come with it)" >&2
      rm -rf "$env"
      "$python" -m venv "$env"
      "$env/bin/pip" install --quiet --disable-pip-version-check \
        -r "$requirements" >&2
      touch "$env/complete"
    fi
  ) 9>"$env.lock"
  echo "$env/bin/python"
}

install_packages "$@"
torch_environment
