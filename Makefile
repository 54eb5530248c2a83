# `make serve` and `make test` need only Python 3.11+ and make; they set up the rest.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet

.DEFAULT_GOAL := help
.PHONY: help setup serve test check clients format bench fuzz soak lock clean

help: ## Show this list.
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

setup: $(VENV)/installed ## Make the environment; quick when nothing changed.

$(VENV)/installed: requirements.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "turnlog needs Python 3.11 or newer: make PYTHON=python3.12 …")'
	@echo "Setting up $(VENV) (once; about a minute) …"
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) install --require-hashes --requirement requirements.txt
	@mkdir -p turnlog
	@for part in domain adapters app; do ln -sfn ../$$part turnlog/$$part; done
	@$(PIP) install --no-deps --no-build-isolation --editable .
	@touch $@

$(VENV)/installed-dev: requirements-dev.txt $(VENV)/installed
	@echo "Setting up the test tools …"
	@$(PIP) install --require-hashes --requirement requirements-dev.txt
	@touch $@

serve: setup ## Prepare the default model and serve it on http://127.0.0.1:8000.
	@$(BIN)/turnlog serve

test: $(VENV)/installed-dev ## Run the whole test suite.
	@$(BIN)/pytest --numprocesses auto --dist loadfile

check: $(VENV)/installed-dev ## Format, lint, types, import contracts and tests: what CI runs.
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/pytest --numprocesses auto --dist loadfile

CLIENTS := tests/clients/js

clients: $(VENV)/installed-dev $(CLIENTS)/node_modules/installed ## Run the JavaScript clients and the Codex CLI against turnlog (needs npm).
	@$(BIN)/pytest -m clients tests/clients

$(CLIENTS)/node_modules/installed: $(CLIENTS)/package.json $(CLIENTS)/package-lock.json
	@command -v npm >/dev/null || { echo "npm is missing; it comes with Node 20 or newer"; exit 1; }
	@echo "Setting up the JavaScript clients (once; about 700 MB, half a minute) …"
	@npm ci --prefix $(CLIENTS)
	@touch $@

format: $(VENV)/installed-dev ## Format the code and mend what can be mended.
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

bench: $(VENV)/installed-dev ## Measure speed and print it as a table.
	@$(BIN)/python -m tests.benchmarks

FUZZ_SECONDS ?= 600

fuzz: $(VENV)/installed-dev ## Fuzz each target by coverage, for FUZZ_SECONDS (600) each.
	@$(BIN)/python -m tests.fuzz $(FUZZ_SECONDS)

SOAK_REQUESTS ?= 100000

soak: $(VENV)/installed-dev ## Send SOAK_REQUESTS (100,000) requests of several owners beside a well-behaved client.
	@$(BIN)/python -m tests.fuzz.soak $(SOAK_REQUESTS)

lock: ## Write the hashed requirements anew from pyproject.toml (needs uv).
	uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --group build pyproject.toml -o requirements.txt
	uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --group dev -c requirements.txt pyproject.toml -o requirements-dev.txt

clean: ## Remove the environment.
	rm -rf $(VENV) turnlog
