# `make test` and `make demo` need nothing but python3 and make: each sets up .venv first.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
JOBS ?= 2

export PIP_DISABLE_PIP_VERSION_CHECK := 1

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help compat demo docs site test test-full lint format bench mutation quality build audit clean

help: ## show this list
	@grep -E '^[a-z-]+:.*## ' $(firstword $(MAKEFILE_LIST)) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 18

$(STAMP): pyproject.toml constraints.txt
	@echo "== set up $(VENV): some minutes, about 3 GB"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -qq -c constraints.txt -e '.[dev]'
	@touch $@

demo: $(STAMP) ## explain two small models: tables, figures and a page in out/demo
	$(BIN)/walkwise demo

docs: $(STAMP) ## the documentation, in out/docs (warnings are errors)
	$(BIN)/python -m sphinx -q -W --keep-going -b html docs out/docs
	@echo "Open out/docs/index.html"

site: $(STAMP) ## the documentation as it is published: a folder per version and a list of them, in out/site
	$(BIN)/python docs/site.py

test: lint ## everything CI checks: lint, types, import rules, tests, doctests, and the documentation's examples
	@echo "== pytest"
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(JOBS) --dist worksteal

test-full: lint ## the same, with all 5,000 cells of the matrix of models (docs/matrix.md) in the place of a sample
	@echo "== pytest --full"
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(JOBS) --dist worksteal --full

compat: ## the tests of the core with the oldest torch and torch_geometric that are promised (several GB, in out/compat)
	$(PYTHON) -m venv out/compat
	out/compat/bin/python -m pip install -qq -c constraints-oldest.txt -e . hypothesis pandas pytest pytest-xdist scikit-learn
	OMP_NUM_THREADS=1 out/compat/bin/python -m pytest -n $(JOBS) tests/core tests/questions tests/search tests/tracing \
	  tests/matrix tests/test_explainer.py

lint: $(STAMP) ## the first part of it: lint, types, import rules
	@echo "== ruff check"
	$(BIN)/python -m ruff check .
	@echo "== ruff format"
	$(BIN)/python -m ruff format --check .
	@echo "== mypy"
	$(BIN)/python -m mypy
	@echo "== lint-imports"
	$(BIN)/lint-imports --no-logo

format: $(STAMP) ## rewrite the code in the house format
	$(BIN)/python -m ruff check --fix-only .
	$(BIN)/python -m ruff format .

bench: $(STAMP) ## time the fast paths; writes docs/performance.md
	$(BIN)/python benchmarks/run.py
	$(BIN)/python benchmarks/orders.py
	$(BIN)/python benchmarks/performance.py

mutation: $(STAMP) ## change the code in small ways and see whether tests notice: an hour or two; writes docs/mutation.md
	OMP_NUM_THREADS=1 PYTHONPATH=benchmarks $(BIN)/python -m mutation --page $(ARGS)

quality: $(STAMP) ## explainers against known truth: hours, goes on where it stopped; SHORT=1: minutes; in out/quality
	OMP_NUM_THREADS=1 PYTHONPATH=benchmarks $(BIN)/python -m quality $(if $(SHORT),--short) $(ARGS)

build: $(STAMP) ## sdist and wheel, in dist/
	$(BIN)/python -m build

audit: $(STAMP) ## known weaknesses of the packages in use (needs the network; not part of the tests)
	$(PYTHON) -m venv out/audit
	out/audit/bin/python -m pip install -qq pip-audit
	out/audit/bin/pip-audit --progress-spinner off --skip-editable \
	  --path "$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"

clean: ## remove the environment, the caches and what was built
	rm -rf $(VENV) build dist out .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	find src tests examples benchmarks docs -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
