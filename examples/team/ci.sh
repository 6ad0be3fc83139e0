#!/usr/bin/env bash
# What CI does with a change of the configuration: every mistake with its position, the workflows' own tests, and the exact request that a
# known record makes. Needs no Kafka, no Postgres, no secret.
#
#   examples/team/ci.sh [ONCEBOX]
set -euo pipefail
oncebox=${1:-oncebox}
case $oncebox in
  */*) oncebox=$(cd "$(dirname "$oncebox")" && pwd)/$(basename "$oncebox") ;;
esac
cd "$(dirname "$0")"
# Every reference must resolve. What is checked does not depend on what they hold, so that these need not be the real ones.
export KAFKA_BROKERS=${KAFKA_BROKERS:-localhost:9092}
export DATABASE_URL=${DATABASE_URL:-postgresql://localhost/oncebox}
export ADMIN_TOKEN=${ADMIN_TOKEN:-not-the-token-of-an-admin}
export VIEWER_TOKEN=${VIEWER_TOKEN:-not-the-token-of-a-viewer}
export ERP_TOKEN=${ERP_TOKEN:-not-the-token-of-the-erp}
export LEDGER_SIGNING_SECRET=${LEDGER_SIGNING_SECRET:-whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA}
echo "== validate"
"$oncebox" validate --config config
echo "== test"
"$oncebox" test --config config
echo "== preview"
request=$("$oncebox" preview orders-to-erp --event events/order.json --config config --json)
printf '%s\n' "$request"
grep -q '"disposition": *"delivered"' <<<"$request"
