#!/usr/bin/env bash
# Builds the release before this one, once, into target/previous, out of the project's own history. Prints where its binary is.
#
# dev/previous names its commit: the last one with the schema that installations have before an upgrade to this one.
set -euo pipefail
cd "$(dirname "$0")/.."
commit=$(grep -v '^#' dev/previous)
out=$PWD/target/previous/$commit
if ! [ -x "$out/oncebox" ]; then
  git cat-file -e "$commit^{commit}" 2>/dev/null || { echo "previous: $commit is not in this clone's history" >&2; exit 3; }
  echo "previous: building $commit into $out (once, some minutes)" >&2
  rm -rf "$out" && mkdir -p "$out/source"
  git archive "$commit" | tar -x -C "$out/source"
  (cd "$out/source" && CARGO_TARGET_DIR="$out/build" cargo build --quiet --bin oncebox) >&2
  mv "$out/build/debug/oncebox" "$out/oncebox"
  rm -rf "$out/build" "$out/source"
fi
echo "$out/oncebox"
