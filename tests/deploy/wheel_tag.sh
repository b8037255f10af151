#!/usr/bin/env bash
# What auditwheel finds out of the wheel's files: they ask for no newer system than
# the wheel's name promises. Part of the long tier: tools/long_tests.sh run
# wheel-tag.
#
#   wheel_tag.sh WHEEL
set -euo pipefail
wheel=$(readlink -f "$1")
cd "$(dirname "$0")/../.."
venv=$(mktemp -d)
trap 'rm -rf "$venv"' EXIT
python3 -m venv "$venv"
"$venv/bin/pip" install --quiet --disable-pip-version-check \
  --requirement tests/deploy/wheel_tag.txt
shown=$("$venv/bin/auditwheel" show "$wheel" | tr -s '\n' ' ')
echo "$shown"
# The first tag that it names is the oldest system that the files run on.
needed=$(grep -o 'manylinux_2_[0-9]*' <<<"${shown#*platform tag}" | head -n 1)
promised=$(grep -o 'manylinux_2_[0-9]*' <<<"${wheel##*/}")
echo "needed: $needed, promised: $promised"
[ "${needed##*_}" -le "${promised##*_}" ]
