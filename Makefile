# Two commands do everything on a fresh machine: `make demo` and `make test`. `make help` lists the rest.
# Needs: a Python >= 3.11 with venv, make. For the Apache Kafka tests: Java >= 17 and Maven (see deploy/kafka/README.md).

VENV ?= .venv
BIN := $(VENV)/bin
PYTHON ?= $(shell for candidate in python3.12 python3.13 python3.11 python3; do \
	if $$candidate -c 'import sys, venv; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' >/dev/null 2>&1; \
	then command -v $$candidate; break; fi; done)

.PHONY: help demo dev setup test test-tools test-fast test-alerts lint types schemas bench bench-peers clean soak crash-long fuzz-long

help:  ## what there is
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## */\t/' | expand -t 14

$(VENV)/installed: pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "No Python 3.11, 3.12 or 3.13 with venv found. Install one, or name it: make PYTHON=/path/to/python3.12"; exit 2; }
	@echo "Setting up $(VENV) with $$($(PYTHON) --version): a virtual environment, and docdelta with what it needs from PyPI."
	@echo "The first time this takes a few minutes, nearly all of it downloads; later runs begin at once."
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e .
	@touch $@

$(VENV)/installed-tests: $(VENV)/installed
	@echo "Adding what the tests need from PyPI; the first time that may take a minute or two."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[test]'
	@touch $@

setup: $(VENV)/installed  ## virtual environment with docdelta in it

demo: $(VENV)/installed  ## set up, then watch a site's edits travel to the index
	@$(BIN)/docdelta demo

dev: $(VENV)/installed  ## embedded everything on DIR=folder
	@$(BIN)/docdelta dev $(DIR)

test: $(VENV)/installed-tests test-tools  ## set up, then lint, types and all tests but the slow suites
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/python -m schemas.export --check
	@$(BIN)/python -m pytest -m "not slow" -n 2 --dist loadfile --no-loadscope-reorder

test-tools:  ## Debian's chromium and prometheus, where root can install them: tests that need them skip otherwise
	@sh tests/tools/install.sh

test-fast: $(VENV)/installed-tests  ## only what needs no broker
	@$(BIN)/python -m pytest -m "not slow and not kafka" --ignore tests/stack --ignore tests/crash

test-alerts: $(VENV)/installed-tests  ## a real Prometheus on a running worker: every query finds data, every alert fires in its fault
	@command -v prometheus promtool >/dev/null || { echo "Needs Debian's package prometheus: apt-get install prometheus"; exit 2; }
	@$(BIN)/python -m pytest tests/stack/test_prometheus.py tests/stack/test_every_alert.py tests/unit/operations -m "slow or not slow"

soak: $(VENV)/installed-tests  ## workers under load and random faults for HOURS=n (0.1: six minutes); figures and plot in build/soak
	@$(BIN)/python -m tests.crash.stack.soak --hours $(or $(HOURS),1)

crash-long: $(VENV)/installed-tests  ## HISTORIES=n random histories of crashes and outages (a million), SEED=s to repeat a run
	@$(BIN)/python -m tests.crash.simulation --histories $(or $(HISTORIES),1000000) $(if $(SEED),--seed $(SEED))

fuzz-long: $(VENV)/installed-tests  ## ten million inputs, an hour and a quarter on one core (INPUTS=n: so many; START=n: others)
	@$(BIN)/python -m tests.fuzz --inputs $(or $(INPUTS),10000000) $(if $(START),--start $(START))

bench: $(VENV)/installed-tests  ## speed and memory, with ratios (about 20 minutes; needs Apache Kafka); BENCH=name: only that one
	@$(BIN)/python -m tests.bench.pipeline $(BENCH)

bench-peers: $(VENV)/installed-tests .venv-peers/installed  ## the same pages in LangChain, LlamaIndex and CocoIndex (SIZE=n: so many)
	@$(BIN)/python -m tests.bench.pipeline peers folder --peers-python .venv-peers/bin/python $(if $(SIZE),--size $(SIZE))

.venv-peers/installed: tests/bench/pipeline/peers-requirements.txt
	@test -n "$(PYTHON)" || { echo "No Python 3.11, 3.12 or 3.13 with venv found: make PYTHON=/path/to/python3.12"; exit 2; }
	@$(PYTHON) -m venv .venv-peers
	@.venv-peers/bin/python -m pip install --quiet --disable-pip-version-check -r tests/bench/pipeline/peers-requirements.txt
	@touch $@

lint: $(VENV)/installed-tests  ## ruff
	@$(BIN)/ruff check .

types: $(VENV)/installed-tests  ## mypy, strict
	@$(BIN)/mypy

schemas: $(VENV)/installed-tests  ## write the JSON Schema of every record
	@$(BIN)/python -m schemas.export

clean:  ## remove what was set up and made
	rm -rf $(VENV) .venv-peers .bench .cache .docdelta .mypy_cache .ruff_cache .pytest_cache .hypothesis *.egg-info
