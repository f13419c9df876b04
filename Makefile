# Set-up is part of every command: on a fresh machine with Python and make, just run one.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
CORES := $(shell $(PYTHON) -c "import os; print(os.cpu_count())")

.PHONY: help demo test test-all check format bench pictures clean

help: ## Show this help
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

$(VENV)/.installed: pyproject.toml
	@echo "Setting up $(VENV) (once)..."
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[dev]"
	@touch $@

$(VENV)/.bench-installed: $(VENV)/.installed
	@echo "Installing Ray, and the peers that benchmarks compare with (once)..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[dev,bench,ray]"
	@touch $@

demo: $(VENV)/.installed ## Train three agents; see that latency hurts and knowledge heals
	@$(BIN)/midstride demo

test: $(VENV)/.installed ## Run the fast tests
	@$(BIN)/python -m pytest -n $(CORES) -q

test-all: $(VENV)/.bench-installed ## Run every test, the slow ones too
	@$(BIN)/python -m pytest -n $(CORES) -q -m ""

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

pictures: $(VENV)/.installed ## Remake the pictures in docs/, and the tables that pages take from results/
	@$(BIN)/python docs/make_pictures.py
	@$(BIN)/python docs/include_tables.py

clean: ## Remove everything that was generated
	@rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis demo latency
