# Every command of the project. Nothing needs an activated environment: all of it runs in .venv,
# which the first target that wants it makes from requirements.lock.

VENV := .venv
PY := $(VENV)/bin/python
READY := $(VENV)/.ready
LOCK := requirements.lock
SERVER_LOCK := requirements-server.lock
LOCK_VENV := build/lock
DEPLOY_TOOLS := build/deploy-tools
HELM := v3.22.0
PROCESSES ?= 4
PYTEST = $(PY) -m pytest -n $(PROCESSES) --dist loadfile --no-loadscope-reorder
PIP_TOOLS := pip-tools==7.6.2
PIP := -m pip --quiet --disable-pip-version-check --no-input
COMPILE := --quiet --no-config --all-build-deps --generate-hashes --strip-extras --allow-unsafe \
	--no-header --no-annotate --no-emit-options --no-emit-index-url --no-emit-find-links --no-emit-trusted-host
S3_GATEWAY := build/versitygw
S3_GATEWAY_MODULE := github.com/versity/versitygw/cmd/versitygw@v1.8.0
GO ?= $(or $(shell command -v go),$(wildcard /usr/local/go/bin/go),go)
CANDIDATES := $(PYTHON) python3 python3.13 python3.12 python3.11

# Says nothing and succeeds for a Python that will do; else says why not. Runs on Python 2 too.
PROBE := import sys; sys.version_info >= (3, 11) or sys.exit("is Python %d.%d" % sys.version_info[:2]); \
	import importlib.util as u; u.find_spec("ensurepip") or sys.exit("cannot make environments; \
	on Debian and Ubuntu install the package python3-venv")

# $(call step,NAME,COMMAND): run a step and say how long it took; timed is the same within a recipe.
timed = start=$$(date +%s); $(2) && echo "$(1): ok, $$(( $$(date +%s) - start )) s"
step = @$(timed)

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory
export PIP_USER := 0
# Tests start hundreds of processes: each would compile every module anew without kept bytecode.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help setup environment demo demo-failover test test-all test-s3 check generate serve screenshots report-pictures soak bench bench-peers bench-growth bench-laws deploy-tools lock clean

help: ## list these targets
	@echo "usage: make TARGET"
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-13s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

setup: environment ## make .venv with the pinned dependencies and the project in it
	@$(MAKE) --silent $(READY)

environment:
	@if $(PY) -c '$(PROBE)' >/dev/null 2>&1; then exit 0; fi; \
	found=; tried=; \
	for python in $(CANDIDATES); do \
	  if ! command -v "$$python" >/dev/null 2>&1; then why="is not installed"; \
	  elif why=$$("$$python" -c '$(PROBE)' 2>&1); then found=$$python; break; fi; \
	  tried="$$tried  $$python $$(echo "$${why:-does not run}" | head -n 1)\n"; \
	done; \
	if [ -z "$$found" ]; then \
	  printf '%b' "setup: needs Python 3.11 or newer, and found none that will do:\n$$tried" >&2; \
	  echo "setup: install one, or name it: make setup PYTHON=/path/to/python3" >&2; \
	  exit 1; \
	fi; \
	echo "setup: making $(VENV) with $$found, $$("$$found" --version)"; \
	"$$found" -m venv --clear $(VENV)

$(READY): $(LOCK) pyproject.toml
	@echo "setup: installing $$(grep -c == $(LOCK)) pinned packages"
	$(call step,setup,\
	  $(PY) $(PIP) install --require-hashes --only-binary :all: --no-binary pyspark -r $(LOCK) && \
	  $(PY) $(PIP) install --no-deps --no-build-isolation -e . && touch $@)

demo: setup ## the whole story: jobs queued, worked, killed half-way, finished
	@$(PY) -m logqueue.demo $(ARGS)

demo-failover: setup ## the same with a writer that is killed and a standby that takes over; ARGS="--replica s3://…"
	@$(PY) -m logqueue.demo.failover $(ARGS)

# What check has run already is not run again.
test: check ## setup, check and the tests, a few minutes; ARGS="-k claim" to choose
	@$(PYTEST) $(or $(ARGS),--ignore=tests/test_house.py --ignore=tests/test_house_pages.py)

test-all: check ## every test, the slow ones too, and more of what is random; an hour or so
	@! command -v "$(GO)" >/dev/null || $(MAKE) deploy-tools
	@LOGQUEUE_TEST_EFFORT=$${LOGQUEUE_TEST_EFFORT:-2} $(PYTEST) $(ARGS)

# Goes without a word about what it downloads; the version of the server is pinned above.
test-s3: setup ## replicas on a real S3 server, built from its Go module; skipped without Go
	@if ! test -x $(S3_GATEWAY) && ! command -v "$(GO)" >/dev/null 2>&1; then \
	  echo "test-s3: skipped: $(S3_GATEWAY_MODULE) is built with Go 1.26 or newer, and there is none" >&2; \
	  exit 0; \
	fi; \
	if ! test -x $(S3_GATEWAY); then \
	  echo "test-s3: building $(S3_GATEWAY_MODULE), some minutes"; \
	  GOBIN=$(CURDIR)/$(dir $(S3_GATEWAY)) "$(GO)" install $(S3_GATEWAY_MODULE) || exit 1; \
	fi; \
	LOGQUEUE_TEST_S3_GATEWAY=$(S3_GATEWAY) LOGQUEUE_TEST_EFFORT=$${LOGQUEUE_TEST_EFFORT:-2} \
	$(PY) -m pytest tests/replica $(ARGS)

# Types take one processor for half a minute; the rules of the house are checked beside them.
check: setup ## lint, format, types and the rules of the house
	$(call step,lint,$(PY) -m ruff check --quiet .)
	$(call step,format,$(PY) -m ruff format --check --quiet .)
	@{ $(call timed,types,$(PY) -m mypy --no-error-summary); } & types=$$!; \
	{ $(call timed,house,$(PY) -m pytest -q -q --tb=short tests/test_house.py tests/test_house_pages.py); }; \
	house=$$?; wait $$types && exit $$house

generate: setup ## write generated files: what the table of operations says, the blocking client
	@$(PY) -m tools.unasync
	@$(PY) -m tools.shapes
	@$(PY) -m tools.operations

serve: setup ## run a server in the foreground; ARGS="--port 4001" for its flags
	@$(PY) -m logqueue serve $(ARGS)

report-pictures: setup ## pictures of the report page for docs/
	@$(PY) -m tools.report_pictures $(ARGS)

screenshots: setup ## pictures of every page of the dashboard; ARGS="--docs" for those of docs/ too
	@$(PY) -m tools.screenshots $(ARGS)

soak: setup ## ten minutes of churn: memory and descriptors must end where they began
	@LOGQUEUE_SOAK_S=$${LOGQUEUE_SOAK_S:-600} $(PY) -m pytest tests/soak $(ARGS)

bench: setup ## measure this machine and print a table; ARGS="--compare OLD" for two versions
	@$(PY) -m bench $(ARGS)

bench-peers: setup ## the same work with the other servers that are installed; ARGS="--write" for the page
	@$(PY) -m bench.peers $(ARGS)

bench-growth: setup ## what a request costs as work grows; ARGS="--backlog-max 1000000"
	@$(PY) -m bench.growth $(ARGS)

bench-laws: setup ## what a row costs the pipeline as logs grow; ARGS="--jobs 100000 1000000 --engine duckdb spark"
	@$(PY) -m bench.laws $(ARGS)

deploy-tools: ## build what tests the files of deploy/: helm, and the parsers of Kubernetes and Prometheus
	@command -v "$(GO)" >/dev/null || { echo "deploy-tools: needs Go (https://go.dev/dl)"; exit 1; }
	@mkdir -p $(DEPLOY_TOOLS)
	$(call step,helm,GOBIN=$(CURDIR)/$(DEPLOY_TOOLS) "$(GO)" install helm.sh/helm/v3/cmd/helm@$(HELM))
	$(call step,check,cd tools/deploy && "$(GO)" build -o $(CURDIR)/$(DEPLOY_TOOLS)/check .)

lock: environment ## write both locks anew; UPGRADE=1 to move every pin to its newest version
	@test -x $(LOCK_VENV)/bin/pip-compile || $(PY) -m venv --clear $(LOCK_VENV)
	@$(LOCK_VENV)/bin/python $(PIP) install $(PIP_TOOLS)
	@$(LOCK_VENV)/bin/python -m piptools compile --all-extras $(if $(UPGRADE),--upgrade) \
	  $(COMPILE) --output-file $(LOCK) pyproject.toml
	@cp $(LOCK) $(SERVER_LOCK)  # pip-compile keeps the pins that are there
	@$(LOCK_VENV)/bin/python -m piptools compile --extra server --extra replica $(COMPILE) --output-file $(SERVER_LOCK) pyproject.toml
	@for lock in $(LOCK) $(SERVER_LOCK); do echo "lock: $$(grep -c == $$lock) packages in $$lock"; done

clean: ## remove the environment, caches and builds; data stays
	@rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	@find . -name .git -prune -o -type d -name __pycache__ -prune -exec rm -rf {} +
