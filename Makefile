# People and CI run the same verbs; `make` alone lists them.
VENV := .venv
BIN := $(VENV)/bin
PYTHON ?= python3
LOCK := requirements/lock.txt
# Installs without what pip would only print.
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet
# Installing Debian packages needs root.
ROOT_SHELL := $(shell test "$$(id -u)" = 0 || echo sudo)

.DEFAULT_GOAL := help
.PHONY: help demo test check browser docs format test-gpu golden bench clean

help: ## list the verbs
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "foretrace needs Python 3.11 or newer; name one with PYTHON=…")'
	$(PYTHON) -m venv $(VENV)

# What the demo needs: the package and torch, at the locked versions.
$(VENV)/.demo: pyproject.toml $(LOCK) | $(VENV)/bin/python
	$(PIP) --constraint $(LOCK) --editable '.[torch]'
	@touch $@

# What the tests need: everything in the lock file.
$(VENV)/.dev: pyproject.toml $(LOCK) | $(VENV)/bin/python
	$(PIP) --requirement $(LOCK)
	$(PIP) --no-deps --editable .
	@touch $@ $(VENV)/.demo

$(VENV)/.browser: requirements/browser.txt $(VENV)/.dev
	$(PIP) --requirement requirements/browser.txt
	@touch $@

$(VENV)/.docs: requirements/docs.txt $(VENV)/.dev
	$(PIP) --requirement requirements/docs.txt
	@touch $@

demo: $(VENV)/.demo ## profile an MLP here; then guess, predict and explain one that was recorded on an H200
	@$(BIN)/foretrace demo

test: $(VENV)/.dev ## run every test that needs no GPU and no browser
	$(BIN)/python -m pytest -n auto --dist loadgroup -q -m "not browser"

check: $(VENV)/.dev ## format, lint, types, import rules
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

browser: $(VENV)/.browser ## open the HTML reports in a headless Chromium (installs Debian's where there is none)
	@command -v chromium >/dev/null || { $(ROOT_SHELL) apt-get update -qq && $(ROOT_SHELL) apt-get install -y -qq chromium >/dev/null; }
	$(BIN)/python -m pytest tests/browser -m browser -q

docs: $(VENV)/.docs ## build the documentation site into site/, broken links forbidden
	@# Without --quiet: it hides the warnings that --strict fails on, from --strict too.
	$(BIN)/mkdocs build --strict

format: $(VENV)/.dev ## mend format and lint where that is safe
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

test-gpu: ## run the GPU tests with the Python that has a CUDA torch (PYTHON=…)
	PYTHONPATH=src $(PYTHON) -m pytest tests/gpu -m gpu -q

golden: $(VENV)/.dev ## write the golden files and schemas anew (then read the diff like code)
	$(BIN)/python -m pytest $$(grep -rl --include='test_*.py' regolden tests) -q --regolden

bench: $(VENV)/.dev ## measure how fast traces are read against HTA, and start-up
	$(BIN)/python benchmarks/reading.py

clean: ## remove what the verbs above made, recordings excepted
	rm -rf $(VENV) site .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
