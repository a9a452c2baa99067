# make demo     a real checkpoint's AR perplexity on real text, in one command
# make test     every test
# make check    format and lint
# make bench    the benchmark tables (minutes)

PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
INSTALLED = $(VENV)/.installed

.PHONY: demo test check bench install

demo: $(INSTALLED)
	$(BIN)/recallgap demo --out demo-out

test: $(INSTALLED)
	$(BIN)/python -m pytest

check: $(INSTALLED)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

bench: $(INSTALLED)
	for script in benchmarks/*.py; do echo "== $$script"; $(BIN)/python $$script || exit 1; done

install: $(INSTALLED)

$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[gguf,eval,dev]"
	touch $(INSTALLED)
