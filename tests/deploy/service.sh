#!/usr/bin/env bash
# The package under a systemd that runs: a minimal Debian 12 with it boots in a
# container, and what inside_service_root.sh does there is checked. Needs root,
# mmdebstrap and systemd-container. Part of the long tier: tools/long_tests.sh run
# service.
#
#   service.sh DEB
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
deb=$(readlink -f "$1")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/root

mmdebstrap --quiet --variant=minbase --include=systemd,systemd-sysv,dbus \
  bookworm "$work/root.tar"
mkdir "$root"
tar -C "$root" -xf "$work/root.tar"
mkdir "$root/inside"
cp "$deb" "$here/inside_service_root.sh" "$root/inside/"
chroot "$root" dpkg --install "/inside/$(basename "$deb")" >/dev/null
if [ -e "$root/etc/systemd/system/multi-user.target.wants/traincheckd.service" ]
then
  echo "the service is enabled by its installation" >&2
  exit 1
fi
cat >"$root/etc/systemd/system/inside.service" <<'END'
[Service]
Type=oneshot
ExecStart=/inside/inside_service_root.sh
StandardOutput=file:/inside/out
StandardError=file:/inside/out
ExecStopPost=systemctl poweroff
[Install]
WantedBy=multi-user.target
END
chroot "$root" systemctl --quiet enable inside.service

timeout 300 systemd-nspawn --quiet --register=no --keep-unit --private-network \
  --directory="$root" --boot </dev/null >"$work/console" 2>&1 ||
  tail -n 20 "$work/console" >&2
cat "$root/inside/out"
grep -qx 'all is well' "$root/inside/out"
