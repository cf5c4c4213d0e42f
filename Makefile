# make demo   trains a small network, calibrates it and writes a report (no download beyond packages)
# make test   all tests;   make lint   format, lint and types;   make bench   speed against the peers
# make faults kills, damages, fuzzes, crowds and fills disks for an hour, and writes docs/reliability.md
# Each target sets up .venv by itself; `make clean` forgets it.

PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test lint format bench faults clean

demo: .venv/ready
	$(BIN)/maccal demo --out build/demo

test: .venv/ready
	$(BIN)/pytest

lint: .venv/ready
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: .venv/ready
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: .venv/ready-bench
	$(BIN)/python benchmarks/metrics.py

faults: .venv/ready-faults
	OMP_NUM_THREADS=1 $(BIN)/python -m faults

.venv/ready: pyproject.toml setup.py constraints.txt $(wildcard maccal/metrics/_*.[ch])
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --constraint constraints.txt --editable ".[dev]"
	touch $@

.venv/ready-bench: .venv/ready
	$(BIN)/pip install --quiet --constraint constraints.txt --editable ".[bench]"
	touch $@

.venv/ready-faults: .venv/ready
	$(BIN)/pip install --quiet --constraint constraints.txt --editable ".[faults]"
	touch $@

clean:
	rm -rf .venv build *.egg-info
