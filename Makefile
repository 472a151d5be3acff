# Everything here sets itself up in .venv: Python >= 3.11, make and git are enough. uv is used where it is installed.
PYTHON ?= python3
VENV   ?= .venv
BIN     = $(VENV)/bin
UV     := $(shell command -v uv 2>/dev/null)

# Compiled modules are kept: tests start hundreds of processes, and each would compile the package again.
export PYTHONDONTWRITEBYTECODE =

# So many test processes run side by side: most tests wait for servers and other processes.
TEST_PROCESSES ?= 4
PYTEST = $(BIN)/python -m pytest -n $(TEST_PROCESSES)

.DEFAULT_GOAL := help
.PHONY: help test test-all check lint types demo shell bench faults mutants servers lowest release hooks workflows clean

help:  ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

test: $(VENV)/.dev  ## tests of every kind, in less than five minutes
	$(PYTEST) -m 'not long'

test-all: $(VENV)/.dev  ## all tests: more seeds, more faults
	$(PYTEST)

check: lint types test-all  ## lint, format, types and all tests, in less than fifteen minutes

lint: $(VENV)/.dev  ## ruff: rules and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.dev  ## mypy --strict
	$(BIN)/mypy

demo: $(VENV)/.run  ## jobs of every kind on SQLite, live; Ctrl-C stops
	@$(BIN)/evenbeat demo

shell: $(VENV)/.run  ## a shell in which `evenbeat` is the one of this folder; exit leaves it
	@PATH="$(abspath $(BIN)):$$PATH" VIRTUAL_ENV="$(abspath $(VENV))" "$${SHELL:-/bin/sh}" || true

bench: $(VENV)/.bench  ## benchmarks, with the peers in the same run
	$(BIN)/python -m bench

faults: $(VENV)/.dev  ## every fault, on every store, at full length; writes docs/faults.md
	$(BIN)/python -m tests.faults --write docs/faults.md

mutants: $(VENV)/.dev  ## change the code on purpose: do the tests notice? ONLY=rules SAMPLE=100; writes docs/mutants.md
	$(BIN)/python -m tests.mutation $(ONLY) $(if $(SAMPLE),--sample $(SAMPLE))
	$(BIN)/python -m tests.mutation --write docs/mutants.md

servers: $(VENV)/.dev  ## PostgreSQL, Valkey and MongoDB to play with, until Ctrl-C
	$(BIN)/python -m tests.servers

lowest: $(VENV)/.dev  ## all tests again, on the oldest versions that pyproject.toml allows
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
	uv pip install -q --python .venv-release/bin/python dist/*.whl
else
	$(BIN)/python -m venv .venv-release
	.venv-release/bin/python -m pip install -q --disable-pip-version-check dist/*.whl
endif
	.venv-release/bin/python -I tests/smoke.py dist

hooks: $(VENV)/.dev  ## run ruff and mypy before each commit (pre-commit)
	$(INSTALL) --group hooks
	$(BIN)/pre-commit install

workflows: $(VENV)/.python  ## actionlint for .github/workflows; downloads actionlint from GitHub
	$(INSTALL) --group workflows
	$(BIN)/actionlint -color

clean:  ## remove what make made
	rm -rf $(VENV) .venv-lowest .venv-release build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis

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
else
INSTALL = $(BIN)/python -m pip install -q --disable-pip-version-check
endif

$(VENV)/.run: $(VENV)/.python pyproject.toml
	$(INSTALL) -e .
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
