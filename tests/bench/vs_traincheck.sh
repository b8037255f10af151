#!/usr/bin/env bash
# OrderLab's TrainCheck and this system, side by side: the same training collected,
# learned from and checked by both. See vs_traincheck.py, which gets the options.
#
#   tests/bench/vs_traincheck.sh
#   tests/bench/vs_traincheck.sh --json FILE --repeats 9 --limit 30
#   tests/bench/vs_traincheck.sh online              vs_traincheck_online.py
#
# TrainCheck comes from the package registry (about 500 MB on disk, once), into an
# environment of its own beside that of the tests, whose torch and numpy it uses
# by a .pth file. Exit code 2: it cannot be installed. TRAINCHECK_DIST and
# TRAINCHECK_TEST_PYTHON take another build or interpreter.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
requirements="$root/tests/bench/vs_traincheck_requirements.txt"

# Installs into the environment $1; true if it is complete.
install_traincheck() {
  local env=$1 log="$1.log" packages
  rm -rf "$env"
  echo "vs_traincheck: installing $(grep -v '^#' "$requirements" | tr '\n' ' ')into $env" >&2
  "$python" -m venv "$env" >&2 || return 1
  # torch and numpy are those of the base.
  for packages in "$env"/lib/python*/site-packages; do
    "$python" -c 'import torch, pathlib; print(pathlib.Path(torch.__file__).parents[1])' \
      >"$packages/base.pth" || return 1
  done
  if ! "$env/bin/pip" install --quiet --disable-pip-version-check --no-cache-dir \
    --retries 1 --timeout 30 -r "$requirements" >"$log" 2>&1; then
    tail -n 3 "$log" >&2
    return 1
  fi
  touch "$env/complete"
}

# Prints the environment with TrainCheck; fails if there is none.
traincheck_environment() {
  local base hash env
  base=$(dirname "$(dirname "$python")")
  hash=$( (cat "$requirements"; echo "$base"; "$python" -V) | sha256sum | cut -c1-16)
  env="${XDG_CACHE_HOME:-$HOME/.cache}/traincheckd/envs/vs-traincheck-$hash"
  mkdir -p "$(dirname "$env")"
  (
    flock 9
    if [ ! -e "$env/complete" ] && ! install_traincheck "$env"; then
      rm -rf "$env"
      exit 1
    fi
  ) 9>"$env.lock" || return 1
  echo "$env"
}

comparison=vs_traincheck.py
if [ "${1:-}" = online ]; then
  comparison=vs_traincheck_online.py
  shift
fi
case " $* " in
  *" --help "* | *" -h "*) exec python3 "$root/tests/bench/$comparison" "$@" ;;
esac
if [ -z "${TRAINCHECK_TEST_PYTHON:-}" ]; then
  TRAINCHECK_TEST_PYTHON=$("$root/tools/setup.sh" | tail -n 1)
fi
python=$TRAINCHECK_TEST_PYTHON
if ! traincheck=$(traincheck_environment); then
  echo "vs_traincheck: the package traincheck cannot be installed (is there a" \
    "package registry?): nothing to compare with" >&2
  exit 2
fi
if [ -z "${TRAINCHECK_DIST:-}" ]; then
  "$root/tools/build.sh" build --noshow_progress --ui_event_filters=-info \
    --show_result=0 //deploy:dist
  TRAINCHECK_DIST=$(readlink -f "$root/bazel-bin/deploy/dist")
fi
export TRAINCHECK_DIST
exec "$python" "$root/tests/bench/$comparison" --traincheck "$traincheck" "$@"
