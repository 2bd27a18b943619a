# Everything a developer does here. `make help` lists the targets.
# PYTHON=python3.12 chooses the interpreter for .venv; ARGS="-k segment" goes to pytest or to the bench.

SHELL := /bin/bash
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules

BIN := .venv/bin
PYTHON_READY := .venv/.ready
KAFKA_VERSION := $(shell sed -nE 's/.*<kafka\.version>(.*)<\/.*/\1/p' tools/kafka/pom.xml)
ZOOKEEPER_KAFKA_VERSION := $(shell sed -nE 's/.*<zookeeper\.kafka\.version>(.*)<\/.*/\1/p' tools/kafka/pom.xml)
KAFKA_READY := .parts/kafka-$(KAFKA_VERSION)/.ready
ZOOKEEPER_KAFKA_READY := .parts/kafka-$(ZOOKEEPER_KAFKA_VERSION)/.ready
KAFKA_CLASSES_READY := .parts/kafka-$(KAFKA_VERSION)/.classes-ready
KAFKA_APPS_READY := .parts/kafka-apps-$(KAFKA_VERSION)/.ready
JAVA_CLIENTS_READY := .parts/java-clients/.ready
SPARK_KAFKA_READY := .parts/spark-kafka/.ready
SPARK_CLASSES_READY := .parts/cache/.ready
KAFKAJS_READY := .parts/node/.ready
FRANZ_GO := .parts/bin/franz-go-client
PARTS := $(KAFKA_READY) $(ZOOKEEPER_KAFKA_READY) $(KAFKA_CLASSES_READY) $(KAFKA_APPS_READY) \
	$(JAVA_CLIENTS_READY) $(SPARK_KAFKA_READY) $(SPARK_CLASSES_READY) $(KAFKAJS_READY) $(FRANZ_GO)
JOBS ?= 3
LONG_JOBS ?= 2
ARGS ?=

# What the installed project is made from: a change in one of these installs and compiles it again.
# A module that is compiled has a .pxd beside it; one without a module is what others share.
DECLARATIONS := $(wildcard src/penstock/*/*.pxd src/penstock/*/*/*.pxd)
BUILD_INPUTS := pyproject.toml constraints.txt tools/setup.sh $(wildcard setup.py) \
	$(DECLARATIONS) $(wildcard $(DECLARATIONS:.pxd=.py))

.PHONY: help setup setup-python setup-parts demo test test-long lint format bench generate lock clean distclean

help: ## list the targets
	@sed -nE 's/^([a-z-]+):[^#]*## (.*)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 22

setup: ## make .venv and fetch what the tests need
	@PYTHON="$(PYTHON)" tools/setup.sh system $(KAFKA_VERSION)
	@$(MAKE) --silent --no-print-directory setup-python setup-parts

setup-python: $(PYTHON_READY) ## only .venv: the project, compiled, and its development tools

setup-parts: ## only what the tests run: Kafka's jars, the clients, the databases, Spark's connector
	@tools/setup.sh programs
	@$(MAKE) --silent --no-print-directory $(PARTS)

$(PYTHON_READY): $(BUILD_INPUTS)
	@PYTHON="$(PYTHON)" tools/setup.sh python
	@touch $@

$(KAFKA_READY): tools/kafka/pom.xml tools/setup.sh
	@tools/setup.sh kafka $(KAFKA_VERSION)
	@touch $@

$(ZOOKEEPER_KAFKA_READY): tools/kafka/pom.xml tools/setup.sh
	@tools/setup.sh kafka $(ZOOKEEPER_KAFKA_VERSION)
	@touch $@

# Classes as a JVM has them in memory: Kafka and its clients start in half the time.
$(KAFKA_CLASSES_READY): $(KAFKA_READY) $(JAVA_CLIENTS_READY) | $(PYTHON_READY)
	@echo "setup: making archives of the classes of Kafka and its Java clients"
	@$(BIN)/python -m tests.support.kafka.class_archive
	@touch $@

$(KAFKA_APPS_READY): tools/kafka/pom.xml $(wildcard tools/kafka-apps/*) tools/setup.sh
	@tools/setup.sh kafka-apps $(KAFKA_VERSION)
	@touch $@

$(JAVA_CLIENTS_READY): $(KAFKA_READY) $(wildcard tools/clients/java/*) tools/setup.sh
	@tools/setup.sh java-clients $(KAFKA_VERSION)
	@touch $@

$(SPARK_KAFKA_READY): tools/spark-kafka/pom.xml tools/setup.sh
	@tools/setup.sh spark-kafka
	@touch $@

# Spark's Java classes as a JVM has them in memory: the tests start Spark in half the time.
$(SPARK_CLASSES_READY): constraints.txt | $(PYTHON_READY)
	@echo "setup: making an archive of Spark's classes"
	@XDG_CACHE_HOME=$(CURDIR)/.parts/cache $(BIN)/python -m penstock.spark.run.jvm_archive
	@touch $@

$(KAFKAJS_READY): $(wildcard tools/clients/kafkajs/package*.json) tools/setup.sh
	@tools/setup.sh kafkajs
	@touch $@

$(FRANZ_GO): $(wildcard tools/clients/franz-go/*) tools/setup.sh
	@tools/setup.sh franz-go
	@touch $@

demo: setup-python ## broker, topics, live page views, a Spark pipeline: every view counted once
	@$(BIN)/python -m examples.pipeline_demo

test: setup ## the tests (JOBS=3 at a time), but for the long ones
	$(BIN)/pytest -n $(JOBS) --dist worksteal -m "not long" $(ARGS)

test-long: setup ## tests that take minutes, and more seeds, versions and databases of others
	TMPDIR="$${TMPDIR:-/tmp}" $(BIN)/pytest -n $(LONG_JOBS) --dist worksteal -m long $(ARGS)

lint: setup-python ## formatting, lint, types, and who may import whom
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: setup-python ## put every file in the project's format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: setup-python ## the speed figures
	$(BIN)/python -m bench $(ARGS)

generate: setup-python ## generated files: the blocking clients, the diagrams and the table of rights of docs/
	$(BIN)/python tools/unasync.py
	$(BIN)/python -m tools.diagrams
	$(BIN)/python -m tools.api_rights

lock: setup-python ## write constraints.txt from what .venv has now
	$(BIN)/python tools/lock.py

clean: ## remove what was built and cached; .venv and the jars stay
	rm -rf build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	rm -f src/penstock/*/*.so src/penstock/*/*/*.so $(DECLARATIONS:.pxd=.c) $(PYTHON_READY)
	find src tests bench tools -name __pycache__ -type d -prune -exec rm -rf {} +

distclean: clean ## remove .venv and the jars too
	rm -rf .venv .parts src/*.egg-info
