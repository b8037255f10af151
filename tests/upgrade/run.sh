#!/usr/bin/env bash
# Runs this version beside an earlier one: rolling.py says what.
#
#   tests/upgrade/run.sh [COMMIT]
#
# COMMIT is the earlier one; by default the one that recorded the newest fixtures. It is
# built in a work tree below the cache. TRAINCHECK_OLD_DIST and TRAINCHECK_DIST take
# builds that are there already.
set -euo pipefail
cd "$(dirname "$0")/../.."
commit=${1:-$(git log -1 --format=%H -- tests/upgrade/recorded)}
python=$(tools/setup.sh | tail -n 1)
build() {
  tools/build.sh build --noshow_progress --ui_event_filters=-info --show_result=0 \
    //deploy:dist
}
if [ -z "${TRAINCHECK_OLD_DIST:-}" ]; then
  cache=${XDG_CACHE_HOME:-$HOME/.cache}/traincheckd/upgrade
  tree=$cache/tree
  mkdir -p "$cache"
  git worktree prune
  if [ -d "$tree" ]; then
    git -C "$tree" checkout -q --detach "$commit"
  else
    git worktree add -q --detach "$tree" "$commit"
  fi
  (cd "$tree" && build)
  rm -rf "$cache/dist"
  cp -rL "$tree/bazel-bin/deploy/dist" "$cache/dist"
  TRAINCHECK_OLD_DIST=$cache/dist
fi
if [ -z "${TRAINCHECK_DIST:-}" ]; then
  build
  TRAINCHECK_DIST=$(readlink -f bazel-bin/deploy/dist)
fi
export TRAINCHECK_OLD_DIST TRAINCHECK_DIST PYTHONPATH=tests/integration:tests
echo "earlier: $commit"
exec "$python" tests/upgrade/rolling.py
