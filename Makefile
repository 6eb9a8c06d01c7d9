# Every target makes the virtual environment it needs; all that is asked for is Python 3.11 or later, with pip.

PYTHON ?= python3
BIN := .venv/bin
BENCH := .venv-bench/bin
DOCS := .venv-docs/bin
STUDIO := .venv-label-studio/bin
FORMATS := .venv-formats/bin
WHEEL := .venv-wheel/bin
INSTALL := -m pip install --quiet --disable-pip-version-check
SOURCES := src tests benchmarks examples
ONE_THREAD := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1# two processes with one thread each, never more

# Bytecode is stored: hundreds of tests start a Python of their own, which would otherwise compile the package each time.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo test coverage lint format tables docs docs-serve types unit browser axe label-studio formats wheel bench-tests bench-speed bench-quality bench-faults screens clean

help: ## Show these targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /|/' | awk -F'|' '{printf "  make %-12s %s\n", $$1, $$2}'

demo: .venv/base.stamp ## Run a whole long-tailed experiment on embedded digits: a table of gains, a report
	@$(BIN)/tailwise demo

# Three processes, as browsers and clusters make tests wait. Files in the order of their names: those with few and slow tests
# come first, and are not left to the end for one process.
TESTS := $(ONE_THREAD) $(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder

# Types are checked while the tests run, which leave time for it; what is found is shown after them, and fails the target.
test: lint browser axe ## Run everything that CI runs: lint, types, tests, doctests
	@$(BIN)/mypy --strict >.venv/types.txt 2>&1 & types=$$!; \
	$(TESTS) -m "not long"; tests=$$?; wait $$types; typed=$$?; cat .venv/types.txt; [ $$tests = 0 ] && [ $$typed = 0 ]

coverage: lint types browser axe ## The same, and which lines it reaches: at least 90 of 100, a fifth more time
	@$(TESTS) --cov --cov-report=term

lint: .venv/dev.stamp ## Check style and formatting
	@$(BIN)/ruff check $(SOURCES)
	@$(BIN)/ruff format --check $(SOURCES)

format: .venv/dev.stamp ## Format the code and fix what ruff can fix
	@$(BIN)/ruff check --fix $(SOURCES)
	@$(BIN)/ruff format $(SOURCES)

tables: .venv/dev.stamp ## Write the tables in docs/ that follow from the registries
	@$(BIN)/python docs/tables.py

docs: .venv-docs/docs.stamp ## Build the documentation site into build/site; a broken link is an error
	@NO_MKDOCS_2_WARNING=1 $(ONE_THREAD) $(DOCS)/mkdocs build --strict --quiet
	@echo "Built build/site; to read it: make docs-serve"

docs-serve: docs ## Show the site on http://127.0.0.1:8000
	@$(DOCS)/python -m http.server 8000 --bind 127.0.0.1 --directory build/site

types: .venv/dev.stamp ## Check types
	@$(BIN)/mypy --strict

unit: .venv/dev.stamp ## Run the unit tests and doctests alone
	@$(BIN)/python -m pytest -q tests/unit src

# Private: what the tests of the labelling page look through. Debian's packages; elsewhere any Chromium and chromedriver.
browser:
	@command -v chromedriver >/dev/null && { command -v chromium || command -v chromium-browser || command -v google-chrome; } >/dev/null \
	|| { command -v apt-get >/dev/null && { [ "$$(id -u)" = 0 ] || command -v sudo >/dev/null; } \
	  || { echo "The tests of the labelling page need Chromium and chromedriver, and there is no apt-get (with root or sudo) to get them; install both and run make again." >&2; exit 1; }; \
	  echo "Installing Chromium for the tests of the labelling page (needed once) …"; \
	  as_root=$$([ "$$(id -u)" = 0 ] || echo sudo); \
	  $$as_root apt-get update -qq && $$as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium chromium-driver >/dev/null; }

# Private: axe-core, the accessibility checker of the page's tests: one script, out of a package that has it (4.12.1).
AXE := axe-playwright-python==0.1.8
axe: .venv/axe/$(AXE).stamp
.venv/axe/$(AXE).stamp: .venv/dev.stamp
	@echo "Adding axe-core for the tests of the labelling page (needed once) …"
	@rm -rf .venv/axe && $(BIN)/python $(INSTALL) --no-deps --target .venv/axe $(AXE) && touch $@

label-studio: .venv/dev.stamp .venv-label-studio/studio.stamp ## Run a whole loop in a real Label Studio, in an environment of its own (three minutes)
	@LABEL_STUDIO="$(CURDIR)/$(STUDIO)/label-studio" $(ONE_THREAD) $(BIN)/python -m pytest -q -s tests/integration/test_label_studio_loop.py

formats: .venv-formats/formats.stamp ## Let Datumaro and FiftyOne read our exports and write what we import, in an environment of its own
	@$(ONE_THREAD) $(FORMATS)/python -m pytest -q -W ignore tests/unit/formats/test_other_tools.py

wheel: .venv/dev.stamp ## Build the wheel, install it alone, and run what a newcomer tries first (three minutes)
	@rm -rf build/wheel .venv-wheel && $(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir build/wheel .
	@$(PYTHON) -m venv .venv-wheel
	@$(WHEEL)/python $(INSTALL) -c constraints.txt "$$(ls build/wheel/*.whl)[web]"
	@TAILWISE_WHEEL="$(CURDIR)/$(WHEEL)/tailwise" $(ONE_THREAD) $(BIN)/python -m pytest -q tests/integration/test_wheel.py

bench-tests: .venv/dev.stamp ## Run the tests that take too long for every change: kills, clusters of several machines, simulations, large presets
	@$(TESTS) -m long

bench-speed: .venv-bench/bench.stamp ## Measure speed against other solvers and libraries (ARGS=--quick for a short run)
	@$(BENCH)/python -m benchmarks.speed $(ARGS)

bench-quality: .venv/dev.stamp ## Run the experiments behind docs/results (DATA=folder of the feature files; hours)
	@$(BIN)/python -m benchmarks.quality --data "$(DATA)" $(ARGS)

bench-faults: .venv/dev.stamp ## Kill campaigns 200 times, fill their disks, set their clocks: nothing is lost (ARGS=--quick)
	@$(BIN)/python -m benchmarks.faults $(ARGS)

screens: .venv/dev.stamp browser ## Make the pictures of the labelling page in docs/images again (five minutes)
	@$(BIN)/python -m benchmarks.screens $(ARGS)

clean: ## Remove caches and results; the virtual environments stay
	@rm -rf build dist .coverage .coverage.* htmlcov .hypothesis .mypy_cache .pytest_cache .ruff_cache tailwise-demo tailwise-runs
	@find src tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +

.venv/base.stamp: pyproject.toml constraints.txt
	@echo "Preparing .venv (needed once) …"
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("Tailwise needs Python 3.11 or later, but this is " + sys.version.split()[0] + "; run: make PYTHON=python3.11")'
	@$(PYTHON) -m venv .venv
	@$(BIN)/python $(INSTALL) -c constraints.txt -e .
	@touch $@

.venv/dev.stamp: .venv/base.stamp
	@echo "Adding the development tools to .venv (needed once) …"
	@$(BIN)/python $(INSTALL) -c constraints.txt -e '.[dev,fast,ray,torch,tracking]'
	@touch $@

.venv-bench/bench.stamp: pyproject.toml constraints.txt benchmarks/requirements.txt
	@echo "Preparing .venv-bench (needed once) …"
	@$(PYTHON) -m venv .venv-bench
	@$(BENCH)/python $(INSTALL) -c constraints.txt -e '.[fast,ray,tables,torch,web]' -r benchmarks/requirements.txt
	@touch $@

.venv-docs/docs.stamp: pyproject.toml constraints.txt constraints-docs.txt
	@echo "Preparing .venv-docs (needed once) …"
	@$(PYTHON) -m venv .venv-docs
	@$(DOCS)/python $(INSTALL) -c constraints.txt -c constraints-docs.txt -e . mkdocs-material 'mkdocstrings[python]' ruff
	@touch $@

.venv-label-studio/studio.stamp: constraints-label-studio.txt
	@echo "Preparing .venv-label-studio (needed once) …"
	@$(PYTHON) -m venv .venv-label-studio
	@$(STUDIO)/python $(INSTALL) -c constraints-label-studio.txt label-studio
	@touch $@

.venv-formats/formats.stamp: pyproject.toml constraints-formats.txt
	@echo "Preparing .venv-formats (needed once) …"
	@$(PYTHON) -m venv .venv-formats
	@$(FORMATS)/python $(INSTALL) -c constraints-formats.txt -e . datumaro fiftyone hypothesis pytest
	@touch $@
