#!/usr/bin/env bash
# Installs what tests/frameworks names into an environment of its own on top of
# the tests' own, for frameworks_test and the evaluation. Prints its Python;
# everything else goes to stderr. Downloads happen once.
#
#   tools/frameworks.sh          what the suite needs
#   tools/frameworks.sh --more   and what the evaluation runs besides, 1 GB
set -euo pipefail
cd "$(dirname "$0")/.."

base=$(tools/setup.sh | tail -n 1)
base_env=$(dirname "$(dirname "$base")")
whole=(-r tests/frameworks/requirements.txt)
alone=(-r tests/frameworks/no_dependencies.txt)
if [ "${1:-}" = --more ]; then
  whole+=(-r tests/frameworks/more_requirements.txt)
  alone+=(-r tests/frameworks/more_no_dependencies.txt)
fi
lists=$(printf '%s\n' "${whole[@]}" "${alone[@]}" | grep -v '^-r$')
hash=$( (cat $lists; echo "$base_env") | sha256sum | cut -c1-16)
env="$(dirname "$base_env")/frameworks-$hash"
(
  flock 9
  [ -e "$env/complete" ] && exit
  echo "frameworks: installing what $(echo $lists) name into $env" >&2
  rm -rf "$env"
  "$base" -m venv "$env"
  # torch and numpy are those of the base.
  for packages in "$env"/lib/python*/site-packages; do
    "$base" -c 'import torch, pathlib; print(pathlib.Path(torch.__file__).parents[1])' \
      >"$packages/base.pth"
  done
  install() {
    "$env/bin/pip" install --quiet --disable-pip-version-check --no-cache-dir \
      "$@" >&2
  }
  install "${whole[@]}"
  # DeepSpeed is a source package, and compiles nothing when told so.
  DS_BUILD_OPS=0 install --no-deps --no-build-isolation "${alone[@]}"
  touch "$env/complete"
) 9>"$env.lock"
echo "$env/bin/python"
