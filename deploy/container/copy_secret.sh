#!/bin/sh
# Copies the files of a mounted secret, which are root's or their group's, into a
# folder of the calling user's, as files that are this user's alone: traincheckctl
# and relays refuse a token that others may read. Files that are equal already stay.
#
#   copy_secret.sh SECRET FOLDER
set -eu
secret=${1:?which secret} folder=${2:?into which folder}

for file in "$secret"/*; do
  copy=$folder/$(basename "$file")
  cmp -s "$file" "$copy" && continue
  install -m 0400 "$file" "$copy.next"
  mv -f "$copy.next" "$copy"
done
