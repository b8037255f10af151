#!/usr/bin/env bash
# In a clean root: installs the wheel with pip into an environment of its own, runs
# the main job there, uninstalls it.
#
#   inside_wheel_root.sh WHEEL PYTHON MAIN_JOB SCRIPT...
#
# Prints a line "== NAME" before the output of each part.
set -euo pipefail
wheel=$1 python=$2 main_job=$3
shift 3
export PATH=/usr/bin:/bin HOME=/tmp OMP_NUM_THREADS=1 LC_ALL=C.UTF-8
rm -f /etc/traincheck.yaml # of the host
installed() { find /opt /usr /etc /var -name '*traincheck*' -newer /tmp/begin; }
pip() { /opt/venv/bin/python -m pip --quiet --disable-pip-version-check "$@"; }

echo "== installed"
"$python" -m venv /opt/venv
# The torch of the tests; the wheel brings none.
"$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))' \
  >"$(echo /opt/venv/lib/python3*/site-packages)/torch.pth"
touch /tmp/begin
pip install --no-index --no-deps "$wheel"
PATH=/opt/venv/bin:$PATH
command -v traincheckctl
traincheckctl --version

echo "== job"
code=0
"$main_job" python "$@" || code=$?
echo "code $code"

echo "== removed"
pip uninstall -y traincheckd
installed
