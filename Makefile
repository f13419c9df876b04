# Set-up is part of every command: on a fresh machine with Python and make, just run one.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
CORES := $(shell $(PYTHON) -c "import os; print(os.cpu_count())")

.PHONY: help demo test test-all test-newest check format bench attack lock pictures clean

# Exact versions and their hashes, for Python 3.11; on another Python the ranges of pyproject.toml.
LOCK := requirements-dev.lock
PIP := -m pip install --quiet --disable-pip-version-check

help: ## Show this help
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

$(VENV)/.installed: pyproject.toml $(LOCK)
	@echo "Setting up $(VENV) (once)..."
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@if $(BIN)/python -c "import sys; sys.exit(sys.version_info[:2] != (3, 11))"; then \
		$(BIN)/python $(PIP) --require-hashes -r $(LOCK); \
	fi
	@$(BIN)/python $(PIP) -e ".[dev]"
	@touch $@

$(VENV)/.bench-installed: $(VENV)/.installed
	@echo "Installing Ray, and the peers that benchmarks compare with (once)..."
	@$(BIN)/python $(PIP) -e ".[dev,bench,ray]"
	@touch $@

demo: $(VENV)/.installed ## Train three agents; see that latency hurts and knowledge heals
	@$(BIN)/midstride demo

test: $(VENV)/.installed ## Run the fast tests
	@$(BIN)/python -m pytest -n $(CORES) -q

test-all: $(VENV)/.bench-installed ## Run every test, the slow ones too
	@$(BIN)/python -m pytest -n $(CORES) -q -m ""

test-newest: ## Run the fast tests with the newest of everything that pyproject.toml allows
	@$(PYTHON) -m venv --clear $(VENV)-newest
	@$(VENV)-newest/bin/python $(PIP) --upgrade --upgrade-strategy eager -e ".[dev]"
	@$(VENV)-newest/bin/python -m pytest -n $(CORES) -q

check: $(VENV)/.installed ## The gate: format, lint, types, imports, tests
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(MAKE) --no-print-directory test

format: $(VENV)/.installed ## Format and fix what can be fixed
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

bench: $(VENV)/.bench-installed ## Measure speed against peers and limits
	@$(BIN)/python -m benchmarks

attack: $(VENV)/.installed ## Kill, fill the disk, send signals, mutate files, break environments (an hour; MINUTES=...)
	@$(BIN)/python -m attacks --minutes $(or $(MINUTES),90)

lock: $(VENV)/.installed ## Write the lock file anew, with the newest of everything
	@$(BIN)/python $(PIP) uv
	@$(BIN)/uv pip compile pyproject.toml --extra dev --universal --python-version 3.11 --upgrade \
		--generate-hashes --no-header --no-annotate --no-emit-index-url --quiet -o $(LOCK)

pictures: $(VENV)/.installed ## Remake the pictures in docs/, and the tables that pages take from results/
	@$(BIN)/python docs/make_pictures.py
	@$(BIN)/python docs/include_tables.py

clean: ## Remove everything that was generated
	@rm -rf $(VENV) $(VENV)-newest .pytest_cache .mypy_cache .ruff_cache .hypothesis demo latency
