# What one does with TroupeMQ from a clone. `make` alone lists the targets.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

CARGO ?= cargo
DATA ?= data
CLUSTER_DATA ?= data-cluster
TARGET ?= $(basename $(notdir $(wildcard fuzz/fuzz_targets/*.rs)))
TIME ?= 60
VENV := .venv
PYTHON_PACKAGES := paho-mqtt==2.2.0 gmqtt==0.8.0
VENV_DONE := $(VENV)/.done-$(subst $(eval ) ,_,$(PYTHON_PACKAGES))
DEBIAN_PACKAGES := mosquitto mosquitto-clients

.PHONY: help build run cluster test bench fuzz lint fmt clean test-needs test-commands

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## Build the optimised program: target/release/troupemq
	$(CARGO) build --release --bin troupemq

run: build ## Start one node on this machine, data in ./data
	exec target/release/troupemq start --data $(DATA)

cluster: build ## Start three nodes on this machine; Ctrl-C stops them
	@DATA=$(CLUSTER_DATA) exec config/cluster/run.sh target/release/troupemq

# The program under test and all tests are built in one go, so that features are unified once and nothing is built twice.
test: test-needs ## Run all tests: units, real clients, real clusters
	$(CARGO) build --workspace --bins --tests
	TROUPEMQ_BIN=$(CURDIR)/target/debug/troupemq $(CARGO) test --workspace

bench: test-commands ## Measure side by side with mosquitto
	$(CARGO) bench --bench side_by_side

# What cargo-fuzz finds beside the corpus stays in fuzz/work, what breaks a target in fuzz/artifacts. Our code has no `unsafe`, so no
# sanitizer; debug assertions and overflow checks are on.
fuzz: ## Fuzz every target, or TARGET=name, for TIME=60 seconds each (nightly, cargo-fuzz)
	@cargo +nightly --version >/dev/null 2>&1 || \
	  { echo "fuzz: a nightly toolchain is missing; rustup toolchain install nightly --profile minimal" >&2; exit 1; }
	@cargo fuzz --version >/dev/null 2>&1 || { echo "fuzz: cargo-fuzz is missing; cargo install cargo-fuzz --locked" >&2; exit 1; }
	@for target in $(TARGET); do \
	  if [ ! -f fuzz/fuzz_targets/$$target.rs ]; then \
	    echo "fuzz: there is no target $$target; there are: $(basename $(notdir $(wildcard fuzz/fuzz_targets/*.rs)))" >&2; exit 1; \
	  fi; \
	  mkdir -p fuzz/work/$$target; \
	  dictionary=; if [ -f fuzz/dictionaries/$$target.dict ]; then dictionary=-dict=fuzz/dictionaries/$$target.dict; fi; \
	  cargo +nightly fuzz run --sanitizer none $$target fuzz/work/$$target fuzz/corpus/$$target -- \
	    -max_total_time=$(TIME) -max_len=4096 -timeout=20 -rss_limit_mb=1536 -print_final_stats=1 $$dictionary; \
	done

lint: ## Check the format and the lints
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings

fmt: ## Format the source
	$(CARGO) fmt --all

clean: ## Remove what was built; data is kept
	$(CARGO) clean
	rm -rf $(VENV)

# What the tests with other people's clients need. TROUPEMQ_SKIP_INTEROP=1 leaves those tests, and so all of this, out.
ifeq ($(TROUPEMQ_SKIP_INTEROP),1)
test-needs:
	@echo "test needs: left out, as TROUPEMQ_SKIP_INTEROP=1 says"
else
test-needs: test-commands $(VENV_DONE)
endif

test-commands:
	@missing=; \
	for name in mosquitto mosquitto_pub mosquitto_sub; do \
	  PATH="$$PATH:/usr/sbin" command -v $$name >/dev/null || missing="$$missing $$name"; \
	done; \
	if [ -z "$$missing" ]; then exit 0; fi; \
	if [ "$$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then \
	  echo "test needs: missing:$$missing; install the packages $(DEBIAN_PACKAGES) (or set TROUPEMQ_SKIP_INTEROP=1)" >&2; exit 1; \
	fi; \
	echo "test needs: installing $(DEBIAN_PACKAGES), for:$$missing"; \
	export DEBIAN_FRONTEND=noninteractive; \
	{ apt-get update -q && apt-get install -y -q --no-install-recommends $(DEBIAN_PACKAGES); } >.apt.log 2>&1 </dev/null || \
	  { tail -20 .apt.log >&2; echo "test needs: apt-get could not install $(DEBIAN_PACKAGES)" >&2; exit 1; }; \
	rm -f .apt.log

$(VENV_DONE):
	@command -v python3 >/dev/null || { echo "test needs: python3 is missing (or set TROUPEMQ_SKIP_INTEROP=1)" >&2; exit 1; }
	@echo "test needs: Python packages $(PYTHON_PACKAGES) in $(VENV)"
	@rm -rf $(VENV)
	@python3 -m venv $(VENV) || { echo "test needs: python3 -m venv failed; on Debian install python3-venv" >&2; exit 1; }
	@$(VENV)/bin/pip install -q --disable-pip-version-check $(PYTHON_PACKAGES) || \
	  { echo "test needs: pip could not install $(PYTHON_PACKAGES)" >&2; exit 1; }
	@touch "$@"
