#!/usr/bin/env bash
# What the receivers in docs/receivers need to run, fetched once into target/receivers.
#
#   dev/receivers.sh python       a virtual environment with psycopg and its pool, by pip from requirements.txt
#   dev/receivers.sh typescript   pg, typescript and their types, by npm ci from the lock file; main.ts compiled
#
# The Rust one is an example of the root package and needs nothing. Debian packages that are missing (python3, python3-venv;
# nodejs, npm) are installed by root. Exit code 3: it cannot be had here, and the last line says why.
set -uo pipefail
cd "$(dirname "$0")/.."
out=target/receivers
language=${1:-}

say() { printf 'receivers: %s\n' "$*" >&2; }

give_up() {
  say "$*"
  exit 3
}

install() {
  [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || return 1
  say "installing Debian package(s): $*"
  apt-get update -qq >&2 && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >&2
}

python() {
  local from=docs/receivers/python venv=$out/python
  cmp -s "$from/requirements.txt" "$venv/.complete" && return 0
  if ! python3 -c 'import ensurepip, venv' 2>/dev/null; then
    install python3 python3-venv || give_up "no Python with venv can be had"
  fi
  say "fetching psycopg with pip into $venv (once)"
  rm -rf "$venv"
  python3 -m venv "$venv" >&2 || give_up "no virtual environment can be made"
  timeout 300 "$venv/bin/pip" install --quiet --disable-pip-version-check --retries 1 --timeout 20 \
    --requirement "$from/requirements.txt" >&2 || give_up "psycopg cannot be had"
  cp "$from/requirements.txt" "$venv/.complete"
}

typescript() {
  local from=docs/receivers/typescript to=$out/typescript
  if ! command -v npm >/dev/null; then install nodejs npm || give_up "no Node.js with npm can be had"; fi
  mkdir -p "$to"
  if ! cmp -s "$from/package-lock.json" "$to/.complete"; then
    say "fetching pg and typescript with npm into $to (once)"
    cp "$from/package.json" "$from/package-lock.json" "$to/"
    (cd "$to" && timeout 300 npm ci --ignore-scripts --no-audit --no-fund --loglevel=error --fetch-retries=1) >&2 \
      || give_up "pg and typescript cannot be had"
    cp "$from/package-lock.json" "$to/.complete"
    rm -rf "$to/dist"
  fi
  cmp -s "$from/main.ts" "$to/main.ts" && cmp -s "$from/tsconfig.json" "$to/tsconfig.json" && [ -f "$to/dist/main.js" ] && return 0
  rm -rf "$to/dist"
  cp "$from/tsconfig.json" "$from/main.ts" "$to/"
  # Not something that is missing: a receiver that does not compile is a failure.
  (cd "$to" && node_modules/.bin/tsc) >&2 || { rm -rf "$to/dist"; exit 1; }
}

case "$language" in
  python | typescript)
    mkdir -p "$out"
    # Tests in parallel: the second waits, and finds all there.
    exec 9>"$out/lock"
    flock 9
    "$language"
    ;;
  *)
    echo "usage: dev/receivers.sh python | typescript" >&2
    exit 2
    ;;
esac
