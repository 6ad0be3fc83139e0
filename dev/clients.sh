#!/usr/bin/env bash
# The receivers' kits in clients/: fetches what one needs into target/clients, builds it there, and runs its tests.
#
#   dev/clients.sh LANG test             its tests; the last line sums them up. DATABASE_URL: those on a real Postgres too
#   dev/clients.sh LANG sample-command   builds, and prints the command that starts its sample receiver, a word per line
#   dev/clients.sh all test              every kit; the last line is `N passed, M failed, K skipped`
#   dev/clients.sh all relay             the same, and then the real relay delivering to each sample
#
# LANG: python, typescript, go, java, rust, csharp. Nothing is written into clients/. Exit code 3: it cannot be had here, and
# the last line says why. What was skipped is named before the last line of `all`.
set -uo pipefail
cd "$(dirname "$0")/.."
root=$PWD
out=$root/target/clients
language=${1:-}
action=${2:-}

say() { printf 'clients: %s\n' "$*" >&2; }

give_up() {
  say "$*"
  exit 3
}

install() {
  [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || return 1
  say "installing Debian package(s): $*"
  apt-get update -qq >&2 && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >&2
}

# A copy of the kit, so that what a build leaves behind is not left among the sources.
copy() {
  rm -rf "$2"
  mkdir -p "$2"
  cp -R "$root/clients/$1/." "$2/"
}

# All that a build hangs on, in one line.
fingerprint() { (cd "$root/clients/$1" && find . -type f | LC_ALL=C sort | xargs sha256sum | sha256sum); }

# $1: what came out is of these sources. With two arguments: say so.
is_built() { [ "$(cat "$out/$1/.complete" 2>/dev/null)" = "$(fingerprint "$1")" ]; }
built() { fingerprint "$1" >"$out/$1/.complete"; }

# Reads a log of tests; prints the line that `all` adds up.
sum_up() {
  printf '%s: %s passed, %s failed, %s skipped\n' "$language" "$1" "$2" "$3"
  [ "$2" = 0 ]
}

count() { grep -cE "$1" "$log" || true; }

prepare_python() {
  local venv=$out/python/venv kit=$out/python/kit
  if ! python3 -c 'import ensurepip, venv' 2>/dev/null; then
    install python3 python3-venv || give_up "no Python with venv can be had"
  fi
  is_built python && return 0
  copy python "$kit"
  rm -rf "$venv"
  say "fetching psycopg and setuptools with pip into $venv"
  python3 -m venv "$venv" >&2 || give_up "no virtual environment can be made"
  timeout 300 "$venv/bin/pip" install --quiet --disable-pip-version-check --retries 1 --timeout 20 "$kit[sample]" >&2 \
    || give_up "the Python kit cannot be installed"
  built python
}

sample_python() { printf '%s\n' "$out/python/venv/bin/python" "$out/python/kit/sample/main.py"; }

test_python() {
  (cd "$out/python/kit" && ../venv/bin/python -W error -m unittest discover -v -s tests) 2>&1 | tee "$log"
  local status=$? skipped failed
  skipped=$(count ' \.\.\. skipped')
  failed=$(count '^(FAIL|ERROR):')
  [ "$status" = 0 ] || [ "$failed" != 0 ] || failed=1
  sum_up "$(count ' \.\.\. ok$')" "$failed" "$skipped"
}

prepare_typescript() {
  local kit=$out/typescript/kit
  if ! command -v npm >/dev/null; then install nodejs npm || give_up "no Node.js with npm can be had"; fi
  is_built typescript && return 0
  copy typescript "$kit"
  say "fetching pg and typescript with npm into $kit"
  (cd "$kit" && timeout 300 npm ci --ignore-scripts --no-audit --no-fund --loglevel=error --fetch-retries=1) >&2 \
    || give_up "pg and typescript cannot be had"
  # Not something that is missing: a kit that does not compile is a failure.
  (cd "$kit" && node_modules/.bin/tsc) >&2 || exit 1
  built typescript
}

sample_typescript() { printf '%s\n' node "$out/typescript/kit/dist/sample/main.js"; }

test_typescript() {
  (cd "$out/typescript/kit" && node --test --test-reporter=spec dist/test/) 2>&1 | tee "$log"
  local status=$? failed
  of() { sed -nE "s/^ℹ $1 ([0-9]+)$/\1/p" "$log" | tail -n 1 | grep . || echo 0; }
  failed=$(($(of fail) + $(of cancelled)))
  [ "$status" = 0 ] || [ "$failed" != 0 ] || failed=1
  sum_up "$(of pass)" "$failed" "$(of skipped)"
}

# Nothing is written beside the sources here, so that they are built where they are.
go_here() {
  (
    cd "$root/clients/go" || exit
    export GOMODCACHE=$out/go/modules GOCACHE=$out/go/cache GOFLAGS=-modcacherw GOWORK=off CGO_ENABLED=0 GOTOOLCHAIN=local
    go "$@"
  )
}

prepare_go() {
  # Debian's own is too old.
  command -v go >/dev/null || give_up "no Go can be had"
  go_here list -m >/dev/null 2>&1 || give_up "Go 1.23 or newer cannot be had: this is $(go env GOVERSION)"
  is_built go && return 0
  say "fetching pgx with go into $out/go/modules"
  go_here mod download >&2 || give_up "pgx cannot be had"
  go_here build -o "$out/go/sample" ./sample >&2 || exit 1
  built go
}

sample_go() { printf '%s\n' "$out/go/sample"; }

test_go() {
  { go_here vet ./... && go_here test -count=1 -v ./...; } 2>&1 | tee "$log"
  local status=$? failed
  failed=$(count '^--- FAIL')
  [ "$status" = 0 ] || [ "$failed" != 0 ] || failed=1
  sum_up "$(count '^--- PASS')" "$failed" "$(count '^--- SKIP')"
}

maven() {
  (cd "$out/java/kit" && timeout 600 mvn -B -ntp -Dmaven.repo.local="$out/java/repository" -Dstyle.color=never "$@" 2>&1) \
    | sed 's/\x1b\[[0-9;]*m//g' | grep -vE '^(\[INFO\] *(-+|Scanning.*)?)?$'
}

prepare_java() {
  if ! command -v mvn >/dev/null || ! command -v javac >/dev/null; then
    install maven default-jdk-headless || give_up "no Maven with a JDK can be had"
  fi
  is_built java && return 0
  copy java "$out/java/kit"
  say "fetching the JDBC driver, Jackson and JUnit with maven into $out/java/repository"
  maven -DskipTests -DoutputDirectory="$out/java/lib" test dependency:copy-dependencies 2>&1 | tee "$log" >&2
  if [ "${PIPESTATUS[0]}" != 0 ]; then
    ! grep -q 'COMPILATION ERROR' "$log" || exit 1
    give_up "the JDBC driver, Jackson and JUnit cannot be had"
  fi
  built java
}

sample_java() {
  local kit=$out/java/kit/target
  printf '%s\n' java -cp "$kit/classes:$kit/test-classes:$out/java/lib/*" dev.oncebox.sample.Main
}

test_java() {
  maven surefire:test | tee "$log"
  local status=$? counts run failures errors skipped
  counts=$(grep -E '^\[[A-Z]+\] Tests run: [0-9]+, Failures: [0-9]+, Errors: [0-9]+, Skipped: [0-9]+ *$' "$log" | tail -n 1)
  read -r run failures errors skipped <<<"$(tr -dc '0-9 ' <<<"${counts#*]}")"
  failures=$((${failures:-1} + ${errors:-0}))
  [ "$status" = 0 ] || [ "$failures" != 0 ] || failures=1
  sum_up "$((${run:-1} - failures - ${skipped:-0}))" "$failures" "${skipped:-0}"
}

# Built where it is: all that cargo writes goes under target/.
cargo_here() { (cd "$root/clients/rust" && CARGO_TARGET_DIR=$out/rust cargo "$@"); }

prepare_rust() {
  command -v cargo >/dev/null || give_up "no Rust can be had"
  is_built rust && return 0
  say "fetching crates with cargo"
  CARGO_NET_RETRY=1 cargo_here fetch --locked --quiet >&2 || give_up "the crates cannot be had"
  cargo_here build --locked --quiet --example sample >&2 || exit 1
  built rust
}

sample_rust() { printf '%s\n' "$out/rust/debug/examples/sample"; }

test_rust() {
  cargo_here test --locked --quiet --no-fail-fast -- --nocapture 2>&1 | tee "$log"
  local status=$? passed failed skipped
  passed=$(sed -nE 's/^test result: .* ([0-9]+) passed.*/\1/p' "$log" | awk '{sum += $1} END {print sum + 0}')
  failed=$(sed -nE 's/^test result: .* ([0-9]+) failed.*/\1/p' "$log" | awk '{sum += $1} END {print sum + 0}')
  skipped=$(count '^skipped: ')
  [ "$status" = 0 ] || [ "$failed" != 0 ] || failed=1
  sum_up "$((passed - skipped))" "$failed" "$skipped"
}

prepare_csharp() { give_up "the C# sketch has no tests"; }

passed=0 failed=0 skipped=0
add() { passed=$((passed + $1)) failed=$((failed + $2)) skipped=$((skipped + $3)); }

each_kit() {
  local one line status
  for one in python typescript go java rust csharp; do
    echo "== $one"
    dev/clients.sh "$one" test 2>&1 | tee "$out/$one.log"
    status=${PIPESTATUS[0]}
    line=$(grep -E "^$one: [0-9]+ passed" "$out/$one.log" | tail -n 1)
    if [ -n "$line" ]; then
      # shellcheck disable=SC2046
      add $(tr -dc '0-9 ' <<<"$line")
    elif [ "$status" = 3 ]; then
      add 0 0 1
      echo "skipped: $one: $(tail -n 1 "$out/$one.log" | sed 's/^clients: //')" >>"$out/skipped"
    else
      add 0 1 0
    fi
  done
}

# A test that found its kit missing says so in target/skipped.log; for cargo it has passed.
relay() {
  local earlier status ran broken unable
  echo "== relay"
  earlier=$(cat target/skipped.log 2>/dev/null | wc -l)
  cargo test --features failpoints --test it -- receivers::kits 2>&1 | tee "$out/relay.log"
  status=${PIPESTATUS[0]}
  ran=$(sed -nE 's/^test result: .* ([0-9]+) passed.*/\1/p' "$out/relay.log" | tail -n 1)
  broken=$(sed -nE 's/^test result: .* ([0-9]+) failed.*/\1/p' "$out/relay.log" | tail -n 1)
  [ "$status" = 0 ] || [ "${broken:-0}" != 0 ] || broken=1
  tail -n "+$((earlier + 1))" target/skipped.log 2>/dev/null | grep '^skipped: receivers::kits::' >"$out/unable"
  unable=$(wc -l <"$out/unable")
  sort "$out/unable" >>"$out/skipped"
  add "$((${ran:-0} - unable))" "${broken:-0}" "$unable"
}

close() {
  cat "$out/skipped"
  echo "$passed passed, $failed failed, $skipped skipped"
  [ "$failed" = 0 ]
}

usage() {
  sed -n '2,10p' dev/clients.sh | cut -c 3- >&2
  exit 2
}

mkdir -p "$out"
case "$language:$action" in
  all:test | all:relay)
    : >"$out/skipped"
    each_kit
    [ "$action" = test ] || relay
    close
    ;;
  python:* | typescript:* | go:* | java:* | rust:* | csharp:*)
    log=$out/$language.test.log
    mkdir -p "$out/$language"
    # Tests in parallel: the second waits, and finds all there.
    exec 9>"$out/$language.lock"
    flock 9
    # Beside the copy of the kit, as it is beside the kit.
    cp clients/vectors.* "$out/$language/"
    "prepare_$language"
    flock -u 9
    case "$action" in
      test) "test_$language" ;;
      sample-command) "sample_$language" ;;
      *) usage ;;
    esac
    ;;
  *) usage ;;
esac
