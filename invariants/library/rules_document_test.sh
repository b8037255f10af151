#!/bin/sh
# docs/built-in-rules.md is what the documents say.
set -eu
made="$TEST_TMPDIR/built-in-rules.md"
invariants/library/rules_document > "$made"
if ! diff -u docs/built-in-rules.md "$made"; then
  echo "make the page again: tools/build.sh run //invariants/library:rules_document" \
    "> docs/built-in-rules.md"
  exit 1
fi
