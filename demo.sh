#!/usr/bin/env bash
# The main job on real input: watches a training that has a silent error by the
# built-in rules of the daemon, learns more from two healthy two-rank
# trainings, then watches three others, of which two have a silent error.
set -euo pipefail
cd "$(dirname "$0")"
unset "${!TRAINCHECK_@}"  # settings of yours are not the demo's

say() { printf '\n\033[1m%s\033[0m\n' "== $*"; }

python=$(tools/setup.sh | tail -n 1)
say "Building"
tools/build.sh build --noshow_progress --ui_event_filters=-info --show_result=0 //deploy:dist
dist=$(readlink -f bazel-bin)/deploy/dist
export PATH="$dist:$PATH" OMP_NUM_THREADS=1

# A folder of its own: another demo may still run, or have been killed.
work=$(mktemp -d "${TMPDIR:-/tmp}/traincheck-demo-XXXXXX")
export TRAINCHECK_SPOOL_DIR="$work/spool"
traincheckd --data-dir "$work/data" --listen 127.0.0.1:0 \
  --port-file "$work/address" 2>"$work/traincheckd.log" &
daemon=$!
trap 'kill "$daemon" 2>/dev/null; wait "$daemon" 2>/dev/null' EXIT
for _ in $(seq 100); do [ -s "$work/address" ] && break; sleep 0.1; done
TRAINCHECK_SERVER=$(cat "$work/address")
export TRAINCHECK_SERVER
say "traincheckd listens on $TRAINCHECK_SERVER, data in $work/data"

# reference NAME COMMAND...: a healthy run to learn from
reference() {
  local run=$1
  shift
  say "Reference run $run: $(basename "$1")"
  traincheckctl run --run "$run" --collect -- "$python" "$@" | tail -n 2
}

# watch NAME COMMAND...: a run checked while it trains, by what was learned, too,
# once it was
learned=()
watch() {
  local run=$1
  shift
  traincheckctl run --run "$run" "${learned[@]}" -- "$python" "$@" | tail -n 2
}

# expect NAME 0|some: does the daemon hold that many violations of the run?
expect() {
  local count
  count=$(traincheckctl -o json violations list --run "$1" |
    "$python" -c 'import json, sys; print(len(json.load(sys.stdin)))')
  if { [ "$2" = 0 ] && [ "$count" != 0 ]; } ||
    { [ "$2" = some ] && [ "$count" = 0 ]; }; then
    echo "demo: run $1 has $count violations, expected $2" >&2
    exit 1
  fi
}

say "Without any reference: after an evaluation nobody calls train() again"
watch evaluating tests/integration/scripts/built_in.py left_in_evaluation
expect evaluating some

reference ref-cnn tests/pipelines/cnn_ddp.py --steps 20
reference ref-mlp tests/pipelines/mlp_ddp.py --steps 30

say "Learning the rules that held in both"
traincheckctl infer --from ref-cnn,ref-mlp --set healthy-ddp
traincheckctl invariants list healthy-ddp
learned=(--check healthy-ddp)

say "(a) A healthy run of another model, other optimizer: no violation expected"
watch healthy tests/pipelines/healthy_resmlp_ddp.py --steps 30
expect healthy 0

say "(b) The forward bypasses DDP: replicas drift, the loss falls all the same"
watch drift tests/integration/scripts/drift_ddp.py --fault-step 5 --steps 40 \
  --sleep 0.1
expect drift some

say "(c) Inverted requires_grad filter: step() updates nothing, no error"
watch frozen tests/integration/scripts/frozen_head_ddp.py --steps 30
expect frozen some

say "Summary"
traincheckctl runs list
traincheckctl violations list
first=$(traincheckctl -o json violations list --run drift |
  "$python" -c 'import json, sys; print(json.load(sys.stdin)[0]["incident"])')
say "traincheckctl violations show $first"
traincheckctl violations show "$first"

say "To look further"
cat <<TXT
  export PATH="$dist:\$PATH"
  traincheckd --data-dir $work/data &
  traincheckctl violations list
  traincheckctl violations show $first
  traincheckctl runs show drift
  traincheckctl sets show healthy-ddp
TXT
