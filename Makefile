SHELL := /bin/sh
.DEFAULT_GOAL := help

VENV     := .venv
BIN      := $(VENV)/bin
RUNNABLE := $(VENV)/.runnable
STAMP    := $(VENV)/.installed
ARGS     ?=

# The interpreter that .venv is made with: the first of these that is fit.
CANDIDATES := $(or $(PYTHON),python3.11 python3)

# What Python imports it compiles once, and every Python worker of Spark imports it again: without that, a worker of Spark
# Connect takes longer to start than Spark waits for it.
unexport PYTHONDONTWRITEBYTECODE

# The environment is built anew where it still points to another place, as in a checkout that was moved or copied, and where
# .venv/.installing was left over: then an installation was cut short.
ifneq ($(shell test -e $(VENV)/.installing || cat $(RUNNABLE) 2>/dev/null),$(CURDIR))
.PHONY: $(RUNNABLE)
endif

.PHONY: help setup demo check test lint format bench reproduce kafka cluster soak kill-test clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo
	@echo "  Pass options on with ARGS, as in: make demo ARGS=--help"

setup: $(STAMP) ## Create .venv and install everything at the pinned versions
	@:

PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt
GIVE_UP := { rm -f $(VENV)/.installing; echo "The installation failed, for the reason above; mend it and run: make setup" >&2; exit 1; }

# First what the demo needs, so that it can start soon.
# Python compiles what it imports; to compile everything beforehand would take a third of the time.
# Spark comes as a source archive, which pip builds on one core; meanwhile the other core installs the rest. The wheel that
# it builds is not compressed: most of it is jars, which are, and it is unpacked at once.
$(RUNNABLE): pyproject.toml constraints.txt
	@set -e; \
	if [ -e $(VENV)/.installing ] || [ "$$(cat $(RUNNABLE) 2>/dev/null)" != "$(CURDIR)" ] \
	    || ! $(BIN)/python -c 'import sys, pip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then \
	  python=; \
	  for candidate in $(CANDIDATES); do \
	    if "$$candidate" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then \
	      python=$$candidate; break; \
	    fi; \
	  done; \
	  if [ -z "$$python" ]; then \
	    echo "Penstock needs Python 3.11 or newer with its venv module; found none as: $(CANDIDATES)" >&2; \
	    echo "Install it (on Debian and Ubuntu: apt install python3.11-venv)," >&2; \
	    echo "or name one: make setup PYTHON=/path/to/python3.11" >&2; \
	    exit 1; \
	  fi; \
	  echo "Creating $(VENV) with $$("$$python" --version)"; \
	  rm -rf $(VENV); \
	  "$$python" -m venv $(VENV); \
	fi; \
	touch $(VENV)/.installing; \
	echo "Installing penstock (half a minute or more the first time)"; \
	$(BIN)/python -c 'import tomllib; project = tomllib.load(open("pyproject.toml", "rb"))["project"]; \
	  needs = project["dependencies"] + project["optional-dependencies"]["plot"]; \
	  print(*(need for need in needs if not need.startswith("pyspark")), sep="\n")' > $(VENV)/others.txt; \
	printf '[bdist_wheel]\ncompression = stored\n' > $(VENV)/wheels.cfg; \
	DIST_EXTRA_CONFIG="$(CURDIR)/$(VENV)/wheels.cfg" $(PIP) --no-deps pyspark & spark=$$!; \
	failed=0; $(PIP) -r $(VENV)/others.txt || failed=1; wait $$spark || failed=1; \
	[ $$failed = 0 ] && $(PIP) -e '.[plot]' || $(GIVE_UP); \
	printf '%s\n' "$(CURDIR)" > $(RUNNABLE); \
	rm -f $(VENV)/.installing; \
	if [ -z "$$JAVA_HOME" ] && ! command -v java >/dev/null 2>&1; then \
	  echo "Note: Spark needs Java 17 or newer, and there is none (on Debian and Ubuntu: apt install openjdk-17-jre-headless)."; \
	fi

$(STAMP): $(RUNNABLE)
	@echo "Installing its tools (a minute or less the first time)"
	@touch $(VENV)/.installing; $(PIP) -e '.[dev,plot,connect]' || $(GIVE_UP)
	@touch $(STAMP); rm -f $(VENV)/.installing
	@echo "Ready. Try: make demo"

demo: $(RUNNABLE) ## See a query meet a spike and shed its way through
	@$(BIN)/penstock demo $(ARGS)

# No process of a test lives long, so Java compiles quickly rather than well, and gets the classes of Spark from an archive
# once there is one.
CLASSES    := $(CURDIR)/build/spark.jsa
QUICK      := -XX:TieredStopAtLevel=1 -XX:+UseSerialGC
QUICK_JAVA := $(QUICK) -XX:SharedArchiveFile=$(CLASSES) -Xlog:cds=off -Xlog:cds+dynamic=off

$(CLASSES): $(STAMP)
	@mkdir -p build
	@JDK_JAVA_OPTIONS="$$JDK_JAVA_OPTIONS $(QUICK) -XX:ArchiveClassesAtExit=$@.new" \
	  $(BIN)/python -m tests.spark.class_archive $@ > build/classes.txt 2>&1 || { cat build/classes.txt; exit 1; }

# Tests in two processes, a file always in one of them. Beside their beginning runs what is named first.
define BESIDE_TESTS
@mkdir -p build; started=$$(date +%s); failed=0; \
$(MAKE) --no-print-directory $(1) > build/beside.txt 2>&1 & beside=$$!; \
JDK_JAVA_OPTIONS="$$JDK_JAVA_OPTIONS $(QUICK_JAVA)" \
  $(BIN)/python -m pytest -q -n 2 --dist loadfile --no-loadscope-reorder $(2) || failed=1; \
wait $$beside || failed=1; cat build/beside.txt; \
took=$$(( $$(date +%s) - started )); printf 'make $@: %d:%02d\n' $$(( took / 60 )) $$(( took % 60 )); \
exit $$failed
endef

check: setup ## Lint, and all that is tested without Spark and servers (2 minutes)
	$(call BESIDE_TESTS,lint,-m "not spark and not server")

test: $(if $(ARGS),lint,setup) ## Lint, and run the doctests and all tests; ARGS picks some: make test ARGS=tests/policy
ifdef ARGS
	@$(BIN)/python -m pytest -q $(ARGS)
else
	$(call BESIDE_TESTS,$(CLASSES) lint)
endif

lint: setup ## Check style, format and types
	@echo "ruff check"
	@$(BIN)/ruff check --quiet .
	@echo "ruff format"
	@$(BIN)/ruff format --quiet --check . || { echo "Some files are not formatted; run: make format" >&2; exit 1; }
	@echo "mypy"
	@$(BIN)/mypy --no-error-summary

format: setup ## Format the code and mend what ruff can mend
	@$(BIN)/ruff check --quiet --fix-only .
	@$(BIN)/ruff format --quiet .

bench: setup ## Run the benchmarks
	@$(BIN)/python -m benchmarks $(ARGS)

reproduce: setup ## Rerun the papers' figures and rewrite docs/reproduction.md
	@$(BIN)/penstock reproduce --report docs/reproduction.md $(ARGS)

kafka: setup ## Start a broker and run the example from Kafka to Kafka, verified without Spark
	@$(BIN)/python examples/kafka_to_kafka.py $(ARGS)

cluster: setup ## Run a job on a cluster of two workers and kill one of them in a burst
	@$(BIN)/python -m benchmarks.cluster $(ARGS)

soak: setup ## Bursts of 50x and millions of keys, with a fault in every burst, on a cluster and on Kafka (10 minutes)
	@$(BIN)/python -m benchmarks.soak $(ARGS)

kill-test: $(CLASSES) ## Kill every kind of job at random moments and at every write (hours); one kind: ARGS='--kind windows'
	@JDK_JAVA_OPTIONS="$$JDK_JAVA_OPTIONS $(QUICK_JAVA)" $(BIN)/python -m benchmarks.kill $(ARGS)

clean: ## Remove caches, build output and what Spark left behind (keeps .venv)
	@rm -rf build dist htmlcov .coverage .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	@rm -rf artifacts metastore_db spark-warehouse derby.log
	@find . -path ./$(VENV) -prune -o -path ./.git -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +
