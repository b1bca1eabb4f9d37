# Everything a developer runs. `make help` explains each target.
#
#   PYTHON=python3.12   the interpreter that creates the environment (3.11 or newer)
#   FERRYMQ_PURE=1      do not compile, run everything interpreted
#   ARGS="..."          further arguments for `make run` and `make bench`
#   HTTP=...            where `make run` has the console, metrics and health
#   JOBS=2              test processes side by side
#   SECONDS=60          how long `make fuzz` goes on
#   CYCLES=100 CUTS=30  how often `make crash` kills the broker, and cuts its power
#   FAULTS=60           how many things `make failovers` does to a cluster
#   KILLS=200           how many processes of a Spark query on a cluster `make kills` kills
#   OLD_SPARKS="4.0 4.1"  versions of Spark for `make old-sparks` and `make core-on-old-sparks`

PYTHON  ?= python3
VENV    ?= .venv
JOBS    ?= 2
SECONDS ?= 60
CYCLES  ?= 100
CUTS    ?= 30
FAULTS  ?= 60
KILLS   ?= 200
OLD_SPARKS ?= 4.0 4.1
ARGS    ?=
HTTP    ?= http://127.0.0.1:15692

PY       := $(VENV)/bin/python
# The folder behind the link, so that a build does not change what runs; empty if nothing is compiled.
COMPILED  = $$(cd "$(CURDIR)/build/compiled" 2>/dev/null && pwd -P)
RESULTS  := build/test-results
READY     = $(VENV)/.ready
READY_DEV = $(VENV)/.ready-dev

PIP     := $(PY) -m pip install --quiet --disable-pip-version-check
# Tests start hundreds of processes: none should compile its modules' source to bytecode again.
export PYTHONDONTWRITEBYTECODE :=
# FERRYMQ_BUILD makes the suite insist on the variant it was meant for.
PURE    := FERRYMQ_BUILD=pure PYTHONPATH=
BUILT    = FERRYMQ_BUILD=$$(test -d "$(CURDIR)/build/compiled" && echo compiled || echo pure) \
           PYTHONPATH="$(COMPILED)"
# Tests of a file go to one process, those with Spark too: `tests/conftest.py`.
PYTEST  := $(PY) -m pytest -q -n $(JOBS) --dist loadgroup --hypothesis-profile=ci

# The core of the data source on the oldest versions of Spark; the suite runs on the newest.
ON_SPARKS  = $$(ls $(RESULTS)/spark-*.xml 2>/dev/null)

# What `make test` runs on the interpreted build: what computes with bytes and numbers, where the
# two can differ, and of the rest a part of each package that is compiled.
INTERPRETED := $(addprefix tests/, arrow codec engine types types_0_9_1 \
    client/test_receiving.py client/test_sending.py client/test_with_broker.py wire/test_messages.py \
    $(addprefix broker/, access/test_attaching.py exchanges/test_routing.py \
        filters/test_selector_logic.py lifecycle/test_expiry.py paging/test_pages.py \
        queues/test_priority.py recovery/test_queues.py slices/test_bounds.py store/test_replay.py \
        streams/test_positions.py termini/test_targets.py test_competing_consumers.py \
        test_flow_control.py test_outcomes.py test_stored_server.py topics/test_shared.py \
        transactions/test_posting.py))

.DEFAULT_GOAL := help
.PHONY: help install build run test test-all test-pure test-compiled regen check-generated lint type \
        bench bench-spark spark-versions old-sparks core-on-old-sparks standstill interop foreign conformance fuzz fuzz-targets crash failovers kills audit docs check-docs \
        wheels clean distclean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# ── Environment and build ────────────────────────────────────────────────────────────────────────

$(PY):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	    echo "ferrymq needs Python 3.11 or newer; name one: make PYTHON=python3.12 ..."; exit 1; }
	@echo "creating $(VENV)"
	@$(PYTHON) -m venv $(VENV) || { \
	    echo "$(PYTHON) cannot create environments; on Debian: apt-get install python3-venv"; exit 1; }

# Without build isolation the build requirements are installed once, not at every change.
$(READY): pyproject.toml | $(PY)
	@echo "installing ferrymq, and the packages of the broker and its console, into $(VENV)"
	@$(PIP) "hatchling>=1.27"
	@$(PIP) --no-build-isolation -e ".[broker,compile,console]"
	@touch $@

$(READY_DEV): pyproject.toml $(READY) | $(PY)
	@echo "installing the development tools into $(VENV)"
	@$(PIP) --no-build-isolation --only-binary atheris -e ".[dev,interop,fuzz]" 2>/dev/null || \
	$(MAKE) --no-print-directory $(VENV)/.ready-some
	@touch $@

# The same where something of it cannot be had.
$(VENV)/.ready-some:
	@$(PIP) --no-build-isolation -e ".[dev]"
	@if $(PY) hatch_build.py can-compile; then $(PIP) --no-build-isolation -e ".[dev,interop]"; \
	else echo "python-qpid-proton is left out: the tests against it will not run"; fi
	@$(PIP) --no-build-isolation --only-binary atheris -e ".[dev,fuzz]" 2>/dev/null \
	|| echo "atheris is left out: fuzzing goes by Hypothesis alone"

install: $(READY) ## create .venv and install ferrymq into it, editable
	@echo "ready: $(VENV)/bin/ferrymq"

build: $(READY) ## compile the hot modules into build/compiled (only what changed)
	@$(PY) hatch_build.py build

# ── Use ──────────────────────────────────────────────────────────────────────────────────────────

# The first time, the broker does not wait for the compiler.
run: $(READY) ## start the broker and its console, compiled where possible; ARGS="--listen amqp://127.0.0.1:0"
	@$(PY) hatch_build.py build --behind
	@PYTHONPATH="$(COMPILED)" exec $(VENV)/bin/ferrymq serve $(if $(filter --config%,$(ARGS)),,--http $(HTTP)) $(ARGS)

# ── Tests ────────────────────────────────────────────────────────────────────────────────────────

test: $(READY_DEV) node-modules build ## check a change: the suite on the compiled build, what can differ interpreted too
	@rm -rf $(RESULTS); status=0; \
	if test -d build/compiled; then \
	    echo "== interpreted: what can differ"; \
	    $(PURE) $(PYTEST) -m "not slow and not once" --junitxml=$(RESULTS)/pure.xml $(INTERPRETED) || status=1; \
	    echo "== compiled"; \
	    $(BUILT) $(PYTEST) -m "not slow" --junitxml=$(RESULTS)/compiled.xml || status=1; \
	    $(PY) .ci/summary.py $(RESULTS)/pure.xml $(RESULTS)/compiled.xml || status=1; \
	else \
	    echo "== interpreted; nothing was compiled"; \
	    $(PURE) $(PYTEST) -m "not slow" --junitxml=$(RESULTS)/pure.xml || status=1; \
	    $(PY) .ci/summary.py $(RESULTS)/pure.xml || status=1; \
	fi; exit $$status

# Everything there is of the tests, for a release or a night.
test-all: export FERRYMQ_TEST_ALL := 1
test-all: $(READY_DEV) node-modules build ## everything, on both builds, with stores, thousands of random examples and more faults
	@rm -rf $(RESULTS); status=0; \
	echo "== compiled"; \
	$(BUILT) $(PYTEST) --junitxml=$(RESULTS)/compiled.xml || status=1; \
	echo "== interpreted"; \
	$(PURE) $(PYTEST) -m "not once" --junitxml=$(RESULTS)/pure.xml || status=1; \
	echo "== compiled, each broker with a store"; \
	FERRYMQ_TEST_STORE=1 $(BUILT) $(PYTEST) -m "not once" --junitxml=$(RESULTS)/stores.xml tests/broker || status=1; \
	seed=$$(date +%s); echo "== compiled, 1000 random examples a test; --hypothesis-seed=$$seed"; \
	$(BUILT) $(PYTEST) -m hypothesis --hypothesis-profile=fuzz --hypothesis-seed=$$seed --timeout=0 \
	    --junitxml=$(RESULTS)/random.xml || status=1; \
	$(MAKE) --no-print-directory core-on-old-sparks || status=1; \
	$(PY) .ci/summary.py $(addprefix $(RESULTS)/, compiled.xml pure.xml stores.xml random.xml) \
	    $(ON_SPARKS) || status=1; exit $$status

test-pure: $(READY_DEV) ## run the tests on the interpreted modules; ARGS="tests/codec -x"
	@$(PURE) $(PYTEST) $(ARGS)

test-compiled: $(READY_DEV) build ## run the tests on the compiled modules; ARGS="tests/codec -x"
	@$(BUILT) $(PYTEST) $(ARGS)

# Clients on Node that the broker is tested with; without Node their tests say so and skip.
NODE_CLIENTS := tests/interop/rhea tests/interop/azure tests/interop/amqp10 tests/interop/amqp_0_9_1

.PHONY: node-modules
node-modules:
	@if command -v npm >/dev/null 2>&1; then for client in $(NODE_CLIENTS); do \
	    test ! -f $$client/package.json \
	    || test $$client/node_modules/.package-lock.json -nt $$client/package-lock.json \
	    || npm ci --prefix $$client --no-audit --no-fund --silent || exit 1; \
	done; fi

interop: $(READY_DEV) node-modules build ## exchange messages with Proton, rhea, Azure's SDKs and RabbitMQ's clients
	@$(BUILT) $(PY) -m pytest tests/interop $(ARGS)

# Root, debootstrap and Debian's packages from the network: without them, RabbitMQ 4 is left out.
foreign: $(READY_DEV) build ## run the client on RabbitMQ 4 and on all other brokers that are here, write docs/known-brokers.md
	@bash tests/interop/brokers/get_trixie.sh build/foreign/trixie || true
	@$(BUILT) $(PY) -m tests.interop.brokers --markdown run $(ARGS)

conformance: $(READY_DEV) node-modules build ## run the tests of every rule of the specification, write docs/conformance.md
	@$(BUILT) $(PY) -m tests.conformance run $(ARGS) -- -n $(JOBS) --hypothesis-profile=ci

fuzz: $(READY_DEV) build ## look for new failures with fresh random input; SECONDS=60
	@$(MAKE) --no-print-directory fuzz-targets SECONDS=$$(( ($(SECONDS) + 1) / 2 ))
	@end=$$(( $$(date +%s) + $(SECONDS) / 2 )); round=1; \
	while test $$(date +%s) -lt $$end; do \
	    echo "== round $$round"; \
	    $(BUILT) $(PY) -m pytest -q -n $(JOBS) -m hypothesis --hypothesis-profile=fuzz \
	        --hypothesis-seed=$$(date +%s) --timeout=0 --until $$end -r fE $(ARGS) || exit 1; \
	    round=$$(( round + 1 )); \
	done

fuzz-targets: $(READY_DEV) ## the same of what reads strangers' bytes, by coverage, interpreted; SECONDS=60
	@$(PURE) $(PY) -m tests.fuzz run --seconds $(SECONDS)

crash: $(READY_DEV) build ## kill the broker and cut its power, again and again; CYCLES=1000 CUTS=300
	@$(BUILT) $(PY) -m tests.crash run --kills $(CYCLES) --cuts $(CUTS) $(ARGS)

failovers: $(READY_DEV) build ## kill, stop and part brokers and their database, again and again; FAULTS=300
	@$(BUILT) $(PY) -m tests.crash run --kills 0 --calls 0 --failures 0 --cuts 0 --failovers $(FAULTS) $(ARGS)

kills: $(READY_DEV) build ## kill brokers, executors, workers and the driver of a Spark query, again and again; KILLS=50
	@$(BUILT) $(PY) -m tests.spark.kills run --kills $(KILLS) $(ARGS)

# ── Checks ───────────────────────────────────────────────────────────────────────────────────────

regen: $(READY_DEV) ## generate generated/ from spec/
	@$(PY) -m codegen generate

check-generated: $(READY_DEV) ## fail if generated/ differs from what spec/ says
	@$(PY) -m codegen generate --check

lint: $(READY_DEV) ## ruff, black, the import contracts, one meaning for each name, how much is typed
	@$(PY) -m ruff check .
	@$(PY) -m black --quiet --check . || { echo "black would reformat: run $(PY) -m black ."; exit 1; }
	@$(VENV)/bin/lint-imports --no-logo
	@$(PY) .ci/names.py
	@$(PY) .ci/completeness.py

type: $(READY_DEV) ## mypy --strict
	@$(PY) -m mypy

audit: $(READY_DEV) ## what is imported is declared, and has no known vulnerability
	@$(PY) .ci/audit.py

# With --quiet, warnings would not be counted.
docs: $(READY_DEV) ## build the site of the documentation into build/site; any warning fails
	@NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict
	@echo "ready: build/site/index.html"

check-docs: $(READY_DEV) ## check the links and the code of every page
	@$(PURE) $(PY) -m pytest -q tests/house/test_docs.py

bench: $(READY_DEV) build ## measure codec and broker against their peers; ARGS="--help"
	@PYTHONPATH="$(COMPILED)" $(PY) -m bench $(ARGS)

standstill: $(READY_DEV) build ## fail if one client can stop all others for 20 ms; ARGS="vanish"
	@PYTHONPATH="$(COMPILED)" $(PY) -m bench.standstill $(ARGS)

# Wheels are built from a source archive, so what is compiled here does not count.
wheels: $(READY_DEV) ## build a wheel for each interpreter of this machine and try it, into dist/; ARGS="--python python3.12"
	@$(PY) .ci/wheels.py $(ARGS)

old-sparks: $(READY_DEV) ## get the old versions of Spark that `make test-all` runs on
	@$(PY) -m tests.spark.versions get $(OLD_SPARKS)

core-on-old-sparks: $(READY_DEV) build ## run the core of the data source on the oldest versions of Spark
	@mkdir -p $(RESULTS)
	@$(BUILT) $(PY) -m tests.spark.versions run --core $(OLD_SPARKS)

spark-versions: $(READY_DEV) build ## try the data source on each version of Spark, write docs/pipeline/spark-versions.md
	@$(BUILT) $(PY) -m tests.spark.versions run $(ARGS) && $(PY) -m tests.spark.versions page

bench-spark: $(READY_DEV) build ## measure streams in and out of Spark; ARGS="--help"
	@PYTHONPATH="$(COMPILED)" $(PY) -m bench.spark $(ARGS)

# ── Cleaning ─────────────────────────────────────────────────────────────────────────────────────

clean: ## remove builds, caches and test results (.venv stays)
	@rm -rf build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	@find . -name __pycache__ -type d -not -path './$(VENV)/*' -prune -exec rm -rf {} +

distclean: clean ## clean, and remove .venv and node_modules too
	@rm -rf $(VENV) $(NODE_CLIENTS:%=%/node_modules)
