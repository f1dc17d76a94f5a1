# Everything starts here. `make demo` and `make test` do all their set-up on a fresh Debian machine that has only Rust.
#
#   make demo     a throw-away PostgreSQL, Freshet in front of it, and what that is worth     ARGS="--keep" passes options on
#   make test     all checks and tests
#   make test-long   what `make test` leaves out for its time: what is hardly different on PostgreSQL 15 or MariaDB, more of Django's own tests, others' test suites
#   make test-patroni   switch-overs and failovers by Patroni, and how long clients wait for them
#   make check    formatting and lints alone
#   make fuzz     the fuzz targets of all decoders, an hour each                             FUZZ_SECONDS=60
#   make verdicts    what is made of the statements that real software sends, in figures      ARGS=--all prints each, --full: with REPLICA IDENTITY FULL
#   make soak     soak-stress, then soak-tags
#   make soak-stress   the stress test against real servers, 40 runs, a million checked reads      SOAK_SECONDS=50 each
#   make soak-tags   that every result which a change makes another is hit, and how often others are        TAG_CHANGES=100000
#   make bench    the workloads direct, through Freshet and through its peers, side by side, into docs/benchmarks
#   make bench-paper      a small version of all of it on PostgreSQL, MariaDB and MySQL, cards and sizing included, in under half an hour
#   make bench-peers      installs the peers, starts them on private ports and prints their addresses, until Ctrl-C
#   make bench-traces   hit ratios of replayed traces beside LRU, ARC, S3-FIFO and Belady, into docs/benchmarks      ARGS=--quick prints small ones
#   make bench-overhead   what Freshet costs: beside sysbench, PgBouncer and HAProxy, and at the database
#   make bench-index      the dependency index alone: bytes for each entry, changes applied in a second
#   make bench-scale      ten thousand connections: memory of each, and two thousand of them busy
#   make bench-instructions   instructions for each hit, miss, passing statement and applied change, under valgrind   ARGS=--write
#   make apps     MediaWiki, WordPress, Redmine and a Django shop direct and through Freshet, 1 ms away, into docs/benchmarks   ARGS="--only wordpress"
#   make docs     the documentation as a site, in target/docs/index.html
#   make deny     licences, sources and known vulnerabilities of the dependencies (deny.toml)
#   make packages   deb, rpm and tar of one static binary, in target/packages      FRESHET_BINARIES=FOLDER: built already by script/build-release
#   make test-packages   installs them into a clean Debian root: configured, started, upgraded, removed
#   make test-reproducible   builds the commit in two places and compares all bytes
#   make release   all that a release consists of, with check sums and a bill of materials      ARGS=--draft
#   make test-chart   renders the Helm chart and validates its manifests
#   make setup    what the tests need, without running them

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := test

CARGO ?= cargo
ARGS ?=
SOAK_SECONDS ?= 50
FUZZ_SECONDS ?= 3600
TAG_CHANGES ?= 100000
# End-to-end tests mostly wait: for servers to start, time-outs to pass, streams to come. Those of the other crates mostly
# compute.
E2E_THREADS ?= 6
CRATE_THREADS ?= 2

# Where cargo puts its output; FRESHET_BIN is the binary that the end-to-end tests start.
TARGET_DIR := $(or $(CARGO_TARGET_DIR),$(CURDIR)/target)
FRESHET_BIN ?= $(TARGET_DIR)/debug/freshet
FRESHET_RELEASE := $(TARGET_DIR)/release/freshet
FRESHET_BENCH := FRESHET_BIN=$(FRESHET_RELEASE) $(TARGET_DIR)/release/freshet-bench
export FRESHET_BIN
WITH_FAULTS := --features freshet/fault-injection --locked

.PHONY: demo test test-long test-patroni docs deny apps fuzz soak soak-stress soak-tags verdicts bench bench-paper bench-peers bench-overhead bench-index bench-traces bench-instructions bench-scale bench-setup check setup setup-packages packages test-packages test-reproducible test-chart release

setup: setup-packages
	script/setup test

demo:
	script/setup demo $(ARGS)
	$(CARGO) build --release --locked --package freshet --package freshet-bench
	$(FRESHET_BENCH) demo $(ARGS)

# The compiler and linker's packages; what is downloaded besides comes while the checks run.
setup-packages:
	script/setup packages

check: setup-packages
	$(CARGO) fmt --all --check
	$(CARGO) fmt --manifest-path fuzz/Cargo.toml --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings

# The fuzz targets run their seeds and some thousand inputs of the same random numbers each, two at a time: that repeats
# every find of the past and notices a target that no longer builds, on every machine alike. `make fuzz` looks for new ones.
#
# The end-to-end tests come last: they drive a binary built with the fault-injection switches. All commands select the
# whole workspace with the same features, so that cargo builds nothing twice: with fewer packages, some dependencies have
# fewer features, and they and all that uses them are built anew.
#
# Without backtraces: the messages of tests that fail say where, and a hundred lines behind each hide them.
test: export FRESHET_TEST_STRICT = 1
test: export RUST_BACKTRACE = 0
test:
	$(MAKE) --no-print-directory --jobs 2 --output-sync=target setup check
	python3 spec/fillrace.py --fast
	$(CARGO) build --workspace --bins --tests $(WITH_FAULTS)
	$(CARGO) test --workspace --exclude freshet-e2e $(WITH_FAULTS) -- --test-threads $(CRATE_THREADS)
	FUZZ_SECONDS=60 FUZZ_RUNS=2500 FUZZ_SEED=1 script/fuzz
	$(CARGO) test --workspace --test all $(WITH_FAULTS) -- --test-threads $(E2E_THREADS)

test-long: export FRESHET_TEST_STRICT = 1
test-long: export RUST_BACKTRACE = 0
test-long: setup
	script/setup-suites
	$(CARGO) build --workspace --bins --tests $(WITH_FAULTS)
	$(CARGO) test --workspace --test all $(WITH_FAULTS) -- --ignored --test-threads $(E2E_THREADS)

# The times without answers are printed.
test-patroni: export FRESHET_TEST_STRICT = 1
test-patroni: setup
	$(CARGO) build --workspace --bins --tests $(WITH_FAULTS)
	$(CARGO) test --workspace --test all $(WITH_FAULTS) -- --include-ignored --nocapture --test-threads 1 upstream::patroni::

fuzz:
	FUZZ_SECONDS=$(FUZZ_SECONDS) script/fuzz

soak:
	$(MAKE) --no-print-directory soak-stress
	$(MAKE) --no-print-directory soak-tags

soak-stress: setup
	$(CARGO) build --package freshet --features fault-injection --locked
	FRESHET_SOAK_SECONDS=$(SOAK_SECONDS) $(CARGO) test --package freshet-e2e --locked -- stress::promises --nocapture --test-threads 1

# A third of the changes to each server.
soak-tags: setup
	FRESHET_TAG_CHANGES=$$(( ($(TAG_CHANGES) + 2) / 3 )) $(CARGO) test --package freshet-sql --test servers --locked -- hits_what_changes --nocapture --test-threads 1

verdicts: export ARGS := $(ARGS)
verdicts: setup
	@$(CARGO) build --quiet --package freshet --features fault-injection --locked
	@$(CARGO) test --quiet --package freshet-e2e --locked --test all --no-run
	@$(CARGO) test --quiet --package freshet-e2e --locked --test all -- verdicts::printed --ignored --exact --nocapture 2>/dev/null

bench: bench-setup
	$(FRESHET_BENCH) suite $(ARGS)

bench-paper: bench-setup
	$(FRESHET_BENCH) suite --paper $(ARGS)

bench-peers: bench-setup
	$(FRESHET_BENCH) peers $(ARGS)

bench-overhead: bench-setup
	FRESHET_BIN=$(FRESHET_RELEASE) script/bench --report sysbench $(ARGS)
	FRESHET_BIN=$(FRESHET_RELEASE) script/bench --report drop-in $(ARGS)
	FRESHET_BIN=$(FRESHET_RELEASE) script/bench --report cost $(ARGS)
	FRESHET_BIN=$(FRESHET_RELEASE) script/bench --report fills $(ARGS)

bench-index:
	$(CARGO) bench --package freshet-cache --bench changes --locked

# The release binary, as the tests' Freshet, under callgrind.
bench-instructions: export ARGS := $(ARGS)
bench-instructions: bench-setup
	folder=$$(mktemp -d); trap 'rm -r '"$$folder" EXIT; \
	FRESHET_COUNTS=$$folder FRESHET_COUNTED=$(FRESHET_RELEASE) FRESHET_BIN=$(CURDIR)/script/counted \
	$(CARGO) test --package freshet-e2e --locked --test all -- instructions::counted --exact --ignored --nocapture

bench-scale: bench-setup
	FRESHET_BIN=$(FRESHET_RELEASE) $(CARGO) test --package freshet-e2e --locked --test all -- scale:: --ignored --nocapture

# The release binary is needed, not the peers.
apps: setup
	script/setup-apps
	$(CARGO) build --release --package freshet --locked
	FRESHET_BIN=$(FRESHET_RELEASE) script/apps $(ARGS)

# The book's own links are checked by the tests (crates/e2e/tests/all/documents.rs).
docs:
	command -v mdbook >/dev/null || [ -x $(TARGET_DIR)/tools/bin/mdbook ] || \
		$(CARGO) install --locked --no-default-features --features search --root $(TARGET_DIR)/tools mdbook
	PATH="$$PATH:$(TARGET_DIR)/tools/bin" mdbook build --dest-dir $(TARGET_DIR)/docs
	@echo "open $(TARGET_DIR)/docs/index.html"

deny:
	script/deny

bench-traces:
	$(CARGO) bench --package freshet-cache --bench traces --locked -- $(or $(ARGS),--output $(CURDIR)/docs/benchmarks/traces.md)

packages:
	[ -n "$(FRESHET_BINARIES)" ] || script/build-release
	script/package

release:
	script/release $(ARGS)

test-packages: packages test-chart
	script/test-packages
	script/test-service
	script/container test

test-reproducible:
	script/test-reproducible

test-chart:
	[ -x $(TARGET_DIR)/tools/chart/bin/python ] || python3 -m venv $(TARGET_DIR)/tools/chart
	$(TARGET_DIR)/tools/chart/bin/pip install --quiet helm-python-sdk==0.2.2 kubernetes-validate==1.37.0
	$(TARGET_DIR)/tools/chart/bin/python script/test-chart

bench-setup:
	script/setup bench
	$(CARGO) build --release --package freshet --package freshet-bench --locked
