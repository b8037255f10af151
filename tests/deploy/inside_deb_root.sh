#!/usr/bin/env bash
# In a clean root: installs the package, runs the main job, switches the agent off
# for the whole host, names a daemon for it, purges the package.
#
#   inside_deb_root.sh DEB PYTHON MAIN_JOB SCRIPT...
#
# Prints a line "== NAME" before the output of each part.
set -euo pipefail
deb=$1 python=$2 main_job=$3
shift 3
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/tmp OMP_NUM_THREADS=1 LC_ALL=C.UTF-8

echo "== installed"
rm -f /etc/traincheck.yaml # of the host
dpkg --install "$deb"
dpkg --verify traincheckd
traincheckctl --version
python3 -c 'import traincheckd; print(traincheckd.__file__)'

echo "== job"
code=0
"$main_job" "$python" "$@" || code=$?
echo "code $code"

echo "== switched off"
echo "disable: 1" >/etc/traincheck.yaml
code=0
"$main_job" "$python" "$@" || code=$?
echo "code $code"
traincheckctl doctor --python "$python" || true

echo "== named"
printf 'server: unix:/tmp/site.sock\ngrace: 0\n' >/etc/traincheck.yaml
traincheckctl status || echo "code $?"

echo "== mistaken"
echo "disabel: 1" >/etc/traincheck.yaml
traincheckctl run -- true || echo "code $?"
LD_PRELOAD=/usr/lib/traincheckd/libtraincheck_agent.so \
  "$python" -c 'import torch; print("trained")'
rm /etc/traincheck.yaml

echo "== unit"
systemd-analyze verify traincheckd.service
systemd-analyze security --offline=true --no-pager --threshold=20 \
  /lib/systemd/system/traincheckd.service | tail -n 1

echo "== configuration"
# What the unit starts, with the options that the package installs.
sed 's|/var/lib/traincheckd|/tmp|' /etc/traincheck/traincheckd.toml \
  >/tmp/options.toml
/usr/bin/traincheckd --config /tmp/options.toml --port-file /tmp/address &
daemon=$!
for _ in $(seq 600); do
  [ -s /tmp/address ] && break
  sleep 0.1
done
cat /tmp/address
kill "$daemon"
wait "$daemon"

echo "== purged"
dpkg --listfiles traincheckd >/tmp/files
dpkg --purge traincheckd
while read -r file; do
  # Folders, and links to them, are the system's.
  if [ -e "$file" ] && [ ! -d "$file" ]; then echo "left: $file"; fi
done </tmp/files
