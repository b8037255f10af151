#!/usr/bin/env bash
# The main job with the programs of the PATH: a daemon, a training that has a
# silent error, what was found. Prints what traincheckctl prints.
#
#   main_job.sh COMMAND...      the training
#
# TRAINCHECK_SERVER names a daemon that is there already.
#
# Exit code: that of `traincheckctl run --fail-on-violation`, 10 for a violation.
set -euo pipefail

work=$(mktemp -d)
daemon=
finish() {
  if [ -n "$daemon" ]; then
    kill "$daemon" && wait "$daemon" || cat "$work/log" >&2
  fi
  rm -rf "$work"
}
trap finish EXIT
if [ -z "${TRAINCHECK_SERVER:-}" ]; then
  traincheckd --data-dir "$work/store" --listen 127.0.0.1:0 \
    --port-file "$work/address" 2>"$work/log" &
  daemon=$!
  for _ in $(seq 600); do
    [ -s "$work/address" ] && break
    sleep 0.1
  done
  TRAINCHECK_SERVER=$(cat "$work/address")
fi
export TRAINCHECK_SERVER TRAINCHECK_SPOOL_DIR="$work/spool"

code=0
traincheckctl run --run job --fail-on-violation -- "$@" || code=$?
traincheckctl -o json violations list --run job
exit "$code"
