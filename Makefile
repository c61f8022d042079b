# Two commands matter: `make demo` and `make test`. Both do all the set-up they need, once.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt
LINT := $(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy && $(BIN)/lint-imports

# pip compiles none of the 17,000 modules it installs. Those that are imported are compiled once and kept, which matters
# because the tests start many interpreters: each would take 5 s longer.
unexport PYTHONDONTWRITEBYTECODE

BENCHMARKS := user auto start own_loop scale growth metrics rounds compiled threads peers complexity
FLOOR := .venv-floor
FLOOR_TESTS := metrics surrogate/test_loss.py training/test_trainer.py estimators/test_classifier.py \
  tabular/test_persistence.py tabular/test_io.py cli/test_app.py evaluation/test_trees.py

QUICK_TESTS := metrics losses surrogate training estimators tabular

.PHONY: help demo test quick setup browser docs tour lint format fuzz attack floor bench clean

help:  ## show what can be made
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## */  make \1	/' | expand -t 16

demo: $(VENV)/.core  ## set up and run the main job on an embedded dataset
	$(BIN)/metricgrad demo

# Lint runs beside the tests and is shown after them; if either fails, so does this.
test: setup  ## set up, lint and run every test
	@mkdir -p build; { $(LINT); } >build/lint.log 2>&1 & lint=$$!; \
	  $(BIN)/python -m pytest; tests=$$?; \
	  wait $$lint; linted=$$?; echo "make lint: exit code $$linted"; cat build/lint.log; \
	  exit $$((tests || linted))

quick: $(VENV)/.dev  ## the fast tests only, with few examples of each property: no browser, no cluster
	$(BIN)/python -m pytest -q -m "not slow and not browser and not cluster" --hypothesis-profile quick \
	  $(QUICK_TESTS:%=tests/%)

# The browser is installed while the packages are.
setup:
	@$(MAKE) --silent -j2 browser $(VENV)/.dev

# The page of results is tested in a real browser: Debian's, where there is none and there is a way to get it.
browser:
	@if ! command -v chromium >/dev/null && command -v apt-get >/dev/null; then \
	  echo "Installing chromium (once) ..."; \
	  if [ "$$(id -u)" = 0 ]; then run=env; elif command -v sudo >/dev/null; then run="sudo -n env"; else run=false; fi; \
	  get="$$run DEBIAN_FRONTEND=noninteractive apt-get -qq"; \
	  { $$get install -y chromium || { $$get update && $$get install -y chromium; }; } \
	    >/dev/null 2>&1 || echo "chromium cannot be installed here; tests in a browser will be skipped"; \
	fi

docs: $(VENV)/.docs  ## set up and build the documentation; a warning is an error
	$(BIN)/sphinx-build -q -W --keep-going -b html docs build/docs
	@echo "Open build/docs/index.html."

tour: $(VENV)/.docs browser  ## run the commands of the tour again and write its page
	$(BIN)/python docs/make_tour.py

lint: $(VENV)/.dev  ## ruff, mypy and the layering contract
	$(LINT)

format: $(VENV)/.dev  ## let ruff rewrite what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

fuzz: $(VENV)/.dev  ## 100,000 random examples against the oracles; half an hour, and after a stop it goes on
	$(BIN)/python -m studies.reliability.fuzz
	$(BIN)/python -m studies.reliability.page

attack: $(VENV)/.dev  ## damaged and hostile files, texts and servers, kills, many fits; ten minutes; or PARTS="kills specs"
	@$(BIN)/python -m studies.reliability.run $(PARTS); code=$$?; \
	  $(BIN)/python -m studies.reliability.page && exit $$code

# What old packages say of newer ones they meet there is no error.
floor: $(FLOOR)/.floor  ## run the main tests against the lowest versions that pyproject.toml allows
	$(FLOOR)/bin/python -m pytest -W ignore::DeprecationWarning $(FLOOR_TESTS:%=tests/%)

bench: $(VENV)/.bench  ## measure speed, as ratios within one run, and write docs/performance.md; an hour
	@for name in $(BENCHMARKS); do echo "benchmarks.speed.$$name"; \
	  $(BIN)/python -m benchmarks.speed.$$name || echo "benchmarks.speed.$$name: a claim is not met, or it failed"; done
	$(BIN)/python -m benchmarks.speed.performance

clean:  ## remove what make made
	rm -rf $(VENV) $(FLOOR) .mypy_cache .pytest_cache .ruff_cache .hypothesis metricgrad-demo build docs/gallery

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

$(VENV)/.docs: pyproject.toml constraints.txt | $(VENV)/bin/python
	@echo "Installing metricgrad and what its pages are built with into $(VENV) (once) ..."
	$(INSTALL) -e '.[docs]'
	@touch $@ $(VENV)/.core

$(FLOOR)/.floor: pyproject.toml constraints-floor.txt
	@echo "Installing the lowest versions into $(FLOOR) (once, several GB) ..."
	$(PYTHON) -m venv --clear $(FLOOR)
	$(FLOOR)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints-floor.txt \
	  -e '.[trees]' hypothesis playwright pytest pytest-xdist skops torchmetrics
	@touch $@

# The peers of the benchmark without what they ask for and do not need here; one that is missing is only named.
$(VENV)/.bench: $(VENV)/.dev
	-$(INSTALL) --no-deps libauc ap-perf && $(INSTALL) numba tqdm
	@touch $@
