#!/bin/sh
# The init container of a training's pod. It makes in FOLDER, which the pod's
# containers share: agent (LD_PRELOAD), client (copies of the secret's files) and
# spool. All are the training's user's.
#
#   prepare_pod.sh SECRET FOLDER
set -eu
secret=${1:?which secret} folder=${2:?which folder}
programs=$(dirname "$0")

mkdir -p "$folder/agent"
cp -r "$programs/." "$folder/agent"
install -d -m 0700 "$folder/client" "$folder/spool"
"$programs/copy_secret.sh" "$secret" "$folder/client"
