# Everything starts here. `make demo` and `make test` do all their set-up on a fresh Debian machine that has only Rust.
#
#   make demo     a throw-away PostgreSQL, Freshet in front of it, and what that is worth     ARGS="--keep" passes options on
#   make test     all checks and tests
#   make check    formatting and lints alone
#   make fuzz     the fuzz targets of all decoders, an hour each                             FUZZ_SECONDS=60
#   make soak     the stress test against real servers, run long                              SOAK_SECONDS=600
#   make bench    the measurements, direct and through Freshet, PgBouncer and HAProxy side by side
#   make setup    what the tests need, without running them

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := test

CARGO ?= cargo
ARGS ?=
SOAK_SECONDS ?= 600
FUZZ_SECONDS ?= 3600
# End-to-end tests mostly wait: for servers to start, time-outs to pass, streams to come.
E2E_THREADS ?= 4

# Where cargo puts its output; FRESHET_BIN is the binary that the end-to-end tests start.
TARGET_DIR := $(or $(CARGO_TARGET_DIR),$(CURDIR)/target)
FRESHET_BIN ?= $(TARGET_DIR)/debug/freshet
export FRESHET_BIN

.PHONY: demo test fuzz soak bench check setup

setup:
	script/setup test

demo:
	script/setup demo
	$(CARGO) run --release --locked --package freshet -- demo $(ARGS)

check:
	$(CARGO) fmt --all --check
	$(CARGO) fmt --manifest-path fuzz/Cargo.toml --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings

# The fuzz targets run for five seconds each after their seeds, a minute in all, two at a time, always with the same
# random numbers: that repeats every find of the past and notices a target that no longer builds. `make fuzz` looks for new ones.
#
# The end-to-end tests come last: they drive a binary built with the fault-injection switches, which the test
# build of the whole workspace would overwrite with one without them.
test: export FRESHET_TEST_STRICT = 1
test: setup
	$(MAKE) --no-print-directory check
	python3 model/fillrace.py --fast
	$(CARGO) test --workspace --exclude freshet-e2e --locked
	FUZZ_SECONDS=5 FUZZ_SEED=1 script/fuzz
	$(CARGO) build --package freshet --features fault-injection --locked
	$(CARGO) test --package freshet-e2e --locked -- --test-threads $(E2E_THREADS)

fuzz:
	FUZZ_SECONDS=$(FUZZ_SECONDS) script/fuzz

soak: setup
	$(CARGO) build --package freshet --features fault-injection --locked
	FRESHET_SOAK_SECONDS=$(SOAK_SECONDS) $(CARGO) test --package freshet-e2e --locked -- stress --nocapture --test-threads 1

bench:
	script/setup bench
	$(CARGO) build --release --package freshet --locked
	FRESHET_BIN=$(TARGET_DIR)/release/freshet script/bench $(ARGS)
	FRESHET_BIN=$(TARGET_DIR)/release/freshet script/bench --report drop-in $(ARGS)
