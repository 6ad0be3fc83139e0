#!/usr/bin/env bash
# fmt, clippy, all tests; the last line sums them up as `N passed, M failed`.
set -uo pipefail
cd "$(dirname "$0")/.."
log=target/test.log
failed=0
dev/services.sh up
status=$?
# Without a JVM or Maven the tests host librdkafka's mock cluster, and those that need a real broker are skipped.
if [ "$status" = 3 ]; then
  KAFKA_BROKERS=embedded dev/services.sh up || exit 1
elif [ "$status" != 0 ]; then
  exit "$status"
fi
source target/dev/env
# One test profile runs behind pgbouncer; without it that test says that it was skipped.
if ! command -v pgbouncer >/dev/null && command -v apt-get >/dev/null && [ "$(id -u)" = 0 ]; then
  echo "test: installing Debian package: pgbouncer"
  { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends pgbouncer; } \
    >target/pgbouncer.log 2>&1 || echo "test: pgbouncer cannot be installed"
  # The package starts a pooler of its own, which nobody asked for.
  service pgbouncer stop >/dev/null 2>&1
fi
# The tests ask for these themselves; here what is fetched can be seen. Without them the tests say that they were skipped.
dev/receivers.sh python
dev/receivers.sh typescript
for tool in browser promtool schemathesis hadolint; do dev/tools.sh "$tool"; done
dev/helm.sh tool
export PATH="$PWD/target/tools:$PATH"
run() { echo "== $*"; "$@" 2>&1 | tee -a "$log"; return "${PIPESTATUS[0]}"; }
: >"$log"
rm -f target/skipped.log
if cargo fmt --version >/dev/null 2>&1; then run cargo fmt --all --check || failed=1; fi
if cargo clippy --version >/dev/null 2>&1; then
  run cargo clippy --quiet --workspace --all-targets --features failpoints -- -D warnings || failed=1
fi
# Most of a test's time is waiting, so that one more than there are cores runs at once.
export RUST_TEST_THREADS=${RUST_TEST_THREADS:-$(($(nproc) + 1))}
# The kits in clients/ and the release before are built for tests of their own: `make test-clients`, `make upgrade`.
run cargo test --workspace --no-fail-fast --features failpoints -- --skip receivers::kits --skip upgrade:: || failed=1
sums=$(awk '/^test result:/ {for (i = 1; i <= NF; i++) { if ($(i + 1) ~ /^passed/) p += $i; if ($(i + 1) ~ /^failed/) f += $i; if ($(i + 1) ~ /^ignored/) s += $i }} END {print p + 0, f + 0, s + 0}' "$log")
read -r passed broken skipped <<<"$sums"
if [ "$failed" != 0 ] && [ "$broken" = 0 ]; then broken=1; fi
# A short run under faults, checked against its own evidence, counts as one test. `make chaos` is the long one.
if [ "$KAFKA_BROKERS" = embedded ]; then
  echo "skipped: chaos: needs a real broker that can be killed" >>target/skipped.log
  passed=$((passed + 1))
elif run env RUST_BACKTRACE=0 target/debug/oncebox-proof chaos --short --seed "${SEED:-1}"; then
  passed=$((passed + 1))
else
  failed=1
  broken=$((broken + 1))
  echo "failed: the short run under faults; its last lines:"
  tail -n 30 "$log"
fi
# Said again where it is looked for first: what failed, and what it said, without the stack.
awk '/^---- .* stdout ----$/ {shown = 40; print "failed: " $2; next}
  /^failures:$/ {shown = 0}
  shown > 0 && !/^ +([0-9]+: |at )/ && NF {print "  " $0; shown--}' "$log"
# Tests that found something missing on this machine say so in a file; they count as skipped, not as passed.
if [ -f target/skipped.log ]; then
  sort target/skipped.log
  unable=$(wc -l <target/skipped.log)
  passed=$((passed - unable))
  skipped=$((skipped + unable))
fi
if [ "$KAFKA_BROKERS" = embedded ]; then
  echo "test: Kafka was librdkafka's mock cluster, because no JVM or Maven could be had here"
fi
echo "$passed passed, $broken failed, $skipped skipped"
[ "$failed" = 0 ] && [ "$broken" = 0 ] && [ "$passed" -gt 0 ]
