#!/usr/bin/env bash
# Local services for the demo and the tests: one Apache Kafka broker, one PostgreSQL, both private to this checkout.
#
#   dev/services.sh up      start what is not running; writes target/dev/env
#   dev/services.sh down    stop both and remove their data
#   dev/services.sh status  say what runs
#   dev/services.sh fetch   only fetch what both need, for runs that start servers of their own
#
# KAFKA_BROKERS and DATABASE_URL, when set, are used instead of starting anything. All state is under target/dev.
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
dev="$root/target/dev"
given_brokers=${KAFKA_BROKERS:-}
given_database=${DATABASE_URL:-}

say() { printf 'services: %s\n' "$*" >&2; }

install() {
  say "installing Debian package(s): $*"
  local sudo=""
  if [ "$(id -u)" != 0 ]; then sudo="sudo"; fi
  $sudo apt-get update -qq >&2 || return 1
  DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y -qq --no-install-recommends "$@" >&2
}

alive() { [ -f "$1" ] && kill -0 "$(cat "$1")" 2>/dev/null; }

listening() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

free_port() {
  local port
  while :; do
    port=$((20000 + RANDOM % 12000))
    listening "$port" || { echo "$port"; return; }
  done
}

# Waits until "$@" succeeds; the first argument is how many tenths of a second to try.
await() {
  local tenths=$1
  shift
  for _ in $(seq "$tenths"); do
    "$@" && return 0
    sleep 0.1
  done
  return 1
}

stop() { # pid file, signal
  local pid
  alive "$1" || { rm -f "$1"; return 0; }
  pid=$(cat "$1")
  kill "-$2" "$pid" 2>/dev/null || true
  await 100 gone "$pid" || kill -9 "$pid" 2>/dev/null || true
  await 50 gone "$pid" || true
  rm -f "$1"
}

gone() { ! kill -0 "$1" 2>/dev/null; }

# --- PostgreSQL ------------------------------------------------------------------------------------------------------

postgres_bin() {
  local dir
  for dir in $(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | sort -rV) "$(dirname "$(command -v postgres || echo /none/x)")"; do
    if [ -x "$dir/initdb" ] && [ -x "$dir/postgres" ]; then echo "$dir"; return 0; fi
  done
  return 1
}

# PostgreSQL refuses to run as root.
as_postgres() {
  if [ "$(id -u)" != 0 ]; then "$@"; else runuser -u "$postgres_user" -- "$@"; fi
}

postgres_up() {
  local pid_file="$dev/postgres.pid" data port bin
  if alive "$pid_file" && listening "$(cat "$dev/postgres.port")"; then return 0; fi
  bin=$(postgres_bin) || { install postgresql && bin=$(postgres_bin); } || { say "no PostgreSQL can be had"; return 1; }
  postgres_user=nobody
  if id postgres >/dev/null 2>&1; then postgres_user=postgres; fi
  if [ -f "$dev/postgres.dir" ]; then
    data=$(cat "$dev/postgres.dir")
  else
    data="$dev/postgres"
    mkdir -p "$data"
    if [ "$(id -u)" = 0 ]; then
      chown "$postgres_user" "$data"
      # A checkout below a closed home directory cannot be entered by another user.
      as_postgres test -w "$data" 2>/dev/null || { data=$(mktemp -d /tmp/oncebox-postgres.XXXXXX); chown "$postgres_user" "$data"; }
    fi
    chmod 700 "$data"
    echo "$data" >"$dev/postgres.dir"
  fi
  if [ ! -f "$data/PG_VERSION" ]; then
    head -c 18 /dev/urandom | base64 | tr '+/' '-_' >"$dev/postgres.password"
    as_postgres "$bin/initdb" -D "$data" -U oncebox --auth=scram-sha-256 --pwfile=/dev/stdin --encoding=UTF8 \
      --locale=C <"$dev/postgres.password" >"$dev/initdb.log" 2>&1 || { cat "$dev/initdb.log" >&2; return 1; }
  fi
  port=$(free_port)
  echo "$port" >"$dev/postgres.port"
  # One test counts statements; without the library it says that it was skipped.
  local preload=()
  if [ -f "$bin/../lib/pg_stat_statements.so" ]; then
    preload=(-c shared_preload_libraries=pg_stat_statements -c pg_stat_statements.max=20000)
  fi
  (cd / && as_postgres setsid "$bin/postgres" -D "$data" -p "$port" -c listen_addresses=127.0.0.1 \
    -c unix_socket_directories= -c max_connections=300 -c shared_buffers=256MB -c max_wal_size=4GB \
    "${preload[@]}" -c log_min_messages=fatal) >"$dev/postgres.log" 2>&1 </dev/null &
  await 300 postgres_ready "$bin" "$port" || { say "PostgreSQL did not start"; tail -n 20 "$dev/postgres.log" >&2; return 1; }
  head -n 1 "$data/postmaster.pid" >"$pid_file"
  say "PostgreSQL $("$bin/postgres" --version | awk '{print $3}') on 127.0.0.1:$port"
}

postgres_ready() { "$1/pg_isready" -q -h 127.0.0.1 -p "$2" -U oncebox -d postgres; }

postgres_down() {
  stop "$dev/postgres.pid" INT
  if [ -f "$dev/postgres.dir" ]; then rm -rf "$(cat "$dev/postgres.dir")"; fi
  rm -f "$dev/postgres.dir" "$dev/postgres.port" "$dev/postgres.password" "$dev/postgres.log" "$dev/initdb.log"
}

# --- Kafka -----------------------------------------------------------------------------------------------------------

kafka_jars() {
  local lib="$dev/kafka/lib"
  cmp -s "$root/dev/pom.xml" "$lib/.complete" && return 0
  command -v mvn >/dev/null || install maven || return 1
  say "fetching Kafka's jars with Maven (once)"
  mvn -q -B -f "$root/dev/pom.xml" dependency:copy-dependencies -DincludeScope=runtime \
    -DoutputDirectory="$lib" >"$dev/maven.log" 2>&1 || { tail -n 20 "$dev/maven.log" >&2; return 1; }
  cp "$root/dev/pom.xml" "$lib/.complete"
}

kafka_up() {
  local pid_file="$dev/kafka.pid" data="$dev/kafka/data" port controller
  if alive "$pid_file" && listening "$(cat "$dev/kafka.port")"; then return 0; fi
  command -v java >/dev/null || install default-jre-headless || { say "no JVM can be had"; return 3; }
  kafka_jars || { say "no Kafka jars can be had"; return 3; }
  port=$(free_port)
  controller=$(free_port)
  mkdir -p "$dev/kafka"
  sed -e "s|@PORT@|$port|g" -e "s|@CONTROLLER@|$controller|g" -e "s|@DATA@|$data|g" "$root/dev/kafka.properties" \
    >"$dev/kafka/server.properties"
  # The controller's port is part of the stored state, so a broker that was stopped starts with new data.
  rm -rf "$data"
  java -cp "$dev/kafka/lib/*" kafka.tools.StorageTool format "--cluster-id=$(cluster_uuid)" -c "$dev/kafka/server.properties" \
    >"$dev/kafka/format.log" 2>&1 || { cat "$dev/kafka/format.log" >&2; return 1; }
  echo "$port" >"$dev/kafka.port"
  (cd / && exec setsid java -Xms256m -Xmx768m -XX:+UseSerialGC -cp "$dev/kafka/lib/*" kafka.Kafka \
    "$dev/kafka/server.properties") >"$dev/kafka/broker.log" 2>&1 </dev/null &
  echo $! >"$pid_file"
  await 600 listening "$port" || { say "Kafka did not start"; tail -n 20 "$dev/kafka/broker.log" >&2; return 1; }
  say "Apache Kafka on 127.0.0.1:$port"
}

# 16 random bytes as Kafka writes its cluster ids.
cluster_uuid() { head -c 16 /dev/urandom | base64 | tr '+/' '-_' | cut -c1-22; }

kafka_down() {
  stop "$dev/kafka.pid" TERM
  rm -rf "$dev/kafka/data" "$dev/kafka/server.properties" "$dev/kafka/broker.log" "$dev/kafka/format.log"
  rm -f "$dev/kafka.port"
}

# --- verbs -----------------------------------------------------------------------------------------------------------

up() {
  if [ -z "$given_database" ]; then postgres_up; fi
  # 3: there can be no broker here, and the mock cluster may stand in. A broker that does not start is a failure.
  if [ -z "$given_brokers" ]; then kafka_up || return; fi
  write_env
}

write_env() {
  local database=$given_database brokers=$given_brokers
  [ -n "$database" ] || database="postgresql://oncebox:$(cat "$dev/postgres.password")@127.0.0.1:$(cat "$dev/postgres.port")/postgres"
  [ -n "$brokers" ] || brokers="127.0.0.1:$(cat "$dev/kafka.port")"
  printf 'export DATABASE_URL=%q\nexport KAFKA_BROKERS=%q\n' "$database" "$brokers" >"$dev/env"
}

case "${1:-}" in
  up)
    mkdir -p "$dev"
    # Two makes at once: the second waits, and finds all running. The lock is not inherited by the services.
    exec flock -o "$dev/lock" "$0" locked-up
    ;;
  locked-up) up ;;
  fetch)
    mkdir -p "$dev/kafka"
    postgres_bin >/dev/null || install postgresql
    command -v java >/dev/null || install default-jre-headless || { say "no JVM can be had"; exit 3; }
    kafka_jars || { say "no Kafka jars can be had"; exit 3; }
    ;;
  down)
    [ -d "$dev" ] || exit 0
    kafka_down
    postgres_down
    rm -f "$dev/env" "$dev/lock"
    ;;
  status)
    for name in postgres kafka; do
      if alive "$dev/$name.pid"; then echo "$name: running on port $(cat "$dev/$name.port")"; else echo "$name: not running"; fi
    done
    ;;
  *)
    echo "usage: dev/services.sh up | down | status | fetch" >&2
    exit 2
    ;;
esac
