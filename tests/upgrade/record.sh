#!/usr/bin/env bash
# Records the fixtures of the present version into tests/upgrade/recorded/VERSION.
#
#   tests/upgrade/record.sh [FOLDER]
#
# TRAINCHECK_DIST takes another build.
set -euo pipefail
cd "$(dirname "$0")/../.."
python=$(tools/setup.sh | tail -n 1)
if [ -z "${TRAINCHECK_DIST:-}" ]; then
  tools/build.sh build --noshow_progress --ui_event_filters=-info \
    --show_result=0 //deploy:dist
  TRAINCHECK_DIST=$(readlink -f bazel-bin/deploy/dist)
fi
export TRAINCHECK_DIST PYTHONPATH=tests/integration:tests
version=$("$TRAINCHECK_DIST/traincheckd" --version)
export TRAINCHECK_RECORD_TO="${1:-tests/upgrade/recorded/$version}"
exec "$python" tests/upgrade/record.py
