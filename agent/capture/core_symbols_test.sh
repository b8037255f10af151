#!/usr/bin/env bash
# The core has to load where torch does, whose wheels ask for glibc 2.28, and
# beside any libstdc++ that the training brings along.
set -euo pipefail
library=$1
fail() {
  echo "$1" >&2
  exit 1
}

newest=$(readelf -V "$library" | grep -o 'GLIBC_[0-9.]*' | sort -uV | tail -1)
[ -n "$newest" ] || fail "readelf found no symbol version: is the test broken?"
highest=$(printf '%s\nGLIBC_2.28\n' "$newest" | sort -V | tail -1)
[ "$highest" = GLIBC_2.28 ] || fail "needs $newest, at most GLIBC_2.28"

needed=$(readelf -d "$library" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p')
for name in $needed; do
  case $name in
    libc.so.6 | libm.so.6 | libgcc_s.so.1 | ld-linux-x86-64.so.2) ;;
    *) fail "needs $name" ;;
  esac
done

exported=$(readelf --dyn-syms -W "$library" |
  awk '$1 ~ /^[0-9]+:$/ && $7 != "UND" && $5 != "LOCAL" { print $8 }')
[ "$exported" = PyInit_traincheck_core ] || fail "exports: $exported"
