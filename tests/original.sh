#!/usr/bin/env bash
# What the original TrainCheck says of some of tests/errors: original.py says more.
#
#   tests/original.sh --write docs/evaluation.md
#
# Installs it from the package index, as tests/original.txt pins it, into an
# environment of its own on top of the tests' torch. Nothing is built.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
base=$("$root/tools/setup.sh" | tail -n 1)
base_env=$(dirname "$(dirname "$base")")
hash=$( (cat "$root/tests/original.txt"; echo "$base_env") | sha256sum | cut -c1-16)
env="$(dirname "$base_env")/original-$hash"
(
  flock 9
  [ -e "$env/complete" ] && exit
  echo "original: installing $(tr '\n' ' ' <"$root/tests/original.txt")into $env" >&2
  rm -rf "$env"
  "$base" -m venv "$env"
  # torch and numpy are those of the base.
  for packages in "$env"/lib/python*/site-packages; do
    "$base" -c 'import torch, pathlib; print(pathlib.Path(torch.__file__).parents[1])' \
      >"$packages/base.pth"
  done
  "$env/bin/pip" install --quiet --disable-pip-version-check --no-cache-dir \
    -r "$root/tests/original.txt" >&2
  touch "$env/complete"
) 9>"$env.lock"
export OMP_NUM_THREADS=1 PATH="$env/bin:$PATH"
exec nice -n 19 "$env/bin/python" "$root/tests/original.py" "$@"
