# Every target sets up what it needs: Python 3.11 or newer with venv, make and git are enough to begin with.

VENV    := .venv
BIN     := $(VENV)/bin
STAMP   := $(VENV)/.installed
CLIENTS := $(VENV)/.clients
LOAD    := $(VENV)/.load
PYTEST  := $(BIN)/python -m pytest

# A list of its own, because pyenv and its like leave names behind that do not run. A distribution's Python goes first: it
# is built with profile-guided optimisation, which pyenv leaves out, and the gateway runs 5 to 9 % cheaper on it.
PYTHONS := /usr/bin/python3.11 /usr/bin/python3.12 /usr/bin/python3.13 \
           python3.11 python3.12 python3.13 python3.14 python3 python
USABLE  := import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))

# Many tests wait for clocks and sockets, so two processes pay off on any machine; more want more databases.
# One more than the smallest machine has cores: many tests wait for a clock or a process.
JOBS    ?= 3

# Measures every process of a run, those that tests start included: the variables reach them by inheritance.
COVERED := COVERAGE_FILE=$(CURDIR)/.coverage COVERAGE_PROCESS_START=$(CURDIR)/pyproject.toml

# Prints one total, and what is missing only when it is too much.
define require_coverage
@total=$$($(BIN)/coverage report --format=total --include='$(1)/*') && \
echo "Coverage of $(1): $$total % (at least $(2) %)" && \
table=$$($(BIN)/coverage report --fail-under=$(2) --include='$(1)/*') || { echo "$$table"; exit 1; }
endef

.DEFAULT_GOAL := help
.PHONY: help install demo demo-agents test test-full check conformance load capacity wheel image-test docs-generate clean

help: ## Show what there is
	@echo "Responses Gateway"
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' Makefile

install: $(STAMP) ## Make .venv with everything in it; the other targets do so by themselves
	@echo "Everything is in $(VENV)"

$(STAMP): pyproject.toml constraints.txt
	@python=; \
	for candidate in $(PYTHONS); do \
		if $$candidate -c '$(USABLE)' >/dev/null 2>&1; then python=$$candidate; break; fi; \
	done; \
	if [ -z "$$python" ]; then \
		echo "No usable Python found. Needed: Python 3.11 or newer with venv and ensurepip"; \
		echo "(Debian and Ubuntu: the package python3-venv)."; \
		exit 1; \
	fi; \
	if ! command -v git >/dev/null; then echo "git was not found; please install it."; exit 1; fi; \
	echo "Setting up $(VENV) with $$($$python --version), once; this takes a minute or two"; \
	test -x $(BIN)/python || $$python -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

# Clients get folders of their own: they want other versions than the gateway, and Codex alone takes 400 MB.
$(CLIENTS): $(STAMP) tests/clients/package.json tests/clients/requirements.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[deploy]'
	@$(BIN)/python -m venv $(VENV)/clients/python
	@$(VENV)/clients/python/bin/python -m pip install --quiet --disable-pip-version-check -r tests/clients/requirements.txt
	@cp tests/clients/package.json $(VENV)/clients/
	@npm install --prefix $(VENV)/clients --silent --no-audit --no-fund --no-package-lock
	@touch $@

$(LOAD): $(STAMP)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[load]'
	@touch $@

demo: $(STAMP) ## See the gateway at work, with a simulated inference server; DEMO=once ends after the tour
	@$(BIN)/gateway demo $(if $(filter once,$(DEMO)),--once)

demo-agents: $(STAMP) ## See several agents at work in one response, answered and steered meanwhile; DEMO=once as for demo
	@$(BIN)/gateway demo --agents $(if $(filter once,$(DEMO)),--once)

test: $(STAMP) ## Run the tests that need nothing beyond Python, make and git, with coverage
	@$(BIN)/coverage erase
	@$(COVERED) $(PYTEST) -q -n $(JOBS) --dist worksteal -m "not full"
	@$(BIN)/coverage combine --quiet
	$(call require_coverage,gateway,90)
	$(call require_coverage,gateway/protocol,100)
	@echo "Left out: $$($(PYTEST) -m full --collect-only -q | grep -c '::') tests that need more than Python, make and git (make test-full)"

test-full: $(CLIENTS) $(LOAD) ## Run the tests that need client libraries or other programs; a missing one is a failure
	@$(PYTEST) -q -m full

check: $(STAMP) ## Check form, style, types and the floors
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/lint-imports

conformance: $(STAMP) ## Replay the cases and captures, cut streams after every byte, and try all that the API describes
	@EVERY_CUT=1 $(PYTEST) -q -n $(JOBS) --dist worksteal tests/conformance

load: $(LOAD) ## Put a gateway under load and report it; TARGET=URL names one that runs, USERS and DURATION how much
	@PYTHONPATH=tests $(BIN)/python loadtests/load.py run $(ARGS)

capacity: $(LOAD) ## Find how many users a gateway serves within the objectives; TARGET=URL as for load
	@PYTHONPATH=tests $(BIN)/python loadtests/load.py capacity $(ARGS)

wheel: $(STAMP) ## Build the wheel, install it alone into an empty environment and use it there
	@.ci/wheel

image-test: $(STAMP) ## Build the image without a registry and run it without an engine; as root, on Debian or Ubuntu
	@.ci/image

docs-generate: $(STAMP) ## Write what follows from the code: the configuration's reference, template and schema, tables of pages
	@$(BIN)/python -m gateway.config.render
	@cd tests && ../$(BIN)/python -m conformance.conformance_page
	@cd tests && ../$(BIN)/python -m docs.websocket_page
	@cd tests && ../$(BIN)/python -m docs.agents_page
	@cd tests && ../$(BIN)/python -m docs.status_page

clean: ## Remove what make and the tools made
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .coverage .coverage.* dist build
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
