#!/usr/bin/env bash
# Prints what run.sh did as the rows of a table: target, inputs, inputs a
# second, edges reached, inputs kept. A run that did not end counts as far as
# its log goes.
#
#   tests/fuzz/table.sh
set -euo pipefail
cd "$(dirname "$0")/../.."

folder=${FUZZ_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/traincheckd/fuzz}
echo "| target | inputs | a second | edges | kept |"
echo "|---|---|---|---|---|"
for target in $(ls tests/fuzz/corpus); do
  log=$folder/$target.log
  [ -e "$log" ] || continue
  # "#123 NEW cov: 4 ft: 5 corp: 6/7b lim: 8 exec/s: 9 ..."
  awk -v target="$target" '
    /^#[0-9]+[ \t].* cov: / {
      inputs = substr($1, 2)
      for (i = 2; i < NF; i++) {
        if ($i == "cov:") edges = $(i + 1)
        if ($i == "corp:") { split($(i + 1), part, "/"); kept = part[1] }
        if ($i == "exec/s:") rate = $(i + 1)
      }
    }
    /^stat::number_of_executed_units:/ { inputs = $2 }
    /^stat::average_exec_per_sec:/ { rate = $2 }
    END {
      printf "| %s | %d | %d | %d | %d |\n", target, inputs, rate, edges, kept
    }' "$log"
done
