#!/usr/bin/env bash
# Builds packages into deploy/out:
#
#   deploy/build.sh wheel     what pip installs
#   deploy/build.sh deb       what apt and dpkg install
#   deploy/build.sh image     the container image, with buildah
#   deploy/build.sh           wheel and deb
#
# The same sources and Debian packages give the same bytes.
set -euo pipefail
cd "$(dirname "$0")/.."

what=("$@")
[ "${#what[@]}" -gt 0 ] || what=(wheel deb)
mkdir -p deploy/out

# take NAME PATTERN: builds //deploy:NAME, in place of an older file
take() {
  tools/build.sh build --noshow_progress --show_result=0 \
    --ui_event_filters=-info "//deploy:$1"
  # shellcheck disable=SC2086 # a pattern
  rm -f deploy/out/$2
  # shellcheck disable=SC2086
  cp --no-preserve=mode bazel-bin/deploy/$2 deploy/out/
  # shellcheck disable=SC2086
  (cd deploy/out && sha256sum $2)
}

for name in "${what[@]}"; do
  case $name in
    wheel) take wheel 'traincheckd-*.whl' ;;
    deb) take deb 'traincheckd_*.deb' ;;
    image)
      take deb 'traincheckd_*.deb'
      cp deploy/container/*.sh deploy/out/
      buildah build --file deploy/container/Containerfile \
        --tag traincheckd:0.1.0 deploy/out
      ;;
    *)
      echo "deploy/build.sh: wheel, deb or image, not \"$name\"" >&2
      exit 2
      ;;
  esac
done
