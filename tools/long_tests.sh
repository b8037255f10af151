#!/usr/bin/env bash
# What explores at random or takes long, in parts of at most half an hour. What a
# part did is kept for the commit in ~/.cache/traincheckd/long_tests. With the rows
# of docs/reliability.md, another machine goes on where one stopped.
#
#   tools/long_tests.sh list                 the parts and what is known of them
#   tools/long_tests.sh run PART [SEED]      one part; a seed repeats a run
#   tools/long_tests.sh run-next             the first that has not passed yet
#   tools/long_tests.sh table [FILE]         writes the table of docs/reliability.md
#
# Exit code 1: the part failed or ran out of time; 3: nothing is left to run.
set -euo pipefail
cd "$(dirname "$0")/.."
case "${1:-}" in
  run | run-next) . tools/test_environment.sh ;;
esac
exec python3 -B tools/long_tests/main.py "$@"
