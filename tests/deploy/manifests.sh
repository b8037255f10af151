#!/usr/bin/env bash
# Checks deploy/kubernetes against schemas from the package index. Part of the long
# tier: tools/long_tests.sh run manifests.
set -euo pipefail
cd "$(dirname "$0")/../.."
venv=$(mktemp -d)
trap 'rm -rf "$venv"' EXIT
python3 -m venv "$venv"
"$venv/bin/pip" install --quiet --disable-pip-version-check \
  --requirement tests/deploy/manifests.txt
"$venv/bin/python" -B tests/deploy/check_manifests.py
if command -v kubectl >/dev/null; then
  kubectl kustomize deploy/kubernetes |
    sed -n 's/^kind: /deploy\/kubernetes: the kustomization has a /p'
else
  echo "deploy/kubernetes: the kustomization was not built: no kubectl is here"
fi
