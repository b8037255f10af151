# What the scripts of this folder need; to be sourced.
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
if [ -z "${TRAINCHECK_TEST_PYTHON:-}" ]; then
  TRAINCHECK_TEST_PYTHON=$("$root/tools/setup.sh" | tail -n 1)
fi
if [ -z "${TRAINCHECK_DIST:-}" ]; then
  "$root/tools/build.sh" build --noshow_progress --ui_event_filters=-info \
    --show_result=0 //deploy:dist //tests/fault:all
  TRAINCHECK_DIST=$(readlink -f "$root/bazel-bin/deploy/dist")
  TRAINCHECK_FAULT_TOOLS=$(readlink -f "$root/bazel-bin/tests/fault")
  export TRAINCHECK_FAULT_TOOLS
fi
export TRAINCHECK_DIST
export PYTHONPATH="$root/tests/fault:$root/tests/integration"
export PYTHONDONTWRITEBYTECODE=1
