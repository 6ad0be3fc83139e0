# Every target does its own set-up. `make` alone lists them.
SHELL := /bin/bash
.DEFAULT_GOAL := help

SERVICES := dev/services.sh
WITH_SERVICES := $(SERVICES) up && source target/dev/env &&

.PHONY: help up down demo test test-clients upgrade release deny lint kill-seams once-kills outages restarts reloads crowd races replays order bench bench-quick bench-peers bench-isolation chaos mutants helm image clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

up: ## start a local Kafka and Postgres; target/dev/env says where they are
	@$(SERVICES) up

down: ## stop them and remove their data
	@$(SERVICES) down

demo: ## 20,000 events through a relay that is killed five times: nothing lost, nothing applied twice
	@dev/toolchain.sh
	@cargo build --release --quiet
	@dev/demo.sh

test: ## formatting, clippy, unit tests, tests on real Kafka and Postgres
	@dev/toolchain.sh
	@dev/test.sh

kill-seams: ## kill -9 at every seam, 20 times each
	@dev/toolchain.sh
	@$(WITH_SERVICES) ONCEBOX_KILLS=20 cargo test --features failpoints --test it -- seams direct_faults --nocapture

once-kills: ## at-most-once: kill -9 between claim and answer, 200 times, and count
	@dev/toolchain.sh
	@$(WITH_SERVICES) ONCEBOX_KILLS=50 cargo test --features failpoints --test it -- a_kill_between_claim_and_answer

outages: ## the direct path with its endpoint, and then Postgres, away for a minute
	@dev/toolchain.sh
	@$(WITH_SERVICES) ONCEBOX_OUTAGE=60 cargo test --features failpoints --test it -- an_endpoint_that_is_down with_postgres_away

SEED ?= 1
ROUNDS ?= 1
chaos: ## ten minutes under 67 faults, checked against its evidence; SEED= repeats a run, ROUNDS= lengthens it, CHAOS_FLAGS=--synchronous loses no commit
	@dev/toolchain.sh
	@dev/services.sh fetch
	@cargo build --quiet --release --bin oncebox
	@cargo build --quiet --package oncebox-proof
	@target/debug/oncebox-proof chaos --seed $(SEED) --rounds $(ROUNDS) --binary target/release/oncebox $(CHAOS_FLAGS)

restarts: ## 20 rolling restarts in a row under load: no request twice
	@dev/toolchain.sh
	@$(WITH_SERVICES) ONCEBOX_RESTARTS=20 cargo test --features failpoints --test it -- a_rolling_restart_repeats_nothing

reloads: ## 20 reloads in a row under load: nothing lost, no request twice
	@dev/toolchain.sh
	@$(WITH_SERVICES) ONCEBOX_RELOADS=20 cargo test --features failpoints --test it -- reloads_under_load

crowd: ## 100,000 delayed events due in the same second: leased no faster than they are sent
	@dev/toolchain.sh
	@$(WITH_SERVICES) ONCEBOX_DUE=100000 cargo test --features failpoints --test it -- a_crowd_that_is_due_at_once

races: ## 64 connections with one uniqueness key, 1,000 rounds, two processes, from Kafka too: one wins each; and nobody ever sees none or two
	@dev/toolchain.sh
	@$(WITH_SERVICES) ONCEBOX_ROUNDS=1000 cargo test --features failpoints --test it -- scenario_11 whoever_looks_while --nocapture

replays: ## kill -9, twice, during a replay of 10,000 dead letters: each is replayed once
	@dev/toolchain.sh
	@$(WITH_SERVICES) ONCEBOX_LETTERS=10000 cargo test --features failpoints --test it -- two_kills_during_a_replay

EVENTS ?= 1000000
order: ## a million events over 10,000 ordering keys with failures, kills and rebalances: no inversion; EVENTS= makes it shorter
	@dev/toolchain.sh
	@dev/services.sh fetch
	@cargo build --quiet --release --bin oncebox
	@cargo build --quiet --package oncebox-proof
	@target/debug/oncebox-proof order --events $(EVENTS)

bench: ## what it costs beside the bare work: throughput, CPU, WAL, latency, growth, scale; figures and plots in target/bench-results, or in BENCH_OUT=
	@dev/toolchain.sh
	@dev/services.sh fetch
	@cargo build --quiet --release --workspace --bins
	@target/release/oncebox-proof bench $(BENCH_FLAGS)

bench-quick: ## the same in three minutes: fewer parts and rounds, smaller tables, which its figures say
	@$(MAKE) --no-print-directory bench BENCH_FLAGS="--quick"

bench-peers: ## events per second and CPU beside Redpanda Connect (as Benthos, its former name) and Kafka Connect, where they can be had
	@dev/peers.sh
	@$(MAKE) --no-print-directory bench BENCH_FLAGS="--only peers $(PEERS_FLAGS)"

bench-isolation: ## 100 workflows, one endpoint answering after 30 s, then with a million events stuck behind it: the p99 of the others against their own without it
	@dev/toolchain.sh
	@dev/services.sh fetch
	@cargo build --quiet --release --bin oncebox
	@cargo build --quiet --package oncebox-proof
	@target/debug/oncebox-proof isolation $(ISOLATION_FLAGS)
	@target/debug/oncebox-proof isolation --stuck 1000000 $(ISOLATION_FLAGS)

mutants: ## seeded bugs, one at a time: the tests must catch each
	@dev/toolchain.sh
	@dev/services.sh up
	@dev/mutants.sh

image: ## the Dockerfile and compose.yaml without Docker: hadolint, what they name is there, oncebox runs with what compose gives it
	@dev/image.sh all $(firstword $(wildcard target/release/oncebox target/debug/oncebox))

helm: ## the chart without a cluster: lint, snapshots, Kubernetes' schemas; and oncebox validates what it renders, where it is built
	@dev/helm.sh all $(firstword $(wildcard target/release/oncebox target/debug/oncebox))

test-clients: ## the receivers' kits: each one's own tests, then the real relay with lost answers, copies and kills delivering to each
	@dev/toolchain.sh
	@$(WITH_SERVICES) dev/clients.sh all relay

upgrade: ## the release before and this one side by side under load: nothing lost, nothing repeated; builds the one before, once
	@dev/toolchain.sh
	@$(WITH_SERVICES) ONCEBOX_PREVIOUS="$$(dev/previous.sh)" && export ONCEBOX_PREVIOUS && cargo test --features failpoints --test it -- upgrade

release: ## the binary with its commit, manual pages, completions and the notices of what it is made of, in target/release-files
	@dev/toolchain.sh
	@ONCEBOX_COMMIT="$$(git rev-parse HEAD)" cargo build --locked --release --bin oncebox
	@mkdir -p target/release-files/completions
	@cp target/release/oncebox LICENSE target/release-files/
	@dev/notices.sh >target/release-files/NOTICES
	@target/release/oncebox man target/release-files/man
	@for shell in bash zsh fish; do target/release/oncebox completions $$shell >target/release-files/completions/oncebox.$$shell; done
	@target/release/oncebox --version

deny: ## licences, sources and banned crates of all dependencies; builds cargo-deny, once
	@dev/toolchain.sh
	@dev/deny.sh

lint: ## formatting and clippy only
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --features failpoints -- -D warnings

clean: down ## stop the services and remove target/
	cargo clean
