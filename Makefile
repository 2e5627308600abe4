# `make demo` and `make test` set everything up by themselves. `make help` lists the rest.
VENV := .venv
BIN := $(VENV)/bin
# A complete .venv (pip is installed last) keeps its Python, unless another one is named.
PYTHON ?= $(if $(wildcard $(BIN)/pip3.1[0-3]),$(BIN)/python,python3)
FOUND := $(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null)
PIP := $(BIN)/pip$(or $(FOUND),-none)
INSTALL := $(BIN)/python -m pip install --disable-pip-version-check --quiet --constraint constraints.txt --editable

.DEFAULT_GOAL := help
.PHONY: help demo serve test slow browser-test screenshots fuzz docs release-check lint format bench bench-peers reproduce clean

help:  ## this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 14

# Missing if .venv is incomplete or belongs to another version: then it is made again from scratch.
$(PIP):
	$(if $(filter 3.10 3.11 3.12 3.13,$(FOUND)),,$(error found $(if $(FOUND),Python $(FOUND) \
		as $(PYTHON),no Python called $(PYTHON)); wanted 3.10 to 3.13: make $(MAKECMDGOALS) PYTHON=python3.11))
	@$(PYTHON) -m venv --clear $(VENV)

# A stamp is written only after its install succeeded, so an interrupted setup is continued.
$(VENV)/.run: pyproject.toml constraints.txt $(PIP)
	@echo "setting up $(VENV) (a few minutes the first time)"
	@$(INSTALL) '.[train,plot,fetch,serve]'
	@touch $@

$(VENV)/.dev: $(VENV)/.run
	@echo "adding what tests and linters need"
	@$(INSTALL) '.[dev]'
	@touch $@

$(VENV)/.slow: $(VENV)/.dev
	@echo "adding Ray, Spark and Jupyter, which slow tests start"
	@$(INSTALL) '.[slow]'
	@touch $@

$(VENV)/.bench: $(VENV)/.dev
	@echo "adding the peers that benchmarks compare with"
	@$(INSTALL) '.[bench]'
	@touch $@

$(VENV)/.browser: $(VENV)/.dev
	@echo "adding what drives a browser"
	@$(INSTALL) '.[browser]'
	@touch $@

$(VENV)/.docs: $(VENV)/.run
	@echo "adding what builds the documentation"
	@$(INSTALL) '.[docs]'
	@touch $@

$(VENV)/.release: $(VENV)/.run
	@echo "adding what builds and checks releases"
	@$(INSTALL) '.[release]'
	@touch $@

demo: $(VENV)/.run  ## see it work
	@$(BIN)/circlet demo

serve: $(VENV)/.run  ## try it in a browser: a page that tags, explains and learns
	@$(BIN)/circlet serve --demo --open

# Two processes, each with whole files of tests, since those share models that they have trained.
test: $(VENV)/.dev  ## the fast tests
	@$(BIN)/python -m pytest -n 2 --dist loadfile

slow: $(VENV)/.slow  ## the slow tests, and every property on many random examples; says what was skipped, and why
	@$(BIN)/python -m pytest -m 'slow or hypothesis' --hypothesis-profile=random -rs

# Trains a model and serves it. Without Chromium it says so and does nothing more.
browser-test: $(VENV)/.browser  ## the page of the service, in Chromium (a few minutes)
	@if $(BIN)/python -m tests.serve.page.chromium; then \
		$(BIN)/python -m pytest -m 'slow or not slow' tests/serve/page; fi

# `make screenshots URL=http://127.0.0.1:8000/` takes them of a running `circlet serve`.
screenshots: $(VENV)/.browser  ## pictures of the page, into docs/images
	@$(BIN)/python -m tests.serve.page.screenshots $(if $(URL),--url $(URL))

# `make fuzz CASES=1000` is shorter. A case that fails can be run alone: python -m tests.fuzz --case NUMBER
fuzz: $(VENV)/.dev  ## damage everything that is read, in 20,000 ways (some minutes)
	@$(BIN)/python -m tests.fuzz $(if $(CASES),--cases $(CASES),--out benchmarks/results)

docs: $(VENV)/.docs  ## the documentation's site, into .site/built; fails at a broken link
	@$(BIN)/python docs/gather.py
	@$(BIN)/mkdocs build --strict --quiet
	@echo ".site/built/index.html"

release-check: $(VENV)/.release  ## build wheel and sdist into dist, and check what is in them; publishes nothing
	@rm -rf dist
	@$(BIN)/python -m build --outdir dist .
	@$(BIN)/python -m twine check --strict dist/*
	@$(BIN)/python deploy/release.py dist/* $(if $(TAG),--tag $(TAG))

lint: $(VENV)/.dev  ## ruff and mypy
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

format: $(VENV)/.dev  ## let ruff fix what it can
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

bench: $(VENV)/.bench  ## speed and memory against others (half an hour and 14 GB; keep the machine idle)
	@$(BIN)/circlet datasets fetch eurlex-4k
	@for part in algebra metrics training calibration growth limits startup threads distributed bulk scale_page; do \
		$(BIN)/python benchmarks/$$part.py; done

# `make bench-peers DATA=folder` also looks for datasets there; wordnet and yso-finna-en are nowhere else. `SLOW=1` adds
# all of yso-finna-en. What is measured already is not run again: delete its files in benchmarks/results/peers.
bench-peers: $(VENV)/.run  ## accuracy, time and size against other libraries (hours; keep the machine idle)
	@$(BIN)/python benchmarks/peers.py --work $(VENV)/peers $(if $(DATA),--data $(DATA)) $(if $(SLOW),--slow)

reproduce: $(VENV)/.run  ## the paper's experiments in full, into experiments/results (hours without a GPU)
	@for name in capacity stability theory authors table baselines convergence dimension ablation codebooks \
		outputs manylabels encoders features; do \
		$(BIN)/circlet reproduce $$name --output experiments/results || exit; done

clean:  ## remove the virtual environment and every cache
	@rm -rf $(VENV) .browser .site .mypy_cache .pytest_cache .ruff_cache .hypothesis dist
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
