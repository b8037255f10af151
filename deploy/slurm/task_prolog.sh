#!/bin/sh
# TaskProlog=/etc/slurm/traincheck_task_prolog.sh in slurm.conf: every task that
# imports torch is recorded and checked, as with `traincheckctl run`. Slurm runs
# this script before each task, with its environment and in its folder, and sets
# what it prints as "export NAME=value", the value as it stands, without quotes.
#
# Which daemon, or that the agent is off, says /etc/traincheck.yaml of the node.

# A job that has the agent by itself, and a node without it, stay as they are.
case "${LD_PRELOAD:-}" in
  *libtraincheck_agent.so*) exit 0 ;;
esac
command -v traincheckctl >/dev/null || exit 0

# The shell lines of `env`; it waits for a daemon that is away for at most 2 s.
lines=$(traincheckctl env) || exit 0
eval "$lines"
printf '%s\n' "$lines" | grep '^unset '
printf '%s\n' "$lines" | sed -n 's/^export \([A-Z_]*\)=.*/\1/p' |
  while read -r name; do
    eval "printf 'export %s=%s\n' \"$name\" \"\$$name\""
  done
