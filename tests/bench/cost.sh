#!/usr/bin/env bash
# What the agent costs ten trainings: see cost.py, which gets the options.
#
#   tests/bench/cost.sh --pairs 15 --modes bare,full
exec "$(dirname "$0")/run.sh" cost.py "$@"
