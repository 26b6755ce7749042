# `make` alone lists the targets. You need python3 (3.11 or newer) and make.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# `make run` installs what the broker and the command `rmq` need, `make test` what developers need, and the targets
# with Spark the rest. Each of these files shows that one of them is installed.
RUNNABLE := $(VENV)/.runnable
TESTABLE := $(VENV)/.testable
INSTALLED := $(VENV)/.installed
PIP_INSTALL = RMQ_COMPILE= $(BIN)/python -m pip install --disable-pip-version-check -c constraints.txt
PYTEST = $(BIN)/pytest -n $(JOBS) --no-loadscope-reorder
WITHOUT_SPARK := --exclude '(^|/)(data|spark|spark_connector)/' --disable-error-code import-not-found
# Test processes at a time: one more than cores, since tests wait for time-outs and other programs, too.
JOBS ?= $(shell expr $$(nproc 2>/dev/null || echo 2) + 1)
# `make run` needs mypy only where the hot path can be compiled.
RUN_EXTRAS := cli,proxy$(if $(filter 0,$(RMQ_COMPILE)),,$(shell \
  for each in gcc clang cc $$CC; do command -v "$$each" > /dev/null && echo ,compile && break; done))
# A package may fail to build for a new Python: the last line says that this Python is the reason.
OR_WARN = PYTHONPATH=remoting $(BIN)/python -c \
  'import sys, rmq_remoting.daemon.platforms as here; sys.exit(here.untested_python() or 1)'
# `make bench-spark` has a separate environment, because Spark's Kafka source needs the PySpark of its version.
SPARK_BENCH_VENV := benchmarks/spark/.venv
SPARK_BENCH_INSTALLED := $(SPARK_BENCH_VENV)/.installed
SPARK_BENCH_PYSPARK := 4.2.0
# The store of `make run`; `make clean` keeps it.
DATA := data

# Tests start some hundred processes: each would compile our modules to bytecode again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help install run compile wheel wheels dist test test-all test-interpreted lint format types types-all unit test-long test-crash test-spark-kill test-spark-versions test-versions soak soak-hostile bench bench-growth bench-instructions bench-spark pipeline clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-19s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

install: $(INSTALLED) compile ## create .venv and install everything into it, Spark included

run: $(RUNNABLE) compile ## start a name server and a broker here, until Ctrl-C; PORT= BROKER_PORT= GRPC_PORT= METRICS_PORT= BIND= DATA=
	@exec $(BIN)/python deploy/run_local.py --data $(DATA) $(if $(PORT),--port $(PORT)) \
	  $(if $(BROKER_PORT),--broker-port $(BROKER_PORT)) $(if $(GRPC_PORT),--grpc-port $(GRPC_PORT)) \
	  $(if $(METRICS_PORT),--metrics-port $(METRICS_PORT)) $(if $(BIND),--bind $(BIND))

# Every list of packages contains those that this target needs.
compile: | $(RUNNABLE) ## compile the hot path for .venv (docs/compiling.md); RMQ_COMPILE=0: run it interpreted
	@RMQ_COMPILE=$(RMQ_COMPILE) $(BIN)/python -m compiling

wheel: $(RUNNABLE) ## dist/*.whl with the hot path compiled, for the Python of .venv
	rm -f dist/*.whl
	RMQ_COMPILE=1 $(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir dist .

wheels: ## the same for each Python from 3.11 to 3.14 that is there
	sh deploy/build_wheels.sh dist

dist: ## build wheel and sdist, check them, install and run the wheel; result: dist/release
	rm -rf dist/release build/release
	$(PYTHON) -m venv build/release
	build/release/bin/python -m pip install --disable-pip-version-check build==1.6.1 twine==7.0.0
	build/release/bin/python -m build --outdir dist/release .
	build/release/bin/python -m twine check --strict dist/release/*
	sh deploy/check_release.sh dist/release $(PYTHON)

test: $(TESTABLE) compile lint types ## lint, types, and what a contributor needs: unit, integration, smoke tests
	$(PYTEST) --part quick --durations 15

test-all: install types-all test-interpreted ## what `make test` leaves out: foreign clients, Spark, crashes, pages
	$(PYTEST) --part rest --durations 15

test-interpreted: $(TESTABLE) ## the unit tests with the hot path interpreted
	RMQ_COMPILE=0 $(PYTEST) --part quick tests/unit

lint: $(TESTABLE) ## check style and import contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

format: $(TESTABLE) ## format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: $(TESTABLE) ## check the types, without those of programs for Spark if its packages are not installed
	$(BIN)/mypy -n auto $(if $(shell test -e $(INSTALLED) && echo yes),,$(WITHOUT_SPARK))

types-all: $(INSTALLED) types ## check all types, those of the SDK also as on Windows and macOS
	printf 'win32\ndarwin\n' | xargs -P 2 -I PLATFORM $(BIN)/mypy --platform PLATFORM \
	  --cache-dir .mypy_cache/PLATFORM -p rmq_client -p rmq_cli -p rmq_faststream

unit: $(TESTABLE) compile ## the unit tests: no daemons, no foreign programs
	$(PYTEST) tests/unit

test-long: install test-crash test-spark-kill ## everything long and rare: hours
	$(BIN)/pytest --long -m long
	HYPOTHESIS_PROFILE=long $(BIN)/pytest -m hypothesis --timeout 1200
	$(BIN)/python -m tests.spark.versions $(SPARK_VERSIONS)
	$(BIN)/python -m tests.crash.soak
	$(BIN)/python -m tests.crash.hostile_soak

test-crash: install ## kill, cut power, fill the disk, send hostile requests: RMQ_CRASH_ROUNDS (50) rounds
	RMQ_CRASH_ROUNDS=$${RMQ_CRASH_ROUNDS:-50} RMQ_FUZZ_SECONDS=$${RMQ_FUZZ_SECONDS:-60} $(BIN)/pytest --long tests/crash
	RMQ_SOAK_SECONDS=20 $(BIN)/python -m tests.crash.soak

test-spark-kill: install ## kill Spark's workers and driver, and the broker: RMQ_SPARK_KILLS (20) times each
	RMQ_SPARK_KILLS=$${RMQ_SPARK_KILLS:-20} $(BIN)/pytest -s --long tests/spark/kill

test-spark-versions: install ## the connector with other PySparks and Pythons: 1 GB and some minutes each
	$(BIN)/python -m tests.spark.versions $(SPARK_VERSIONS)

test-versions: install ## unit tests and a broker on each Python found, both forms: 400 MB each; VERSIONS="3.14 3.15"
	$(BIN)/python -m tests.versions $(VERSIONS)

soak: install ## a broker at full speed for RMQ_SOAK_SECONDS (600): no growth, no loss
	$(BIN)/python -m tests.crash.soak

soak-hostile: install ## 12,000 hostile connections for RMQ_HOSTILE_SECONDS (600): honest clients keep 80 %
	$(BIN)/python -m tests.crash.hostile_soak

pipeline: install ## a log through broker and Spark, checked; LINES= HOURS= RATE= (lines/s) MASTER= WORKERS= NAMESRV= FAULTS=1
	@exec $(BIN)/python -m examples.pipeline.run $(if $(LINES),--lines $(LINES)) $(if $(RATE),--rate $(RATE)) \
	  $(if $(MASTER),--master $(MASTER)) $(if $(WORKERS),--workers $(WORKERS)) $(if $(NAMESRV),--namesrv $(NAMESRV)) \
	  $(if $(FAULTS),--faults) $(if $(HOURS),--hours $(HOURS))

bench: install ## measure, and write docs/performance.md
	RMQ_COMPILE=1 $(BIN)/python -m benchmarks

bench-instructions: install ## count instructions per request in both forms, with valgrind; writes a table
	$(BIN)/python -m benchmarks.instructions --functions 10 --both-forms --write docs/performance.md

bench-growth: install ## measure how a send's cost grows, and draw charts into docs/images
	$(BIN)/python -m benchmarks.growth

bench-spark: $(SPARK_BENCH_INSTALLED) ## measure the connector beside Spark's Kafka source (BENCH_SPARK: options)
	$(SPARK_BENCH_VENV)/bin/python -m compiling
	$(SPARK_BENCH_VENV)/bin/python -m benchmarks.spark $(BENCH_SPARK)

clean: ## remove everything that can be rebuilt
	rm -rf $(VENV) $(SPARK_BENCH_VENV) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Reinstalled when the dependencies change.
$(RUNNABLE): pyproject.toml constraints.txt
	$(create-venv)
	@echo "Installing the broker, gRPC and the command rmq into $(VENV) (about 200 MB)"
	$(PIP_INSTALL) -e '.[$(RUN_EXTRAS)]' || $(OR_WARN)
	@touch $@

$(TESTABLE): pyproject.toml constraints.txt
	$(create-venv)
	@echo "Installing the broker and the tools of developers into $(VENV) (about 400 MB)"
	$(PIP_INSTALL) -e '.[dev]' || $(OR_WARN)
	@touch $@ $(RUNNABLE)

$(INSTALLED): pyproject.toml constraints.txt
	$(create-venv)
	@echo "Installing the broker, the tools of developers and Spark into $(VENV) (about 1.2 GB)"
	$(PIP_INSTALL) -e '.[dev-all]' || $(OR_WARN)
	@touch $@ $(TESTABLE) $(RUNNABLE)

define create-venv
@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
  echo "$(PYTHON) is $$($(PYTHON) -V 2>/dev/null || echo missing); Python 3.11 or newer is needed." >&2; \
  echo "Name another interpreter: make $(MAKECMDGOALS) PYTHON=python3.12" >&2; exit 1; }
@$(BIN)/python -c '' 2>/dev/null || $(PYTHON) -m venv --clear $(VENV) || { \
  rm -rf $(VENV); \
  echo "$(PYTHON) cannot create virtual environments: on Debian and Ubuntu install python3-venv." >&2; exit 1; }
endef

$(SPARK_BENCH_INSTALLED): pyproject.toml constraints.txt
	@$(SPARK_BENCH_VENV)/bin/python -c '' 2>/dev/null || $(PYTHON) -m venv --clear $(SPARK_BENCH_VENV)
	sed 's/^pyspark==.*/pyspark==$(SPARK_BENCH_PYSPARK)/' constraints.txt > $(SPARK_BENCH_VENV)/constraints.txt
	@echo "Installing the broker and PySpark $(SPARK_BENCH_PYSPARK) into $(SPARK_BENCH_VENV)"
	RMQ_COMPILE= $(SPARK_BENCH_VENV)/bin/python -m pip install --disable-pip-version-check \
	  -c $(SPARK_BENCH_VENV)/constraints.txt -e '.[compile,spark]'
	@touch $@

# `make docs` has a separate environment, too: `make test` needs nothing of it.
DOCS_VENV := build/docs/venv
DOCS_INSTALLED := $(DOCS_VENV)/.installed
SITE := build/docs/site

.PHONY: docs
docs: $(DOCS_INSTALLED) ## build the site into build/docs/site, and check every page and link
	NO_MKDOCS_2_WARNING=1 $(DOCS_VENV)/bin/mkdocs build --quiet --strict
	$(DOCS_VENV)/bin/python -m docs.site_tools.check $(SITE)

$(DOCS_INSTALLED): pyproject.toml constraints.txt
	@$(DOCS_VENV)/bin/python -c '' 2>/dev/null || $(PYTHON) -m venv --clear $(DOCS_VENV)
	@echo "Installing what builds the site into $(DOCS_VENV)"
	RMQ_COMPILE= $(DOCS_VENV)/bin/python -m pip install --disable-pip-version-check -c constraints.txt -e '.[docs]'
	@touch $@
