# Everything runs from the root of the checkout; `make` alone lists what there is.
# Settings: PYTHON=python3.12   MILEPOST_ENGINE=cpu|cuda   PIP_FIND_LINKS=folder-with-wheels   TESTS=tests/integration

ifndef PYTHON
PYTHON := $(shell for p in python3.11 python3.12 python3.13 python3; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
endif
TESTS = tests
SETUP = $(or $(PYTHON),$(error Python 3.11 or newer is needed: apt-get install python3)) scripts/set_up.py
IN_ENV = PATH="$(CURDIR)/.venv/bin:$$PATH" PYRIGHT_PYTHON_IGNORE_WARNINGS=1

.DEFAULT_GOAL := help
.PHONY: help demo setup lint check format test requirements clean

help:  ## this list
	@awk -F ':.*## *' '/^[a-z]+:.*##/ { printf "  make %-14s%s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: setup  ## evaluate a small model from nothing, and show the metrics
	@.venv/bin/milepost evaluate examples/demo.yaml
	@echo 'your own  .venv/bin/milepost evaluate examples/demo.yaml actor.path=PATH'

setup:  ## make .venv, .venv-engine and the demo checkpoint
	@$(SETUP) controller engine checkpoint

lint:  ## format, lint, types, layers, generated pages
	@$(SETUP) dev
	@$(IN_ENV) scripts/check lint

check:  ## format, lint, types, layers, unit tests, generated pages (minutes: under 2)
	@$(SETUP) dev
	@$(IN_ENV) scripts/check

format:  ## let ruff format the code and repair what it can
	@$(SETUP) dev
	@$(IN_ENV) ruff format . && $(IN_ENV) ruff check --fix .

test:  ## all tests, with real engines and services
	@$(SETUP) --keep-going dev engine checkpoint slurm browser
	@$(IN_ENV) pytest $(TESTS) --numprocesses 3 --dist loadgroup --no-loadscope-reorder --durations 25

requirements:  ## renew requirements/*.txt from requirements/*.in
	@$(SETUP) tools
	@.cache/tools/bin/python scripts/compile_requirements.py

clean:  ## remove the environments, the demo checkpoint and every cache
	rm -rf .venv .venv-engine .demo .cache build dist *.egg-info .pytest_cache .ruff_cache .hypothesis .import_linter_cache
