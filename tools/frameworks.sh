#!/usr/bin/env bash
# Installs what tests/frameworks.txt names into an environment of its own on top
# of the tests' own, for frameworks_test. Prints its Python; everything else goes
# to stderr. Downloads happen once.
#
#   tools/frameworks.sh
set -euo pipefail
cd "$(dirname "$0")/.."

base=$(tools/setup.sh | tail -n 1)
base_env=$(dirname "$(dirname "$base")")
hash=$( (cat tests/frameworks.txt; echo "$base_env") | sha256sum | cut -c1-16)
env="$(dirname "$base_env")/frameworks-$hash"
(
  flock 9
  [ -e "$env/complete" ] && exit
  echo "frameworks: installing $(tr '\n' ' ' <tests/frameworks.txt)into $env" >&2
  rm -rf "$env"
  "$base" -m venv "$env"
  # torch and numpy are those of the base.
  for packages in "$env"/lib/python*/site-packages; do
    "$base" -c 'import torch, pathlib; print(pathlib.Path(torch.__file__).parents[1])' \
      >"$packages/base.pth"
  done
  "$env/bin/pip" install --quiet --disable-pip-version-check --no-cache-dir \
    -r tests/frameworks.txt >&2
  touch "$env/complete"
) 9>"$env.lock"
echo "$env/bin/python"
