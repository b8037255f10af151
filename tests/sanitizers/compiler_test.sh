#!/usr/bin/env bash
# The system's compiler has working sanitizers: each finds its planted bug, and
# the programs run without one.
set -euo pipefail
folder=tests/sanitizers
. "$folder/planted_bugs.sh"

build() { # FLAGS OUT PROGRAM...
  local flags=$1 out=$2 program
  shift 2
  mkdir -p "$TEST_TMPDIR/$out"
  for program; do
    # shellcheck disable=SC2086 # flags without blanks in them
    g++ -std=c++20 -O1 $flags "$folder/$program.cc" \
      -o "$TEST_TMPDIR/$out/$program" -pthread
  done
}

bugs="heap_overflow signed_overflow wide_shift data_race"
# shellcheck disable=SC2086
build "" plain $bugs
for bug in $bugs; do expect_silent "$TEST_TMPDIR/plain/$bug"; done
build "-fsanitize=address,undefined -fno-sanitize-recover=undefined" asan \
  heap_overflow signed_overflow wide_shift
expect_asan "$TEST_TMPDIR/asan/"
build -fsanitize=thread tsan data_race
expect_tsan "$TEST_TMPDIR/tsan/"
