#!/usr/bin/env bash
# Builds the relay that `make bench-peers` compares with, into target/peers; says what is missing where that cannot be done.
set -uo pipefail
cd "$(dirname "$0")/.."
program=$PWD/target/peers/connect
[ -x "$program" ] && exit 0
if ! command -v go >/dev/null; then
  echo "peers: Go is not on this machine: nothing to compare with"
  exit 0
fi
mkdir -p target/peers
echo "peers: building Benthos (Redpanda Connect under its former name) with Go, once"
if ! (cd proof/peers && go build -trimpath -o "$program" .) >target/peers/build.log 2>&1; then
  echo "peers: it cannot be built here, see target/peers/build.log:"
  tail -n 3 target/peers/build.log
fi
echo "peers: Kafka Connect is left out: no HTTP sink for it is published on Maven Central"
