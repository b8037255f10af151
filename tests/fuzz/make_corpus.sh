#!/usr/bin/env bash
# Makes the corpora in this folder anew: seeds from synthetic trainings and
# from the spool files given, joined with what is there and with what run.sh
# found, reduced to inputs that each reach something new.
#
#   tests/fuzz/make_corpus.sh [SPOOL_FILE...]
#
# A spool file is what the relay leaves of a training whose daemon is away.
# Needs clang as run.sh does.
set -euo pipefail
cd "$(dirname "$0")/../.."

folder=${FUZZ_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/traincheckd/fuzz}
# What is committed and replayed by each test run: inputs of all sizes up to
# the first number, so many a target, so many bytes a target.
max_input_bytes=4000
max_inputs=60
max_target_bytes=40000

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
spools=()
for spool; do spools+=("$(realpath "$spool")"); done

mapfile -t targets < <(ls tests/fuzz/corpus)
fuzzers=("${targets[@]/#///tests/fuzz:}")
fuzzers=("${fuzzers[@]/%/_fuzzer}")
tools/build.sh build --config=fuzz --repo_env=CC="${CC:-clang}" \
  //tests/fuzz:seeds "${fuzzers[@]}"
bazel-bin/tests/fuzz/seeds "$work/seeds" "${spools[@]}"

for target in "${targets[@]}"; do
  corpus=tests/fuzz/corpus/$target
  # Not every target has seeds.
  mkdir -p "$work/$target" "$work/seeds/$target" "$folder/$target"
  "bazel-bin/tests/fuzz/${target}_fuzzer" -merge=1 \
    "-max_len=$max_input_bytes" "$work/$target" "$corpus" \
    "$work/seeds/$target" "$folder/$target" >"$work/log" 2>&1 ||
    { cat "$work/log" >&2; exit 1; }
  # Regression inputs have names of their own and stay.
  find "$corpus" -type f ! -name 'bug-*' -delete
  find "$work/$target" -type f -printf '%s %p\n' | sort -n |
    awk -v inputs="$max_inputs" -v bytes="$max_target_bytes" '
      { size[NR] = $1; file[NR] = $2 }
      END {
        step = NR > inputs ? NR / inputs : 1
        for (at = 1; at <= NR; at += step) {
          i = int(at)
          if ((sum += size[i]) > bytes) exit
          print file[i]
        }
      }' | xargs -r cp -t "$corpus/"
done
du -sb tests/fuzz/corpus
