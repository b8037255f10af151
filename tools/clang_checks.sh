#!/usr/bin/env bash
# Reads the C and C++ sources with clang, syntax only: what the annotations
# promise about locks (-Wthread-safety) and the checks of .clang-tidy. Every
# warning is an error. After a build: headers made from .proto files must be
# there.
#
#   tools/clang_checks.sh                  what changed since main
#   tools/clang_checks.sh --base REVISION  what changed since then
#   tools/clang_checks.sh FILE...          these
#   tools/clang_checks.sh --all [--only locks|tidy]
#
# Sources that a changed header concerns are read too. What was read without a
# finding is not read again until it or a header of it changes; --all reads
# everything, headers with the sources that include them (22 minutes of CPU for
# locks, more for tidy).
set -euo pipefail
cd "$(dirname "$0")/.."
python3 -B tools/compile_commands.py
exec python3 -B tools/clang_checks.py "$@"
