#!/usr/bin/env bash
# Runs a script in a root of its own: this host's files under an overlay that is
# gone afterwards, with processes and a loopback of its own. Needs root, or user
# namespaces.
#
#   clean_root.sh FOLDER SCRIPT [ARGUMENT...]
#
# FOLDER is seen under its own name, and what is written there stays.
set -euo pipefail
export PATH=/usr/sbin:/usr/bin:/sbin:/bin # Bazel's has no chroot
if [ "${1:-}" = --inside ]; then
  shift
  folder=$1 root=$2
  shift 2
  mount -t tmpfs -o mode=755 overlay "$root"
  mkdir "$root"/{upper,work,merged}
  mount -t overlay overlay \
    -o "lowerdir=/,upperdir=$root/upper,workdir=$root/work" "$root/merged"
  mount -t proc proc "$root/merged/proc"
  mount -t tmpfs -o mode=1777 tmp "$root/merged/tmp"
  for shared in /dev /sys "$folder"; do
    mkdir -p "$root/merged$shared"
    mount --rbind "$shared" "$root/merged$shared"
  done
  ip link set lo up
  exec chroot "$root/merged" "$@"
fi

folder=$(readlink -f "$1")
shift
root=$(mktemp -d)
trap 'rmdir "$root"' EXIT
namespaces=(--mount --pid --fork --kill-child --ipc --net)
[ "$(id -u)" = 0 ] || namespaces+=(--user --map-root-user)
unshare "${namespaces[@]}" "$0" --inside "$folder" "$root" "$@"
