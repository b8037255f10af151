#!/usr/bin/env bash
# Inside the container of service.sh: starts the service, looks at it, kills it,
# stops it, purges the package. Prints "all is well" at the end.
set -euxo pipefail
trap 'journalctl --unit=traincheckd --no-pager | tail -n 20' EXIT

token=$(mktemp -d)/token

property() { systemctl show --property="$1" --value traincheckd; }
answers() {
  for _ in $(seq 100); do
    if install -m 600 /var/lib/traincheckd/store/admin.token "$token" &&
      traincheckctl status; then return; fi
    sleep 0.2
  done
  return 1
}

[ "$(property ActiveState)" = inactive ]
systemctl enable --now traincheckd
# Root is another user than the service: it takes the administrator's token.
export TRAINCHECK_SERVER=127.0.0.1:7471 TRAINCHECK_TOKEN_FILE=$token
answers

# A user of its own, without capabilities, under a filter of system calls.
pid=$(property MainPID)
grep -E '^Uid:\s6[1-5][0-9]{3}\s' "/proc/$pid/status"
grep -E '^CapEff:\s0+$' "/proc/$pid/status"
grep -E '^NoNewPrivs:\s1$' "/proc/$pid/status"
grep -E '^Seccomp:\s2$' "/proc/$pid/status"
[ "$(stat -c %a /var/lib/private/traincheckd)" = 700 ]

traincheckctl backup /var/lib/traincheckd/backup
traincheckctl backup /etc/backup && exit 1
[ ! -e /etc/backup ]

kill -9 "$pid"
sleep 6
answers
[ "$(property NRestarts)" = 1 ]
systemctl stop traincheckd
[ "$(property Result)" = success ]

dpkg --purge traincheckd
[ ! -e /etc/traincheck ]
[ -d /var/lib/private/traincheckd/store ]
echo "all is well"
