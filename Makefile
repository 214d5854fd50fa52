# fleet: `make demo` goes the whole road on this machine, `make test` proves it.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

VENV := .venv
INVOKE := $(VENV)/bin/invoke
KEY ?= dsv4-fp4-mi355x-atom-disagg-mtp
EXAMPLE := inventories/example-mi355x.yaml

.PHONY: help
help: ## show these lines
	@sed -n 's/^\([a-z-]*\):.*## /\1 /p' Makefile | while read -r name text; do printf '  make %-10s %s\n' "$$name" "$$text"; done

.PHONY: demo
demo: install ## bring up a lab of three nodes here and sweep KEY on it (Debian, root)
	@$(INVOKE) lab.install
	@$(INVOKE) lab.up
	@code=0; $(INVOKE) sweep --config $(KEY) || code=$$?; \
	printf '\nyour turn:  . $(VENV)/bin/activate     then: invoke health, invoke --list, docs/cheatsheet.md\non your machines: README.md, "On your machines"\nthe lab is still up; take it down: make lab-down\n'; exit $$code

.PHONY: plan
plan: install ## print the plan of KEY on an example inventory; needs no lab and no host
	@$(INVOKE) plan --config $(KEY) --inventory $(EXAMPLE)

.PHONY: install
install: $(VENV)/.installed ## make .venv with the pinned packages

$(VENV)/.installed: pyproject.toml constraints.txt
	@.ci/venv .
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	@.ci/venv '.[dev]'
	@touch $@

.PHONY: test
test: $(VENV)/.installed-dev ## run all tests; as root those in the lab, too
	@.ci/test

.PHONY: test-long
test-long: $(VENV)/.installed-dev ## the tests that make test leaves out: long ones in the lab, a real browser (root, five minutes)
	@.ci/test-long

.PHONY: chaos
chaos: $(VENV)/.installed-dev ## faults in every stage of a sweep, in the lab, a table of them (root, a quarter of an hour)
	@.ci/chaos

.PHONY: check
check: $(VENV)/.installed-dev ## ruff and mypy --strict
	@$(VENV)/bin/ruff check .
	@$(VENV)/bin/ruff format --check .
	@$(VENV)/bin/mypy

.PHONY: bench
bench: install ## measure fleet itself: invoke --list, fan-out (docs/bench.md)
	@code=0; $(VENV)/bin/python tests/bench/list.py || code=$$?; \
	if [ "$$(id -u)" = 0 ]; then $(VENV)/bin/python tests/bench/fanout.py || code=$$?; else echo "the fan-out needs root"; fi; exit $$code

.PHONY: bench-staging
bench-staging: install ## an image to eight nodes in a lab of its own: fleet, star, registry, the wire (root, ten minutes)
	@$(VENV)/bin/python tests/bench/staging.py

.PHONY: lab-down
lab-down: install ## take the lab down and remove all it made
	@$(INVOKE) lab.down

.PHONY: clean
clean: ## take the lab down; remove .venv and caches, keep results/
	@if [ -x $(INVOKE) ]; then $(INVOKE) lab.down; fi
	@rm -rf $(VENV) *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
