#!/usr/bin/env bash
# Starts what the demo needs and runs it. Without a JVM or Maven, librdkafka's mock cluster stands in for Kafka.
set -uo pipefail
cd "$(dirname "$0")/.."
dev/services.sh up
status=$?
embedded=""
if [ "$status" = 3 ]; then
  coproc BROKER { exec target/release/oncebox embedded-broker; }
  embedded=$BROKER_PID
  case " $* ${DEMO_FLAGS:-} " in
    *" --keep "*) kept="; stop it with: kill $embedded" ;;
    *) trap 'kill "$embedded" 2>/dev/null' EXIT ;;
  esac
  read -r brokers <&"${BROKER[0]}"
  KAFKA_BROKERS=$brokers dev/services.sh up || exit 1
  set -- "$@" --topic demo-orders
elif [ "$status" != 0 ]; then
  exit "$status"
fi
source target/dev/env
target/release/oncebox demo "$@" ${DEMO_FLAGS:-}
status=$?
if [ -n "$embedded" ]; then
  echo "demo: Kafka was librdkafka's mock cluster, because no JVM or Maven could be had here${kept:-}"
fi
exit "$status"
