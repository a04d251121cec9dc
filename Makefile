# make demo   sets up .venv, then the whole job on the embedded default (about ten minutes)
# make test   sets up .venv, then every check
# make check  format, lint, types, floors, tests on an environment that is there
PYTHON ?= python3
BIN := .venv/bin
# Two-thread torch stalls as soon as another process wants a core: one thread everywhere.
export OMP_NUM_THREADS ?= 1
export TOKENIZERS_PARALLELISM ?= false

.PHONY: setup demo test check lint types floors tests

setup: .venv/ready

# A CUDA device gets the default wheel of torch, everything else the CPU wheel.
.venv/ready: pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip
	if command -v nvidia-smi >/dev/null && nvidia-smi -L >/dev/null 2>&1; \
	then $(BIN)/python -m pip install --quiet torch; \
	else $(BIN)/python -m pip install --quiet torch==2.13.0; fi
	$(BIN)/python -m pip install --quiet --editable ".[dev]"
	touch $@

demo: setup
	$(BIN)/pivotune run recipes/demo.toml

test: setup check

check: lint types floors tests

lint:
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types:
	$(BIN)/mypy

floors:
	$(BIN)/lint-imports

tests:
	$(BIN)/python -m pytest -q
