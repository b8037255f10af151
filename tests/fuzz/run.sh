#!/usr/bin/env bash
# Fuzzes targets with libFuzzer, one after the other, under AddressSanitizer
# and UndefinedBehaviorSanitizer. Starts from the corpus in this folder and
# keeps what it finds in $FUZZ_DIR (default: ~/.cache/traincheckd/fuzz): inputs
# in TARGET/, the log in TARGET.log, inputs that end the target as
# TARGET-crash-*.
#
#   tests/fuzz/run.sh [-n RUNS] [-s SECONDS] [TARGET...]
#
# Default: 10,000,000 runs however long they take, of all targets.
#
# Needs Debian's clang and libclang-rt-dev; CC names another clang.
set -euo pipefail
cd "$(dirname "$0")/../.."

# How long an input may be, by target.
declare -A max_len=(
  [record]=2048 [ring]=1024 [batch]=2048 [session]=2048
  [set]=2048 [spool]=2048 [spool_load]=2048
  [checker]=4096 [checker_state]=4096
  [http]=2048 [token]=512 [certificate]=2048 [private_file]=512 [settings]=1024
)

runs=10000000
seconds=0
while getopts n:s: option; do
  case "$option" in
    n) runs=$OPTARG ;;
    s) seconds=$OPTARG ;;
    *) exit 2 ;;
  esac
done
shift $((OPTIND - 1))
targets=("$@")
[ $# -gt 0 ] || mapfile -t targets < <(ls tests/fuzz/corpus)
folder=${FUZZ_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/traincheckd/fuzz}
mkdir -p "$folder/bin"

fuzzers=("${targets[@]/#///tests/fuzz:}")
fuzzers=("${fuzzers[@]/%/_fuzzer}")
tools/build.sh build --config=fuzz --repo_env=CC="${CC:-clang}" \
  "${fuzzers[@]}"
# Copies, so that a later build changes nothing of a run.
for target in "${targets[@]}"; do
  cp -f "bazel-bin/tests/fuzz/${target}_fuzzer" "$folder/bin/"
done

# A stack of two frames for each allocation: what is kept of it takes most of
# an input's time. Who wants more of a finding replays it without this.
export ASAN_OPTIONS=${ASAN_OPTIONS:-malloc_context_size=2:quarantine_size_mb=16}
for target in "${targets[@]}"; do
  mkdir -p "$folder/$target"
  options=(
    "-runs=$runs" "-max_total_time=$seconds" "-max_len=${max_len[$target]}" -timeout=20
    -rss_limit_mb=2048 -print_final_stats=1 -entropic=0
    "-artifact_prefix=$folder/$target-"
  )
  [ "$target" != set ] || options+=(-dict=tests/fuzz/json.dict)
  echo "fuzz: $target, log in $folder/$target.log"
  "$folder/bin/${target}_fuzzer" "${options[@]}" "$folder/$target" \
    "tests/fuzz/corpus/$target" >"$folder/$target.log" 2>&1 ||
    { echo "fuzz: $target found something" >&2; exit 1; }
done
