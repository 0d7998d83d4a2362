# Everything sets itself up in .venv: `make demo`, `make test`, `make check`.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

.PHONY: demo test check format bench clean

demo: .venv/.inferlab
	$(BIN)/inferlab benchmark demo:resnet50 --time 5 --warmup_time 1

test: .venv/.dev
	$(BIN)/python -m pytest

check: .venv/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: .venv/.dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# Prints figures as ratios measured side by side; stop other work on the machine first.
bench: .venv/.dev
	$(BIN)/python -m benchmarks

clean:
	rm -rf .venv

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "inferlab needs Python 3.11 or newer; name one with: make PYTHON=python3.12"; exit 1; }
	$(PYTHON) -m venv .venv

.venv/.inferlab: .venv/bin/python pyproject.toml
	$(PIP) --editable .
	@touch $@

.venv/.dev: .venv/.inferlab
	$(PIP) --editable '.[dev,torch,transformers,hub,postgres]'
	@touch $@
