#!/bin/sh
# A sidecar of a training: waits for its end (SIGTERM) and delivers what relays
# left in the spool FOLDER.
#
#   deliver_spool.sh FOLDER
folder=${1:?which folder}

# A shell runs a trap at once only while it waits for a process of its own.
sleep infinity &
sleeper=$!

deliver() {
  kill "$sleeper"
  traincheckctl spool send "$folder"
  exit $?
}

trap deliver TERM INT
wait "$sleeper"
