# One verb for each need; `make help` lists them. ARGS passes options on: make demo ARGS=--json
.DEFAULT_GOAL := help
ARGS ?=
EVENT ?= events/one-payment.json
EVENTS ?= 20000
SEED ?= 1
# The Python of the function: template.yaml's Runtime without the word "python".
LAMBDA_PYTHON ?= 3.13
# Evaluated when an environment is made, not before.
PYTHON ?= $(shell tools/find-python)

PY := .venv/bin/python
READY := .venv/.ready
SAM := .venv-sam/bin/sam
SAM_READY := .venv-sam/.ready
MINISTACK_READY := .venv-ministack/.ready
RIE_READY = .venv-lambda/.ready-$(LAMBDA_PYTHON)
DEPLOY_READY = .venv-deploy/.ready-$(LAMBDA_PYTHON)
# The pins name everything, so nothing is resolved; what is never imported need not be compiled.
PIP_INSTALL := -m pip install -qq --disable-pip-version-check --no-deps --no-compile

# Bytecode is written even where the shell says no: else every worker, and every process that a test starts, compiles
# moto, botocore and all tests anew.
PYTEST := PYTHONDONTWRITEBYTECODE= $(PY) -m pytest

# Nothing here talks to AWS; sam and botocore still ask for a region, and sam reports its use unless told not to.
export SAM_CLI_TELEMETRY := 0
export AWS_DEFAULT_REGION ?= us-east-1

.PHONY: help
help: ## This list
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: setup
setup: $(READY) $(MINISTACK_READY) ## Make .venv and .venv-ministack from the pins (every other verb makes what it needs)

.PHONY: demo
demo: $(READY) ## Run the example jobs on an embedded moto: duplicates, failures, killed processes (ARGS=--json)
	@$(PY) -m demo $(ARGS)

.PHONY: test
test: $(READY) $(MINISTACK_READY) ## Run the tests, on locked moto (ARGS="-k lease -n0", BACKEND=ministack)
	@$(PYTEST) -n auto --dist worksteal $(ARGS)

.PHONY: check
check: $(READY) ## Format, lint, types, template, architecture: what must be clean before a commit
	@failed=; check() { "$$@" || failed="$$failed    $$*\n"; }; \
	check $(PY) -m ruff format --check .; \
	check $(PY) -m ruff check .; \
	check $(PY) -m mypy; \
	check .venv/bin/cfn-lint template.yaml; \
	check $(PY) -m pytest -q tests/unit/test_architecture.py; \
	test -z "$$failed" || { printf "make check: what failed (make format mends what ruff can):\n$$failed" >&2; exit 1; }

.PHONY: format
format: $(READY) ## Format the code and mend what ruff can
	@$(PY) -m ruff format .
	@$(PY) -m ruff check --fix .

.PHONY: dev
dev: $(READY) ## Consume locally: poller, locked moto and the example payment provider
	@$(PY) -m demo.provider --run -- $(PY) -m onceq dev $(ARGS)

.PHONY: local-up
local-up: $(READY) ## Start what `sam local invoke` needs, and print the words to call it
	@$(PY) -m demo.provider --run -- $(PY) -m onceq up $(ARGS)

.PHONY: invoke
invoke: $(READY) ## Invoke the consumer with one event, without Docker (EVENT=events/one-payment.json)
	@$(PY) -m demo.provider --run -- $(PY) -m onceq invoke $(EVENT) $(ARGS)

.PHONY: contract
contract: $(READY) $(MINISTACK_READY) ## Contract suites and integration tests on moto, then ministack (BACKEND=ministack)
	@failed=; for backend in $(or $(BACKEND),$(if $(CONTRACT_ENDPOINT),moto,moto ministack)); do \
	  BACKEND=$$backend $(PYTEST) -n auto --dist worksteal -m contract $(ARGS) || failed=1; \
	done; test -z "$$failed"

.PHONY: crash
crash: $(READY) $(MINISTACK_READY) ## Crash before and after every store and queue call
	@CRASHES=all $(PYTEST) -n auto --dist worksteal tests/crash $(ARGS)

.PHONY: gallery
gallery: $(READY) ## Let the test kit prove every wrong and every right job and consumer of the gallery
	@GALLERY=all $(PYTEST) -n auto --dist worksteal tests/gallery $(ARGS)

.PHONY: faults
faults: $(READY) $(MINISTACK_READY) ## Meet every fault of the wire at every operation of store and queue
	@BACKEND=$(or $(BACKEND),both) FAULTS=all $(PYTEST) -n auto --dist worksteal tests/faults $(ARGS)

.PHONY: fuzz
fuzz: $(READY) ## Fuzz the consumer with whole odd events (EVENTS=20000 SEED=1 ARGS="--only 7")
	@PYTHONPATH=tests $(PY) -m fuzz.run --events $(EVENTS) --seed $(SEED) $(ARGS)

.PHONY: soak
soak: $(READY) $(MINISTACK_READY) ## Soak: kill, stop and cut off real processes, then check each promise (DURATION=120 SEED=1 BACKEND=moto)
	@PYTHONPATH=tests $(PY) -m soak.run --duration $(or $(DURATION),120) --seed $(SEED) --backend $(or $(BACKEND),both) $(ARGS)

.PHONY: explore
explore: $(READY) ## Walk every schedule of two and three workers on one key (ARGS="--only plain", --json)
	@PYTHONPATH=tests $(PY) -m explore.run $(ARGS)

.PHONY: mutants
mutants: $(READY) $(MINISTACK_READY) ## Break each condition and table cell on purpose; fail if the tests do not notice
	@$(PY) tests/mutants/run.py $(ARGS)

.PHONY: mutants-generated
mutants-generated: $(READY) $(MINISTACK_READY) ## Break the core in every small way; name what no test notices (ARGS="--sample 200 --seed 1")
	@PYTHONPATH=tests $(PY) -m mutants.generated $(ARGS)

.PHONY: build
build: $(SAM_READY) ## Build the artefact with the SAM CLI (needs python3.13: on PATH or among pyenv's versions)
	@python=$$(tools/find-python $(LAMBDA_PYTHON)) || { \
	  echo "make build: no python$(LAMBDA_PYTHON) on PATH or among pyenv's versions. sam build needs the function's own" >&2; \
	  echo "Python. Install it (pyenv install $(LAMBDA_PYTHON)), or build for one that you have: make build LAMBDA_PYTHON=3.12" >&2; \
	  exit 1; }; \
	$(SAM) validate --lint && \
	PATH="$$(dirname "$$python"):$$PATH" $(SAM) build --parameter-overrides Runtime=python$(LAMBDA_PYTHON)

.PHONY: artefact
artefact: build $(RIE_READY) ## Run the built artefact under the Lambda Runtime Interface Emulator
	@$(PY) -m pytest tests/artefact $(ARGS)

.PHONY: adoption
adoption: $(READY) $(SAM_READY) ## Build, test and package a project outside the repository that vendors the wheel
	@LAMBDA_PYTHON=$(LAMBDA_PYTHON) $(PY) -m pytest tests/adoption/test_adoption.py $(ARGS)

.PHONY: deploy-local
deploy-local: $(READY) $(SAM_READY) $(DEPLOY_READY) ## Build, deploy template.yaml to ministack with IAM enforced, and test the deployment
	@$(PY) -m pytest tests/e2e $(ARGS)

.PHONY: clean
clean: ## Remove environments, caches and the artefact
	rm -rf .venv .venv-sam .venv-lambda .venv-ministack .venv-deploy .aws-sam .mypy_cache .ruff_cache .pytest_cache .hypothesis dist build
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The .pth line puts src/ on the path of every Python of this environment; nothing of ours is installed into it.
$(READY): requirements/dev.txt
	@test -n "$(PYTHON)" || { echo "make: needs Python 3.11 or newer with venv (on Debian: apt-get install python3-venv)" >&2; exit 1; }
	@echo "Making .venv from $< (once; it takes a minute or two)" >&2
	@"$(PYTHON)" -m venv .venv
	@$(PY) $(PIP_INSTALL) -r $<
	@$(PY) -c 'import os, sysconfig as s; p = s.get_path("purelib"); open(p + "/onceq-src.pth", "w").write(os.path.relpath("src", p) + "\n")'
	@touch $@

# The SAM CLI has an environment of its own: its pins conflict with the framework's.
$(SAM_READY): requirements/sam.txt
	@test -n "$(PYTHON)" || { echo "make: needs Python 3.11 or newer with venv (on Debian: apt-get install python3-venv)" >&2; exit 1; }
	@echo "Making .venv-sam from $< (once; it takes a minute or two)" >&2
	@"$(PYTHON)" -m venv .venv-sam
	@.venv-sam/bin/python $(PIP_INSTALL) -r $<
	@touch $@

# The second server that tests run on; its pins conflict with moto's.
$(MINISTACK_READY): requirements/ministack.txt
	@test -n "$(PYTHON)" || { echo "make: needs Python 3.11 or newer with venv (on Debian: apt-get install python3-venv)" >&2; exit 1; }
	@echo "Making .venv-ministack from $< (once)" >&2
	@"$(PYTHON)" -m venv .venv-ministack
	@.venv-ministack/bin/python $(PIP_INSTALL) -r $<
	@touch $@

# The emulator runs the function's own Python; --clear, so that another LAMBDA_PYTHON replaces it.
$(RIE_READY): requirements/lambda-runtime.txt
	@echo "Making .venv-lambda from $< (once)" >&2
	@"$$(tools/find-python $(LAMBDA_PYTHON))" -m venv --clear .venv-lambda
	@.venv-lambda/bin/python $(PIP_INSTALL) -r $<
	@touch $@

# The same server for what is deployed: it runs a function under its own Python, so that has to be the function's.
$(DEPLOY_READY): requirements/ministack.txt
	@python=$$(tools/find-python $(LAMBDA_PYTHON)) || { \
	  echo "make: no python$(LAMBDA_PYTHON), the function's own; make build says what to do" >&2; exit 1; }; \
	echo "Making .venv-deploy from $< (once)" >&2; \
	"$$python" -m venv --clear .venv-deploy
	@.venv-deploy/bin/python $(PIP_INSTALL) -r $<
	@touch $@
