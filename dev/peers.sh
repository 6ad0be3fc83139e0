#!/usr/bin/env bash
# The relays that `make bench-peers` compares with, built or fetched once into target/peers. Says what is missing where that cannot be done.
set -uo pipefail
cd "$(dirname "$0")/.."
peers=$PWD/target/peers
sources=proof/peers/kafka-connect
mkdir -p "$peers"

say() { printf 'peers: %s\n' "$*"; }

# Redpanda Connect under its former name, with Go. Built again when what it is built from has changed.
benthos() {
  local program=$peers/connect log=$peers/build.log stamp=$peers/connect.sources
  [ -x "$program" ] && cat proof/peers/main.go proof/peers/go.sum | cmp -s - "$stamp" && return 0
  if ! command -v go >/dev/null; then
    say "Redpanda Connect is left out: Go is not on this machine"
    return 0
  fi
  say "building Benthos (Redpanda Connect under its former name) with Go, once"
  rm -f "$program"
  if (cd proof/peers && go build -trimpath -o "$program" .) >"$log" 2>&1; then
    cat proof/peers/main.go proof/peers/go.sum >"$stamp"
  else
    say "Redpanda Connect is left out: it cannot be built here, see $log:"
    tail -n 3 "$log"
  fi
}

is_fetched() { cmp -s "$sources/$1" "$2.fetched"; } # pom, folder

fetch() { # pom, folder, log
  is_fetched "$1" "$2" && return 0
  rm -rf "$2" "$2.fetched"
  mkdir -p "$2"
  mvn -q -B -f "$sources/$1" dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$2" >"$3" 2>&1 \
    || { rm -rf "$2"; return 1; }
  cp "$sources/$1" "$2.fetched"
}

# A worker and Apache Camel's HTTP sink, with Maven: both or neither. A repository that lacks the newer sink may have the older one.
kafka_connect() {
  local home=$peers/kafka-connect log=$peers/maven
  local sink=$home/plugins/http-sink
  if is_fetched worker.xml "$home/lib" && { is_fetched sink.xml "$sink" || is_fetched older-sink.xml "$sink"; }; then return 0; fi
  for tool in java mvn; do
    if ! command -v "$tool" >/dev/null; then
      say "Kafka Connect is left out: $tool is not on this machine"
      return 0
    fi
  done
  say "fetching Kafka Connect and an HTTP sink with Maven, once"
  if ! fetch worker.xml "$home/lib" "$log-worker.log"; then
    say "Kafka Connect is left out: its worker cannot be fetched, see $log-worker.log:"
    tail -n 3 "$log-worker.log"
  elif fetch sink.xml "$sink" "$log-sink.log"; then
    say "Kafka Connect has camel-http-sink-kafka-connector"
  elif fetch older-sink.xml "$sink" "$log-older-sink.log"; then
    say "camel-http-sink-kafka-connector cannot be fetched (see $log-sink.log): Kafka Connect has camel-kafka-connector with camel-http"
  else
    say "Kafka Connect is left out: org.apache.camel.kafkaconnector cannot be fetched, see $log-sink.log and $log-older-sink.log:"
    tail -n 3 "$log-sink.log"
    # Without a sink there is nothing to compare with.
    rm -rf "$home/lib" "$home/lib.fetched"
  fi
}

benthos
kafka_connect
