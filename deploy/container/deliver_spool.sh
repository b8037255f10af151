#!/bin/sh
# A sidecar of a training: waits for its end (SIGTERM) and delivers what relays
# left in the spool FOLDER. Meanwhile it copies a new token or authority, if it is
# given the secret and the folder of the copies.
#
#   deliver_spool.sh FOLDER [SECRET COPIES [SECONDS]]
#
# SECONDS: how often it looks for a new one (60).
folder=${1:?which folder} secret=${2:-} copies=${3:-} seconds=${4:-60}

deliver() {
  kill "$sleeper" 2>/dev/null
  traincheckctl spool send "$folder"
  exit $?
}

trap deliver TERM INT
while :; do
  # A shell runs a trap at once only while it waits for a process of its own.
  sleep "$seconds" &
  sleeper=$!
  wait "$sleeper"
  [ -z "$secret" ] || "$(dirname "$0")/copy_secret.sh" "$secret" "$copies"
done
