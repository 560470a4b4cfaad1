# Each target makes the virtual environment that it needs; nothing has to be installed by hand
# but Python 3.11 or newer.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
EVENTS ?= 3000
DIRECTORY ?= demo-data

.DEFAULT_GOAL := help
.PHONY: help demo test lint format clean

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-8s %s\n", $$1, $$2}'

demo: $(VENV)/demo ## the whole thing on this machine, checked at its end (EVENTS=3000)
	$(BIN)/tailrace demo --events $(EVENTS) --directory $(DIRECTORY)

test: $(VENV)/dev lint ## linters, types, layers and all tests
	$(BIN)/python -m pytest

lint: $(VENV)/dev ## ruff, mypy --strict, the layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/dev ## ruff's format and safe fixes
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean: ## removes the environment, caches and what the demo wrote
	rm -rf $(VENV) $(DIRECTORY) .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache

$(VENV)/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Tailrace needs Python 3.11 or newer")'
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/demo: $(VENV)/python pyproject.toml
	$(BIN)/python -m pip install --quiet --editable '.[demo]'
	@touch $@

$(VENV)/dev: $(VENV)/python pyproject.toml
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	@touch $@ $(VENV)/demo
