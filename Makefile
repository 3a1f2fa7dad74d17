# Everything a developer or CI runs. Needs Python 3.11+ and make; sets up the rest in .venv from the lock file.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
SEEDS ?= 30
# Runs of the fuzzer: in the tests, and of a long one by hand (make fuzz N=10000).
FUZZ ?= 150
N ?= 10000
# Jobs of each run with a planted defect (make defects).
JOBS ?= 1000
# Tests run in two processes more than there are cores, up to four, as many of them wait; WORKERS=0 runs them in one, in order.
WORKERS ?= $(shell expr $$(getconf _NPROCESSORS_ONLN) + 2)
# What `make coverage` runs: the folders of tests that reach most lines in the shortest time.
COVERED = $(addprefix tests/,cluster core crds events histories machines processes web)
PARALLEL = -n $(WORKERS) --maxprocesses 4

DOCS := .venv-docs
RELEASE := .venv-release

.PHONY: help demo demo-kube test coverage fuzz defects test-kube test-operators kube operators check fmt corrupt bench bench-kube bench-kube-tas bench-kube-jobs bench-kube-pods bench-kube-costs schemas docs chaos chaos-kube lock release clean
help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 16

$(STAMP): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(0 if v >= (3, 11) else f"headgate needs Python 3.11 or newer, {sys.executable} is {v[0]}.{v[1]}: make PYTHON=python3.11 ...")'
	@echo "setting up $(VENV) ..."
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

demo: $(STAMP) ## a whole cell on this machine: 3 teams, 200 jobs, the story of one that had to wait
	@$(BIN)/headgate demo

test: $(STAMP) ## all tests but the long chaos runs and those on a real control plane
	@$(BIN)/pytest -m "not chaos and not kube and not chaos_kube and not operators" --seeds $(SEEDS) --fuzz $(FUZZ) $(PARALLEL) --dist worksteal

coverage: $(STAMP) ## the tests that cover most, with the share of lines that they run; fails below the floor in pyproject.toml
	@$(BIN)/pytest -q -m "not kube and not operators" $(COVERED) --seeds 5 $(PARALLEL) --dist worksteal --cov --cov-report term:skip-covered --cov-report html

fuzz: $(STAMP) ## drawn objects and operations through a whole cell, N=10000 runs; prints the seed of what it finds
	@nice $(BIN)/pytest -q tests/fuzz --fuzz $(N) $(PARALLEL) --dist worksteal

defects: $(STAMP) ## one planted defect at a time, for one Job of JOBS=1000: all others end as without it
	@nice $(BIN)/pytest -q tests/simulation/test_one_of_a_thousand.py --defect-jobs $(JOBS) --durations 0 $(PARALLEL) --dist worksteal

kube: $(STAMP) ## build a real control plane into the user's cache folder, if it is not there (needs Go)
	@$(BIN)/python -m headgate.testing.control_plane build

operators: $(STAMP) ## build the operators of job kinds, Kueue's kubectl plugin, Kueue itself, the kube-scheduler, helm and promtool there too; see test-operators (needs Go)
	@$(BIN)/python -m headgate.testing.control_plane operators

test-kube: kube ## the tests on a real control plane; skipped where there is none
	@$(BIN)/pytest -m "kube and not operators" --timeout 300 $(PARALLEL) --dist loadfile

test-operators: kube operators ## the tests with the operators of job kinds, Kueue's own programs, helm and promtool, which it builds first
	@$(BIN)/pytest -m operators --timeout 300 $(PARALLEL) --dist loadfile

demo-kube: kube ## the demo on a real control plane
	@$(BIN)/python -m headgate.testing.control_plane demo

check: $(STAMP) ## format, lint, types, import contracts, purity, sizes, drift of generated files, compose syntax
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy --num-workers auto
	$(BIN)/lint-imports
	$(BIN)/python tools/pure_code.py
	$(BIN)/python tools/sizes.py
	$(BIN)/python -m tools.schemas --check
	$(BIN)/python -m tools.reference --check
	$(BIN)/python -m tools.dashboards --check
	$(BIN)/python -m tools.chart --check
	$(BIN)/python tools/check_compose.py

fmt: $(STAMP) ## format and fix what can be fixed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(STAMP) ## the benchmarks, as a table
	@$(BIN)/python -m tests.benchmarks

bench-kube: kube ## Kueue's scheduler benchmark on a real API server; ARGS='--scale 0.1' for a small run
	@$(BIN)/python -m tests.benchmarks.kube $(ARGS)

bench-kube-tas: kube ## Kueue's benchmark of topology-aware scheduling, ours and then Kueue itself; ARGS='--scale 0.1' for a small run
	@$(BIN)/python -m tests.benchmarks.kube --load tas --no-profile $(ARGS)
	@$(BIN)/python -m tests.benchmarks.kube --load tas --no-profile --kueue $(ARGS)

bench-kube-jobs: kube ## 2,000 real Jobs, JobSets and pod groups each through their lives on a real control plane; ARGS='--jobs N'
	@for kind in job jobset podgroup; do $(BIN)/python -m tests.benchmarks.kube_jobs --of $$kind $(ARGS) || exit; done

bench-kube-pods: kube ## 5,000 pods on 1,000 nodes of a real control plane, placed by Headgate and by the kube-scheduler (make operators); ARGS='--pods N --nodes N'
	@$(BIN)/python -m tests.benchmarks.kube_pods $(ARGS)

bench-kube-costs: kube ## what each kind of request costs a real API server
	@$(BIN)/python -m tests.benchmarks.kube_costs $(ARGS)

schemas: $(STAMP) ## write schemas/, docs/reference/ and the Helm chart anew from the code and deploy/kubernetes
	@$(BIN)/python -m tools.schemas
	@$(BIN)/python -m tools.reference
	@$(BIN)/python -m tools.dashboards
	@$(BIN)/python -m tools.chart

chaos: $(STAMP) ## kill every process and the broker again and again under load; prints its seed
	@$(BIN)/pytest -m chaos --timeout 3000 -s

corrupt: N = 1000
corrupt: $(STAMP) ## damage the stores of a cell at random, N=1000 times, and say what was found; FIRST= is the first seed
	@$(BIN)/pytest tests/corruption/test_random.py --corruptions $(N) --first-seed $(or $(FIRST),0) -n 0 -q -rN

chaos-kube: kube ## the same on a real control plane that fails; ARGS='--chaos-seed N' repeats a run
	@$(BIN)/pytest -m chaos_kube --timeout 1200 -s tests/chaos_kube $(ARGS)

# Tools with a lock file of their own, each in a virtualenv of its own.
$(DOCS)/.installed: docs/requirements.lock
	@test -x $(DOCS)/bin/python || $(PYTHON) -m venv $(DOCS)
	@$(DOCS)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r docs/requirements.lock
	@touch $@

$(RELEASE)/.installed: deploy/release.lock
	@test -x $(RELEASE)/bin/python || $(PYTHON) -m venv $(RELEASE)
	@$(RELEASE)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r deploy/release.lock
	@touch $@

docs: $(STAMP) $(DOCS)/.installed ## build the documentation site into site/, links and anchors checked
	@$(BIN)/python -m tools.reference --check
	@NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/mkdocs build --strict
	@echo "site/index.html"

release: $(STAMP) $(RELEASE)/.installed ## wheel, sdist, SBOM, checksums and, where docker runs, the image, into dist/
	@deploy/release $(BIN)/python $(RELEASE)/bin/cyclonedx-py

lock: ## resolve the dependencies anew (needs uv)
	uv pip compile -q --universal --python-version 3.11 --generate-hashes --extra dev pyproject.toml -o requirements.lock
	uv pip compile -q --universal --python-version 3.11 --generate-hashes --extra embedded --extra build pyproject.toml -o deploy/requirements.lock
	uv pip compile -q --universal --python-version 3.11 --generate-hashes docs/requirements.in -o docs/requirements.lock
	uv pip compile -q --universal --python-version 3.11 --generate-hashes deploy/release.in -o deploy/release.lock

clean: ## remove what the targets above have made
	rm -rf $(VENV) $(DOCS) $(RELEASE) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .headgate .coverage htmlcov site dist
