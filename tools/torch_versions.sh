#!/usr/bin/env bash
# Installs further torch versions, each into an environment of its own, for the
# tests that the agent's core loads into them. Prints "VERSION PYTHON" for
# each that is there in the end; everything else goes to stderr. Downloads
# happen once (a version that the index has with CUDA only is about 3 GB).
#
#   tools/torch_versions.sh                 the oldest, which the suite wants
#   tools/torch_versions.sh --all           those of the long tier
#   tools/torch_versions.sh 2.4.1 2.7.1     these
#   tools/torch_versions.sh --installed     prints what is there, installs nothing
set -euo pipefail

envs="${XDG_CACHE_HOME:-$HOME/.cache}/traincheckd/envs"
python=$(command -v python3.11 || command -v python3)
# The oldest that the agent takes, and those between it and the pinned one.
oldest=2.4.1
between=(2.7.1)
wanted=("$oldest")

environment_of() {
  local hash
  hash=$("$python" -V | sha256sum | cut -c1-8)
  echo "$envs/torch-$1-$hash"
}

install_version() {
  local version=$1 env
  env=$(environment_of "$version")
  mkdir -p "$envs"
  (
    flock 9
    [ -e "$env/complete" ] && exit
    echo "torch_versions: installing torch $version into $env" >&2
    rm -rf "$env"
    "$python" -m venv "$env"
    # These versions were built before numpy 2.
    "$env/bin/pip" install --quiet --disable-pip-version-check --no-cache-dir \
      "torch==$version" "numpy<2" >&2
    touch "$env/complete"
  ) 9>"$env.lock"
}

install=true
case "${1:-}" in
  --installed)
    install=false
    wanted+=("${between[@]}")
    shift
    ;;
  --all)
    wanted+=("${between[@]}")
    shift
    ;;
esac
[ $# -gt 0 ] && wanted=("$@")

for version in "${wanted[@]}"; do
  if $install && ! install_version "$version"; then
    echo "torch_versions: torch $version cannot be installed" >&2
  fi
  env=$(environment_of "$version")
  if [ -e "$env/complete" ]; then
    echo "$version $env/bin/python"
  fi
done
