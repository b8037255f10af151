# Which sanitizer must find which planted bug, and what it says then.
#
#   expect_found PROGRAM WORDS    runs PROGRAM; it must fail and say WORDS
#   expect_silent PROGRAM         runs PROGRAM; it must succeed

expect_found() {
  local said
  if said=$("$1" 2>&1); then
    echo "FAILED: $1 ended well, expected: $2" >&2
    exit 1
  fi
  case "$said" in
    *"$2"*) echo "found: $2" ;;
    *)
      echo "FAILED: $1 did not say: $2" >&2
      echo "$said" >&2
      exit 1
      ;;
  esac
}

expect_silent() {
  "$1" >/dev/null || { echo "FAILED: $1 without sanitizer" >&2; exit 1; }
}

# PREFIX: how the programs' paths begin.
expect_asan() {
  expect_found "$1heap_overflow" "heap-buffer-overflow"
  expect_found "$1signed_overflow" "signed integer overflow"
  expect_found "$1wide_shift" "shift exponent 32 is too large"
}

expect_tsan() {
  expect_found "$1data_race" "data race"
}
