# The whole developer interface. `make` alone lists it.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --disable-pip-version-check -q -c constraints.txt

.DEFAULT_GOAL := help
.PHONY: help install serve test check format bench

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-9s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(VENV)/installed: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 15) and "crosspoint needs Python 3.11 to 3.14; choose one with: make PYTHON=python3.12 …")'
	$(PYTHON) -m venv $(VENV)
	@echo "Installing into $(VENV); with torch for a GPU that is several GB."
	$(PIP) -e .
	@$(BIN)/python -m compileall -q probes app  # else each command compiles anew where PYTHONDONTWRITEBYTECODE is set
	@touch $@

$(VENV)/installed-dev: $(VENV)/installed
	$(PIP) -e '.[dev]'
	@touch $@

install: $(VENV)/installed ## install into .venv

serve: $(VENV)/installed ## install, then serve on 127.0.0.1:8000
	$(BIN)/crosspoint serve

test: $(VENV)/installed-dev check ## install what tests need, check, run the tests
	$(BIN)/python -m pytest

check: $(VENV)/installed-dev ## formatter, linter, strict types, import contracts
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/installed-dev ## let the formatter and linter mend what they can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/installed-dev ## measure the figures under benchmarks/results/ (alone on the machine, please)
	$(PIP) -e '.[bench]'
	$(BIN)/python -m benchmarks
