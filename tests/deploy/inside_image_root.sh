#!/usr/bin/env bash
# In a clean root: does what the Containerfile says, starts what it starts, makes a
# token as docs/deploy.md says, and runs the main job against this daemon. Then it
# does the same with the options for other hosts.
#
#   inside_image_root.sh DEB PYTHON CONTAINERFILE IMAGE_PY MAIN_JOB SCRIPT...
#
# Prints a line "== NAME" before the output of each part.
set -euo pipefail
deb=$1 python=$2 containerfile=$3 main_job=$5
image="/usr/bin/python3 -B $4"
shift 5
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/tmp OMP_NUM_THREADS=1 LC_ALL=C.UTF-8
unset XDG_RUNTIME_DIR
rm -f /etc/traincheck.yaml # of the host

echo "== built"
$image build "$containerfile" "$(dirname "$deb")"
stat --format='%n %U %a' /usr/lib/traincheckd/*.sh /var/lib/traincheckd

echo "== started"
$image run "$containerfile" 2>/tmp/log &
daemon=$!
for _ in $(seq 600); do
  $image exec "$containerfile" traincheckctl status 2>/dev/null && break
  sleep 0.1
done
sed -n 's/^Uid:\s*//p' "/proc/$daemon/status"

echo "== without a token"
export TRAINCHECK_SERVER=127.0.0.1:7471
traincheckctl status || echo "code $?"

echo "== job"
$image exec "$containerfile" traincheckctl token create --role owner --owner alice \
  --ttl 90d --out - | install -m 600 /dev/stdin /tmp/alice.token
export TRAINCHECK_TOKEN_FILE=/tmp/alice.token
code=0
"$main_job" "$python" "$@" || code=$?
echo "code $code"

echo "== ended"
kill "$daemon"
wait "$daemon"
tail -n 1 /tmp/log

echo "== other hosts"
data=/var/lib/traincheckd
$image exec "$containerfile" traincheckctl certs init --dir $data/certs \
  --host monitor.example.org,127.0.0.1
$image run "$containerfile" --data-dir $data/store --listen 0.0.0.0:7471 \
  --tls-cert $data/certs/server.pem --tls-key $data/certs/server.key 2>/tmp/log &
daemon=$!
administrator="$image exec $containerfile traincheckctl \
  --tls-ca $data/certs/ca.pem --token-file $data/store/admin.token"
for _ in $(seq 600); do
  $administrator status >/dev/null 2>&1 && break
  sleep 0.1
done
$administrator token create --role owner --owner bob --out - |
  install -m 600 /dev/stdin /tmp/bob.token
cp $data/certs/ca.pem /tmp/ca.pem
echo '127.0.0.1 monitor.example.org' >>/etc/hosts
traincheckctl --server monitor.example.org:7471 --tls-ca /tmp/ca.pem \
  --token-file /tmp/bob.token -o json runs list
kill "$daemon"
wait "$daemon"
