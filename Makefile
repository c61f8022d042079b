# Two commands matter: `make demo` and `make test`. Both do all the set-up they need, once.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: help demo test lint format fuzz bench clean

help:  ## show what can be made
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## */  make \1	/' | expand -t 16

demo: $(VENV)/.core  ## set up and run the main job on an embedded dataset
	$(BIN)/metricgrad demo

test: lint  ## set up, lint and run every test
	$(BIN)/python -m pytest

lint: $(VENV)/.dev  ## ruff, mypy and the layering contract
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.dev  ## let ruff rewrite what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

fuzz: $(VENV)/.dev  ## 100,000 random examples against the oracles
	METRICGRAD_FUZZ=100000 $(BIN)/python -m pytest tests/test_metrics_oracles.py

bench: $(VENV)/.dev  ## measure speed, as ratios within one run
	$(BIN)/python benchmarks/metrics.py

clean:  ## remove what make made
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis metricgrad-demo

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.core: pyproject.toml constraints.txt | $(VENV)/bin/python
	@echo "Installing metricgrad into $(VENV) (once) ..."
	$(INSTALL) -e .
	@touch $@

$(VENV)/.dev: pyproject.toml constraints.txt | $(VENV)/bin/python
	@echo "Installing metricgrad and its development tools into $(VENV) (once) ..."
	$(INSTALL) -e '.[dev]'
	@touch $@ $(VENV)/.core
