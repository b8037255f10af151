#!/usr/bin/env bash
# The agent inside real trainings under AddressSanitizer with
# UndefinedBehaviorSanitizer: preload library and core are built with them, the
# interpreter and torch are as they are, with the sanitizers' runtime preloaded.
# Relay and daemon are the plain ones: tools/sanitize.sh has their tests. Ends
# with 1 if anything was found, or if a training failed or was not recorded.
#
#   tools/sanitize.sh training [BAZEL_OPTION...]
set -euo pipefail
cd "$(dirname "$0")/../.."
unset "${!TRAINCHECK_@}" # settings of yours are not this test's

python=$(tools/setup.sh | tail -n 1)
build() {
  tools/build.sh build --noshow_progress --ui_event_filters=-info \
    --show_result=0 "$@"
}
work=$(mktemp -d)
trap '[ -z "${daemon:-}" ] || kill "$daemon"; wait; rm -rf "$work"' EXIT

build "$@" //deploy:dist
mkdir "$work/dist" "$work/plain" "$work/found"
cp bazel-bin/deploy/dist/* "$work/dist"
cp bazel-bin/deploy/dist/* "$work/plain"
build --config=asan "$@" //agent/capture:libtraincheck_agent_core.so \
  //agent/preload:libtraincheck_agent.so
cp -f bazel-bin/agent/capture/libtraincheck_agent_core.so \
  bazel-bin/agent/preload/libtraincheck_agent.so "$work/dist"
nm -D "$work/dist/libtraincheck_agent_core.so" >"$work/symbols"
grep -q __asan_init "$work/symbols" || {
  echo "sanitize: the core is not instrumented" >&2
  exit 1
}
export PATH="$work/dist:$PATH" OMP_NUM_THREADS=1

# Python keeps what it allocates: leaks are not looked for.
runtime=$(gcc -print-file-name=libasan.so):$(gcc -print-file-name=libubsan.so)
asan_options="detect_leaks=0:detect_stack_use_after_return=1"
asan_options+=":log_path=$work/found/report"
instrumented() { # COMMAND...
  LD_PRELOAD="$runtime${LD_PRELOAD:+:$LD_PRELOAD}" \
    ASAN_OPTIONS="$asan_options" \
    UBSAN_OPTIONS="print_stacktrace=1:log_path=$work/found/report" "$@"
}
# Not that a stack is too large to be looked at, which is a warning.
reports() { grep -lE "ERROR: |runtime error" "$work"/found/* 2>/dev/null || true; }

# The runtime bites in this interpreter: eight bytes are set beyond a block.
instrumented "$python" -c "
import ctypes
c = ctypes.CDLL(None)
c.malloc.restype = ctypes.c_void_p
ctypes.memset(c.malloc(8), 0, 16)
" && { echo "sanitize: a planted overflow was not found" >&2; exit 1; }
[ -n "$(reports)" ] || {
  echo "sanitize: no report of a planted overflow" >&2
  exit 1
}
rm -f "$work"/found/*

export TRAINCHECK_SPOOL_DIR="$work/spool"
traincheckd --data-dir "$work/data" --listen 127.0.0.1:0 \
  --port-file "$work/address" 2>"$work/traincheckd.log" &
daemon=$!
for _ in $(seq 100); do [ -s "$work/address" ] && break; sleep 0.1; done
TRAINCHECK_SERVER=$(cat "$work/address")
export TRAINCHECK_SERVER

# training NAME COMMAND...: recorded in full
training() {
  local run=$1 start=$SECONDS code=0
  shift
  (
    # The plain one's: it is tried with /bin/true, which takes no other.
    settings=$("$work/plain/traincheckctl" env --run "$run" --collect --full) ||
      exit 1
    eval "${settings//"$work/plain"/"$work/dist"}"
    instrumented "$python" "$@"
  ) >"$work/$run.log" 2>&1 || code=$?
  if [ "$code" != 0 ] || [ -n "$(reports)" ]; then
    tail -n 20 "$work/$run.log"
    cat "$work"/found/* 2>/dev/null
    echo "sanitize: $run ended with $code" >&2
    exit 1
  fi
  for _ in $(seq 120); do
    traincheckctl -o json runs show "$run" >"$work/$run.json"
    grep -q '"status": *"running"' "$work/$run.json" || break
    sleep 0.5
  done
  "$python" - "$work/$run.json" <<'PYTHON'
import json, sys
run = json.load(open(sys.argv[1]))
assert run["records"] > 100, f"only {run['records']} records"
print(f"{run['records']} records of {len(run['processes'])} processes", end=", ")
PYTHON
  echo "$run: nothing found in $((SECONDS - start)) s"
}

training ddp tests/pipelines/cnn_ddp.py --steps 10
training forks tests/integration/scripts/children.py forks
training threads tests/integration/scripts/children.py while_recording
