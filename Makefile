# make demo    trains a small network, calibrates it and writes a report (no download but packages)
# make test    all tests, in a few minutes on two cores
# make quick   those that are neither slow nor need a browser, several processes or real data: a minute
# make lint    format, lint and types;   make format   mends what it can
# make bench   speed against the peers
# make faults  kills, damages, fuzzes, crowds and fills disks for an hour; writes docs/reliability.md
# make docs    the site, strictly, into build/site;   make wheels   sdist and wheel into dist, checked
# make sdist-test   the sdist passes its own tests in an empty environment;   make newcomer   so does
#              the start page of the docs
# Each target sets up .venv by itself; `make clean` forgets it.

PYTHON ?= python3
BIN := .venv/bin

QUICK := not slow and not browser and not distributed and not data

.PHONY: demo test quick lint format bench faults docs wheels sdist-test newcomer clean

demo: .venv/ready
	$(BIN)/maccal demo --out build/demo

test: .venv/ready
	$(BIN)/pytest

quick: .venv/ready
	$(BIN)/pytest -m "$(QUICK)"

lint: .venv/ready
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/mypy tests/typed.py
	$(BIN)/mypy --allow-untyped-calls --no-warn-unused-ignores benchmarks
	$(BIN)/mypy --allow-untyped-calls --no-warn-unused-ignores examples

format: .venv/ready
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: .venv/ready-bench
	$(BIN)/python benchmarks/metrics.py

faults: .venv/ready-faults
	OMP_NUM_THREADS=1 $(BIN)/python -m faults

docs: .venv/ready-docs
	$(BIN)/python benchmarks/site_pages.py --check
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict --site-dir build/site

wheels: .venv/ready-release
	PYTHON=$(BIN)/python release/wheels.sh

sdist-test:
	PYTHON=$(PYTHON) release/sdist_test.sh

newcomer:
	PYTHON=$(PYTHON) release/newcomer.sh

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

.venv/ready-docs: .venv/ready
	$(BIN)/pip install --quiet --constraint constraints.txt --editable ".[docs]"
	touch $@

.venv/ready-release: .venv/ready
	$(BIN)/pip install --quiet --constraint constraints.txt --editable ".[release]"
	touch $@

clean:
	rm -rf .venv build *.egg-info
