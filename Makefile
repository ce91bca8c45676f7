# Two commands set everything up and do their job: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: setup demo test lint types imports unit bench kills slow protocol picture clean

setup: $(STAMP)

# Debian may lack python3-venv: then the environment is made without pip, and the pip outside installs into it.
$(STAMP): pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) 2>/dev/null \
		|| { rm -rf $(VENV); $(PYTHON) -m venv --without-pip $(VENV); }
	@if $(BIN)/python -m pip --version >/dev/null 2>&1; then \
		$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[dev]'; \
	else \
		$(PYTHON) -m pip --python $(BIN)/python install --quiet -c constraints.txt -e '.[dev]'; \
	fi
	@touch $(STAMP)

demo: setup
	$(BIN)/eunomia demo

test: setup lint types imports unit

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup
	$(BIN)/mypy

imports: setup
	$(BIN)/lint-imports

unit: setup
	$(BIN)/python -m pytest -q -m "not slow"

# Slower, and apart from `make test`.
bench: setup
	@for file in tests/benchmarks/bench_*.py; do echo "== $$file"; $(BIN)/python $$file; done

kills: setup
	$(BIN)/python -m eunomia_testbed.kills --kills 9 --runs 3

slow: setup
	$(BIN)/python -m pytest -q -m slow

protocol: setup
	$(BIN)/python -m eunomia_appmaster.protocol.generate

# The README's picture, from the newest run; needs Chromium.
picture: setup
	$(BIN)/python -m eunomia_testbed.report.picture eunomia-out/latest docs/report.png --height 1500

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis
