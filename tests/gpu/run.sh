#!/usr/bin/env bash
# Everything that needs a CUDA device: digests against the processor's, losses
# and weights with and without the agent, an error found, bandwidth, step times.
# Prints one table for docs/gpu.md. Without a device it says so and ends with 0.
#
#   tests/gpu/run.sh                everything, some minutes
#   tests/gpu/run.sh digests        one part of it: see measure.py
#   tests/gpu/run.sh --dry-run      all that works without a device, on the
#                                   driver for tests
#
# TRAINCHECK_TEST_PYTHON takes another interpreter, with a torch for the device;
# TRAINCHECK_DIST and TRAINCHECK_GPU_TOOLS another build.
set -euo pipefail
cd "$(dirname "$0")/../.."
python=${TRAINCHECK_TEST_PYTHON:-$(tools/setup.sh | tail -n 1)}
case " $* " in
  *" --dry-run "*) ;;
  *)
    why=$("$python" -c 'import torch
if not torch.cuda.is_available(): print("torch", torch.__version__, "sees no CUDA device")')
    if [ -n "$why" ]; then
      echo "skipped: $why"
      exit 0
    fi
    ;;
esac
if [ -z "${TRAINCHECK_DIST:-}" ]; then
  tools/build.sh build --noshow_progress --ui_event_filters=-info --show_result=0 \
    //deploy:dist //agent/capture:libtraincheck_agent_core.so \
    //agent/device:libcuda_for_testing.so
  TRAINCHECK_DIST=$(readlink -f bazel-bin/deploy/dist)
  TRAINCHECK_GPU_TOOLS=$(readlink -f bazel-bin/agent)
fi
export TRAINCHECK_DIST TRAINCHECK_GPU_TOOLS
export PYTHONPATH="$PWD/agent/capture:$PWD/tests/integration:$PWD/tests/gpu"
export PYTHONDONTWRITEBYTECODE=1
exec "$python" tests/gpu/measure.py "$@"
