# Everything here sets itself up in .venv: Python >= 3.11, make and git are enough. uv and Node are used where they are
# installed.
PYTHON ?= python3
VENV   ?= .venv
BIN     = $(VENV)/bin
UV     := $(shell command -v uv 2>/dev/null)

# Compiled modules are kept: tests start hundreds of processes, and each would compile the package again.
export PYTHONDONTWRITEBYTECODE =

# Test processes that run side by side: most tests wait for servers and other processes.
TEST_PROCESSES ?= 4
PYTEST = $(BIN)/python -m pytest -n $(TEST_PROCESSES) $(PYTEST_FLAGS)

.DEFAULT_GOAL := help
.PHONY: help test test-all check lint types demo ui ui-check screenshots browser shell bench faults soak mutants servers lowest \
  release hooks workflows clean

help:  ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 13

test: $(VENV)/.dev ui browser  ## tests of every kind, in less than five minutes
	$(PYTEST) -m 'not long'

test-all: $(VENV)/.dev ui browser  ## all tests: more seeds, more faults
	$(PYTEST)

check: lint types ui-check test-all  ## lint, format, types and all tests; about 18 minutes

lint: $(VENV)/.dev  ## ruff: rules and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.dev  ## mypy --strict
	$(BIN)/mypy

# The dashboard is built meanwhile: the server shows it as soon as it is there. Ctrl-C stops both.
demo: $(VENV)/.run  ## jobs of every kind on SQLite, live, and the dashboard; Ctrl-C stops
	@if $(DASHBOARD) is-built; then exec $(BIN)/evenbeat demo; fi; \
	  $(MAKE) --no-print-directory ui >$(UI_LOG) 2>&1 & build=$$!; \
	  trap : INT TERM; $(BIN)/evenbeat demo --page-follows; code=$$?; \
	  kill $$build 2>/dev/null || $(DASHBOARD) is-built || { \
	    echo "The dashboard was not built:" >&2; tail -n 20 $(UI_LOG) >&2; }; \
	  exit $$code

ui: $(VENV)/.python  ## build the dashboard, if its sources changed
	@$(call node_for,build)
	@$(DASHBOARD) build

ui-check: $(VENV)/.python  ## the dashboard: tsc, strict, and unit tests
	@$(call node_for,check)
	@$(DASHBOARD) check

screenshots: $(VENV)/.dev ui browser  ## take the pictures that README and docs show
	$(BIN)/python -m tests.browser.screenshots

browser:  ## Chromium for the tests: Debian's, where there is none
	@sh tests/install_chromium.sh

shell: $(VENV)/.run  ## a shell in which `evenbeat` is the one of this folder; exit leaves it
	@PATH="$(abspath $(BIN)):$$PATH" VIRTUAL_ENV="$(abspath $(VENV))" "$${SHELL:-/bin/sh}" || true

bench: $(VENV)/.bench  ## benchmarks, with the peers in the same run
	$(BIN)/python -m bench

faults: $(VENV)/.dev  ## every fault, on every store, at full length; writes docs/faults.md
	$(BIN)/python -m tests.faults --write docs/faults.md

soak: $(VENV)/.dev  ## 20 minutes at 200 runs a second on every store; writes docs/faults.md
	$(BIN)/python -m tests.soak --write

mutants: $(VENV)/.dev  ## change the code on purpose: do the tests notice? ONLY=rules SAMPLE=100; writes docs/mutants.md
	$(BIN)/python -m tests.mutation $(ONLY) $(if $(SAMPLE),--sample $(SAMPLE))
	$(BIN)/python -m tests.mutation --write docs/mutants.md

servers: $(VENV)/.dev  ## PostgreSQL, Valkey and MongoDB to play with, until Ctrl-C
	$(BIN)/python -m tests.servers

lowest: $(VENV)/.dev ui browser  ## all tests again, on the oldest versions that pyproject.toml allows
	$(BIN)/python -m pip --version >/dev/null 2>&1 || $(BIN)/python -m ensurepip -q
	$(BIN)/python -m pip install -q 'uv>=0.9'
	rm -rf .venv-lowest && $(BIN)/uv venv -q .venv-lowest
	$(BIN)/uv pip install -q --python .venv-lowest/bin/python --resolution lowest-direct --group dev -e .
	.venv-lowest/bin/python -m pytest -n $(TEST_PROCESSES)

release: $(VENV)/.release  ## build sdist and wheel, check both, try the wheel; uploads nothing
	rm -rf dist .venv-release
	$(BIN)/python -m build
	$(BIN)/python -m twine check --strict dist/*
ifdef UV
	uv venv -q --python $(BIN)/python .venv-release
else
	$(BIN)/python -m venv .venv-release
endif
	$(INSTALL_RELEASED) dist/*.whl
	.venv-release/bin/python -I tests/smoke.py dist
	$(INSTALL_RELEASED) "$$(echo dist/*.whl)[web]"
	.venv-release/bin/python -I tests/smoke.py dist web

hooks: $(VENV)/.dev  ## run ruff and mypy before each commit (pre-commit)
	$(INSTALL) --group hooks
	$(BIN)/pre-commit install

workflows: $(VENV)/.python  ## actionlint for .github/workflows; downloads actionlint from GitHub
	$(INSTALL) --group workflows
	$(BIN)/actionlint -color

clean:  ## remove what make made
	rm -rf $(VENV) .venv-lowest .venv-release build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
	rm -rf ui/node_modules src/evenbeat/web/dashboard src/evenbeat/web/dashboard.*

$(VENV)/.python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "Evenbeat needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version 2>&1)." >&2; \
	  echo "Name another one: make $(MAKECMDGOALS) PYTHON=python3.12" >&2; exit 1; }
ifdef UV
	uv venv -q --clear --python "$$(command -v $(PYTHON))" $(VENV)
else
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	  echo "$(PYTHON) comes without venv. Debian and Ubuntu: apt install python3-venv. Or install uv." >&2; exit 1; }
	$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install -q --disable-pip-version-check --upgrade 'pip>=25.1'
endif
	@touch $@

ifdef UV
INSTALL = uv pip install -q --python $(BIN)/python
INSTALL_RELEASED = uv pip install -q --python .venv-release/bin/python
else
INSTALL = $(BIN)/python -m pip install -q --disable-pip-version-check
INSTALL_RELEASED = .venv-release/bin/python -m pip install -q --disable-pip-version-check
endif

# Installs Node into .venv, where $(1) needs it and this machine has none.
DASHBOARD = $(BIN)/python ui/dashboard.py
UI_LOG = $(VENV)/ui.log
node_for = node="$$($(DASHBOARD) needs $(1))" && { [ -z "$$node" ] || { \
    echo "dashboard: installing $$node, because this machine has no Node 20 or newer with npm"; $(INSTALL) "$$node"; } || { \
    echo "The dashboard needs Node 20 or newer with npm. Install it, or go online, so that make can download $$node." >&2; exit 1; }; }

$(VENV)/.run: $(VENV)/.python pyproject.toml
	$(INSTALL) -e '.[web]'
	@touch $@

$(VENV)/.dev: $(VENV)/.python pyproject.toml
	$(INSTALL) --group dev -e .
	@touch $@ $(VENV)/.run

$(VENV)/.bench: $(VENV)/.dev pyproject.toml
	$(INSTALL) --group bench -e .
	@touch $@

$(VENV)/.release: $(VENV)/.python pyproject.toml
	$(INSTALL) --group release
	@touch $@
