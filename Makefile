# Each target creates the virtual environment that it needs. Only Python 3.11 or newer must be
# installed by hand.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
EVENTS ?= 3000
DIRECTORY ?= demo-data
ROUNDS ?= 50
SEEDS ?= 1000
HOURS ?= 24
RATE ?= 2000
# Twice the cores of a small machine: most tests wait for a process.
WORKERS ?= 4
PARALLEL := --numprocesses $(WORKERS)
# CONTRIBUTING.md explains the reruns.
RERUNS := --reruns 1 --max-suite-reruns 5 --rerun-show-tracebacks
SHORT := -m 'not simulates'

.DEFAULT_GOAL := help
.PHONY: help demo packages maven test quick unit simulate chaos soak bench audit lint format reference clean lock image-check release images image-index chart-push draft

help: ## show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-14s %s\n", $$1, $$2}'

demo: packages $(if $(filter kafka,$(TO)),maven) $(VENV)/demo ## run the whole system on this machine and check its results (EVENTS=3000 TO=postgresql)
	$(BIN)/tailrace demo --events $(EVENTS) --directory $(DIRECTORY) $(if $(TO),--to $(TO))

# A slim Debian or Ubuntu lacks these. If they cannot be installed, the demo and the tests name what is
# missing. Debian 13 has no OpenJDK 17, but its default is newer; Ubuntu 22.04's default is too old.
APT_INSTALL := DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends
packages: ## install libcurl for mongod and Java for Spark if they are missing (as root on Debian or Ubuntu)
	@if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		has_java() { [ -n "$$JAVA_HOME" ] || command -v java >/dev/null; }; \
		has_curl() { ldconfig -p | grep -q 'libcurl\.so\.4 '; }; \
		has_curl && has_java || apt-get update; \
		has_curl || $(APT_INSTALL) libcurl4 || true; \
		has_java || $(APT_INSTALL) openjdk-17-jre-headless || $(APT_INSTALL) default-jre-headless || true; \
	fi

maven: ## install Maven, which fetches Apache Kafka, if it is missing (as root on Debian or Ubuntu)
	@if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && ! command -v mvn >/dev/null; then \
		apt-get update; $(APT_INSTALL) maven || true; \
	fi

test: packages maven $(VENV)/dev ## run the linters, type and layer checks, and all tests in parallel (WORKERS=4)
	$(MAKE) --jobs=2 --output-sync=target $(VENV)/spark-4.2/installed $(VENV)/classes lint
	$(BIN)/python -m pytest $(PARALLEL) $(RERUNS) -p tests.times

quick: lint ## run the linters, and the unit tests of what was changed since BASE=main
	tests=$$($(BIN)/python -m tests.changed $(BASE)); [ -z "$$tests" ] || \
		$(BIN)/python -m pytest --numprocesses 2 $(SHORT) -p tests.times $$tests

unit: $(VENV)/dev ## run the tests that need no server, but not those that simulate for seconds
	$(BIN)/python -m pytest $(PARALLEL) $(SHORT) -p tests.times tests/unit

simulate: $(VENV)/dev ## run the whole engine in virtual time, with faults chosen by seeds (SEEDS=10000 SEED=…)
	$(BIN)/python -m tests.simulation $(if $(SEED),--seed $(SEED),--seeds $(SEEDS))

chaos: $(VENV)/dev ## kill and stop the daemon many times, and count lost changes (ROUNDS=50 SEED=…)
	$(BIN)/python -m tests.faults.chaos --rounds $(ROUNDS) $(if $(SEED),--seed $(SEED))

soak: packages $(VENV)/dev ## run the service for HOURS=24 at RATE=2000 changes a second beside faults, and draw what grows in REPORT=soak-report
	$(BIN)/python -m tests.soak --hours $(HOURS) --rate $(RATE) --report $(or $(REPORT),soak-report)

# A module of tests/bench, or nothing. The environment of most has no package that would change a driver.
BENCH = $(if $(filter pipeline,$(WHAT)),tests.pipeline.bench,tests.bench$(WHAT:%=.%))
WITH_SERVERS := $(filter destinations pipeline verify,$(WHAT))
bench: $(if $(WITH_SERVERS),packages maven $(VENV)/dev,$(VENV)/benchmark/installed) ## measure the speed, or WHAT=lookups, field_rules, outages, snapshots, replicas, destinations (TO=kafka), verify, pipeline (QUICK=1: one short run)
	$(if $(WITH_SERVERS),$(BIN),$(VENV)/benchmark/bin)/python -m $(BENCH) $(if $(TO),--to $(TO)) \
		$(if $(QUICK),--quick $(if $(WHAT),,--output bench-results))

audit: $(VENV)/audit ## look up known vulnerabilities in the locked dependencies
	for lock in deploy/requirements/*.txt; do \
		$(BIN)/python -m pip_audit --strict --disable-pip --require-hashes --requirement $$lock || exit 1; \
	done

lint: $(VENV)/dev ## run ruff, mypy --strict and the layer checks
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/dev ## apply ruff's format and safe fixes
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

reference: $(VENV)/dev ## write the generated pages below docs/, and the schema of the chart's values
	$(BIN)/python -m docs.configuration_reference > docs/configuration.md
	$(BIN)/python -m docs.http_reference > docs/http.md
	$(BIN)/python -m docs.supported_versions > docs/supported-versions.md
	$(BIN)/python -m docs.values_schema > deploy/helm/tailrace/values.schema.json

# Hashes of every wheel that an image may need, for any Linux and Python 3.11 or newer, without a
# registry's address. UPGRADE=--upgrade takes newer versions; otherwise locked versions stay.
LOCK := $(VENV)/lock/bin/uv pip compile --quiet --no-config --universal --python-version 3.11 \
	--generate-hashes --custom-compile-command 'make lock' $(UPGRADE)

lock: $(VENV)/lock ## lock the images' dependencies, with hashes (UPGRADE=--upgrade)
	$(LOCK) deploy/requirements/build.in -o deploy/requirements/build.txt
	$(LOCK) pyproject.toml -o deploy/requirements/live.txt
	$(LOCK) pyproject.toml --extra lake --extra otel -c deploy/requirements/live.txt \
		-o deploy/requirements/lake.txt
	$(LOCK) pyproject.toml --extra destinations --extra otel -c deploy/requirements/live.txt \
		-o deploy/requirements/destinations.txt
	$(LOCK) pyproject.toml --extra pipeline --extra iceberg -c deploy/requirements/live.txt \
		-o deploy/requirements/pipeline.txt

image-check: $(VENV)/dev ## build the image and test it in a real Docker engine (as root)
	$(BIN)/python -m tests.deploy.image_check $(TARGETS)

release: $(VENV)/release/installed ## build wheel, sdist, chart, SBOMs and notes of the last commit in dist/, and check them; publishes nothing
	.ci/release $(VENV)/release/bin

# GitHub's workflows set these. Nobody needs them on a machine of their own, except to try them.
CHARTS ?= localhost:5000/charts
IMAGE ?= tailrace
ARCH ?= amd64
images: ## build all images for ARCH=amd64 in dist/images/, with SBOM and provenance (PUSH=1: into the registry of IMAGE)
	IMAGE="$(IMAGE)" ARCH="$(ARCH)" PUSH="$(PUSH)" .ci/images build

image-index: ## give the pushed images of both architectures one tag (IMAGE=ghcr.io/…)
	IMAGE="$(IMAGE)" .ci/images index

chart-push: ## push the chart in dist/ as an OCI artifact (CHARTS=ghcr.io/…/charts; needs helm)
	helm push dist/tailrace-*.tgz "oci://$$(echo "$(CHARTS)" | tr '[:upper:]' '[:lower:]')"

draft: ## upload dist/ as the draft of a release of TAG on GitHub, which a person publishes
	gh release create "$(TAG)" --draft --verify-tag --title "$(TAG)" --notes-file dist/notes.md \
		$$(find dist -maxdepth 1 -type f)

clean: ## remove the environment, the caches and the demo's files
	rm -rf $(VENV) $(DIRECTORY) bench-results soak-report dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache

$(VENV)/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Tailrace needs Python 3.11 or newer")'
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/demo: $(VENV)/python pyproject.toml
	$(BIN)/python -m pip install --quiet --editable '.[demo]'
	@touch $@

# The oldest Spark that the pipeline runs with, for tests/spark: only pyspark and py4j, which Python
# finds before those of the environment.
$(VENV)/spark-4.2/installed: $(VENV)/python
	$(BIN)/python -m pip install --quiet --upgrade --target $(@D) 'pyspark==4.2.*'
	@touch $@

# Halves what each of the many starts of Spark in the tests costs.
$(VENV)/classes: $(VENV)/dev
	$(BIN)/tailrace pipeline --archive-classes
	@touch $@

# A separate environment: PyMongo and structlog import optional packages that they find, such as those
# of the tests.
$(VENV)/benchmark/installed: $(VENV)/python pyproject.toml
	$(PYTHON) -m venv $(VENV)/benchmark
	$(VENV)/benchmark/bin/python -m pip install --quiet --editable '.[bench]'
	@touch $@

$(VENV)/release/installed: $(VENV)/python
	$(PYTHON) -m venv $(VENV)/release
	$(VENV)/release/bin/python -m pip install --quiet 'build>=1.2' 'cyclonedx-bom>=7' 'hatchling>=1.25' 'twine>=6'
	@touch $@

$(VENV)/lock: $(VENV)/python
	$(PYTHON) -m venv $@
	$@/bin/python -m pip install --quiet 'uv>=0.9'

$(VENV)/dev: $(VENV)/python pyproject.toml
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	@touch $@ $(VENV)/demo

$(VENV)/audit: $(VENV)/python
	$(BIN)/python -m pip install --quiet 'pip-audit>=2.9,<3'
	@touch $@
