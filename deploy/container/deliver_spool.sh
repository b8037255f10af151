#!/bin/sh
# A sidecar of a training: waits for its end (SIGTERM) and delivers what relays
# left in the spool FOLDER.
#
#   deliver_spool.sh FOLDER
folder=${1:?which folder}

deliver() {
  traincheckctl spool send "$folder"
  exit $?
}

trap deliver TERM INT
# A shell runs a trap only between commands.
sleep infinity &
wait $!
