# `make demo` and `make test` work on a bare clone; each makes .venv first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: install demo test lint types docs browser bench-core clean

install: $(READY)

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[dev]"
	touch $(READY)

demo: install
	$(BIN)/potion demo

# Two workers with a thread each: small networks gain little from a second thread.
test: lint types docs browser
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses 2 --dist loadfile

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: install
	$(BIN)/mypy

# Into site/, which git does not see; a link that leads nowhere is an error.
docs: install
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

# The page is tested in a real browser. Where none can be installed, its tests are skipped and say so.
browser:
	@if ! command -v chromedriver >/dev/null && command -v apt-get >/dev/null; then \
		sudo=$$(test "$$(id -u)" = 0 || echo sudo -n); \
		{ $$sudo apt-get update -qq && $$sudo apt-get install -y -qq --no-install-recommends chromium chromium-driver; } \
			>/dev/null 2>&1 || echo "no browser could be installed (chromium, chromium-driver): its tests will be skipped"; \
	fi

bench-core: install
	$(BIN)/python scripts/bench_core.py
	$(BIN)/python scripts/bench_loader.py

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis dist site
