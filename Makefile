# Two commands set everything up and do their job: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Hundreds of processes of the tests import the same modules: compiled once, also where a container turns that off.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: setup demo test lint types imports collected unit bench gpu kills chaos soak soak-replay fuzz crash-points histories damage combinations slow thorough protocol picture clean

setup: $(STAMP)

# Debian may lack python3-venv: then the environment is made without pip, and the pip outside installs into it.
$(STAMP): pyproject.toml market/pyproject.toml constraints.txt
	@echo "setup: a Python environment goes into ./$(VENV), some seconds"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) 2>/dev/null \
		|| { rm -rf $(VENV); $(PYTHON) -m venv --without-pip $(VENV); }
	@echo "setup: Eunomia with all extras (torch, gRPC, TensorBoard, solvers, Optuna) and the tools of its tests" \
		"go into ./$(VENV): one to ten minutes, 2 GiB of disk or more (torch is most of it)"
	@if $(BIN)/python -m pip --version >/dev/null 2>&1; then pip="$(BIN)/python -m pip"; \
	else pip="$(PYTHON) -m pip --python $(BIN)/python"; fi; \
	$$pip install --quiet -c constraints.txt -e '.[all,dev]' && $$pip install --quiet --no-deps -e ./market
	@touch $(STAMP)
	@echo "setup: done; \`make clean\` takes it away"

demo: setup
	@echo "demo: four apps share this machine for one to three minutes"
	$(BIN)/eunomia demo

# mypy takes one core for as long as everything else before the tests takes the other.
test: setup
	@$(MAKE) --no-print-directory --jobs 2 types collected lint imports
	@$(MAKE) --no-print-directory unit

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup
	$(BIN)/mypy

imports: setup
	$(BIN)/lint-imports

# In a fresh clone each of the four workers would rewrite the assertions of every file of tests: this one does it
# once and writes them down. What it finds wrong, `unit` reports.
collected: setup
	@$(BIN)/python -m pytest -q -n 0 --collect-only -m "not slow" > /dev/null 2>&1 || true

unit: setup
	@echo "unit: the tests, about a quarter of an hour on two cores"
	$(BIN)/python -m pytest -q -n 4 --dist loadfile --no-loadscope-reorder -m "not slow"

# Threads of torch that wait for each other sleep: four workers share the cores.
unit thorough: export OMP_WAIT_POLICY := PASSIVE

# Slower, and apart from `make test`.
bench: setup
	@for file in tests/benchmarks/bench_*.py; do echo "== $$file"; $(BIN)/python $$file; done

# What only an NVIDIA GPU can show; without one it says so and ends with 0.
gpu: setup
	PYTHONPATH=tests $(BIN)/python -m gpu_checks

# What breaks a running system on purpose is no part of the package; each of these takes minutes.
CHAOS := PYTHONPATH=tests $(BIN)/python -m chaos

kills: setup
	$(CHAOS).kills --kills 9 --runs 3

# A thousand actions take two hours on two idle cores; after a stop, `make chaos` goes on where it was.
chaos: setup
	$(CHAOS).storms --actions 1000 --runs 10 --out eunomia-out/chaos

soak: setup
	$(CHAOS).soak --for 1h

soak-replay: setup
	$(CHAOS).soak --replay --for 1h

fuzz: setup
	$(CHAOS).fuzz --messages 50000

crash-points: setup
	$(CHAOS).crash_points --processes 2

# Some 45 minutes of CPU time.
histories: setup
	PYTHONPATH=.:tests $(BIN)/python -m chaos.histories --histories 10000 --processes 2

damage: setup
	$(CHAOS).damage --damages 1000

# The pages that say which plugins go together; after a new plugin.
combinations: setup
	PYTHONPATH=tests $(BIN)/python -m combinations docs/reference

slow: setup
	$(BIN)/python -m pytest -q -m slow

# The ordinary tests with all their examples, scenes and points; `make test` takes a part of them (tests/strength.py).
thorough: setup
	EUNOMIA_THOROUGH=1 $(BIN)/python -m pytest -q -n 4 --dist loadfile --no-loadscope-reorder -m "not slow"

protocol: setup
	$(BIN)/python -m eunomia_appmaster.protocol.generate

# The pictures of the documents, from the newest demo and from a simulation; needs Chromium.
COMPARED := --policy fifo --policy srtf --policy las --policy max_min --policy max_min_fairness --seeds 0-4
picture: setup
	$(BIN)/python -m eunomia_testbed.report.picture "$$(ls -d eunomia-out/demo-* | tail -n 1)" docs/report.png --height 1500
	$(BIN)/eunomia simulate --workload gavel --set gavel.jobs=80 --set gavel.interarrival=200s --cluster "4x8 V100" \
		$(COMPARED) --rho static --cost start=30s --cost checkpoint=20s --cost restore=20s \
		--out eunomia-out/picture --overwrite
	$(BIN)/python -m eunomia_testbed.report.picture eunomia-out/picture docs/report-simulate.png --policy las --height 2520

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis
