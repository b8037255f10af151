#!/usr/bin/env bash
# Runs a program with its arguments as a test.
set -euo pipefail
exec "$@"
