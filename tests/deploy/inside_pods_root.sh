#!/usr/bin/env bash
# In a clean root: the pods of deploy/kubernetes as processes (pod.py), in the order
# of docs/deploy.md: certificate, daemon, token, a training of user 1000 and one of
# root, a renewed certificate.
#
#   inside_pods_root.sh DEB PYTHON CONTAINERFILE POD_PY MANIFESTS SCRIPT...
#
# Prints a line "== NAME" before the output of each part.
set -euo pipefail
deb=$1 python=$2 containerfile=$3 pod="/usr/bin/python3 -B $4" manifests=$5 script=$6
shift 6
here=$(dirname "$deb")
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/tmp LC_ALL=C.UTF-8 PODS=/pods
unset XDG_RUNTIME_DIR
daemon=$PODS/manifests/statefulset.yaml
in_daemon() { $pod exec $daemon traincheckctl "$@"; }
wait_for() { # COMMAND...: until it succeeds
  for _ in $(seq 600); do
    if "$@" >/dev/null 2>&1; then return; fi
    sleep 0.2
  done
  echo "gave up waiting for: $*" >&2
  return 1
}

/usr/bin/python3 -B "$here/image.py" build "$containerfile" "$here"
mkdir -p $PODS/secrets/{traincheckd,traincheck-client} $PODS/volumes $PODS/training
cp -r "$manifests" $PODS/manifests
cp "$containerfile" $PODS/Containerfile
cp "$script" $PODS/training
echo '127.0.0.1 traincheckd.traincheck.svc' >>/etc/hosts
# Users of this root may read Python and torch.
for folder in "$(readlink -f "$python")" "$python" "$("$python" -c '
import torch; print(torch.__file__)')"; do
  while [ "$folder" != / ]; do
    folder=$(dirname "$folder")
    chmod o+rx "$folder"
  done
done

echo "== daemon"
cd $PODS
traincheckctl certs init --dir certs \
  --host traincheckd.traincheck.svc,localhost,127.0.0.1
put_certificate() {
  cp certs/server.pem secrets/traincheckd/tls.crt
  cp certs/server.key secrets/traincheckd/tls.key
  cp certs/ca.pem secrets/traincheckd/ca.crt
}
put_certificate
: >labels
$pod run $daemon 2>log &
started=$!
wait_for in_daemon status || cat log
in_daemon status

echo "== token"
in_daemon token create --role relay --owner alice --ttl 90d --out - \
  >secrets/traincheck-client/token
cp certs/ca.pem secrets/traincheck-client/ca.pem
in_daemon token list

train() { # MANIFEST RUN ARGUMENT...
  local manifest=$1
  printf '%s\n' "metadata.labels['batch.kubernetes.io/job-name']=train" \
    "metadata.labels['batch.kubernetes.io/controller-uid']=$2" >labels
  shift 2
  TRAINING="$python $PODS/training/$(basename "$script") $*" $pod run "$manifest"
}
echo "== user"
train manifests/job.yaml d0f1 "$@"
ls -ln volumes/job/traincheck volumes/job/traincheck/client
echo "== user's run"
in_daemon -o json runs show train-d0f1
echo "== user's violations"
in_daemon violations list --run train-d0f1

echo "== root"
sed 's/: 1000/: 0/' manifests/job.yaml >manifests/root.yaml
train manifests/root.yaml d0f2 "$@"
echo "== root's run"
in_daemon -o json runs show train-d0f2

echo "== renewed"
traincheckctl certs renew --dir certs
put_certificate
$pod secrets
serial() { openssl x509 -noout -serial "$@"; }
shown() { openssl s_client -connect 127.0.0.1:7471 </dev/null 2>/dev/null | serial; }
is_new() { [ "$(shown)" = "$(serial -in certs/server.pem)" ]; }
wait_for is_new
echo "without a restart"
in_daemon status

echo "== ended"
kill $started
wait $started
tail -n 1 log
