# Everything sets up what it needs. `make help` lists the targets.
SHELL := /bin/bash
.DEFAULT_GOAL := help
OPERATOR := .venv/bin
TRAINER := .venv-trainer/bin
export DTJ_TRAINER_PYTHON ?= $(CURDIR)/$(TRAINER)/python

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z0-9-]+):[^#]*## (.*)/  make \1\t\2/' | expand -t 22

.PHONY: demo
demo: setup ## train a real model on real data with two worker processes on this machine
	@$(OPERATOR)/dtj run examples/digits.yaml

# -- environments ---------------------------------------------------------------------------------------------

.PHONY: setup operator trainer tfjs
setup: operator trainer ## both environments: .venv and .venv-trainer

operator:
	@scripts/make_venv.sh .venv "the operator's environment" requirements/dev.lock
	@[ -e .venv/.dtj-installed ] || { echo '  installing dtj from this checkout'; $(OPERATOR)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable . && touch .venv/.dtj-installed; }

trainer:
	@scripts/make_venv.sh .venv-trainer "the trainer's environment (TensorFlow, about 300 MB to download)" trainer-image/requirements.lock trainer-image/requirements-test.lock
	@cat trainer-image/requirements-stores*.lock | cmp -s - .venv-trainer/.stores-lock || { echo '  installing what opens s3:// and gs://'; $(TRAINER)/pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r trainer-image/requirements-stores.lock -r trainer-image/requirements-stores-test.lock && cat trainer-image/requirements-stores*.lock > .venv-trainer/.stores-lock; }
	@[ -e $(TRAINER)/tensorboard ] || { echo '  installing TensorBoard'; $(TRAINER)/pip install --quiet --disable-pip-version-check --no-deps --require-hashes --target .venv-trainer/tensorboard -r trainer-image/requirements-tensorboard.lock; }
	@{ echo '#!$(CURDIR)/$(TRAINER)/python'; cat trainer-image/start_tensorboard.py; } > $(TRAINER)/tensorboard.new && chmod +x $(TRAINER)/tensorboard.new && mv $(TRAINER)/tensorboard.new $(TRAINER)/tensorboard
	@cmp -s trainer-image/requirements-tfjs.lock .venv-trainer/tfjs-converter/lock || { echo '  installing the converter to TensorFlow.js'; $(TRAINER)/pip install --quiet --disable-pip-version-check --no-deps --only-binary=:all: --require-hashes --upgrade --target .venv-trainer/tfjs-converter -r trainer-image/requirements-tfjs.lock && cp trainer-image/requirements-tfjs.lock .venv-trainer/tfjs-converter/lock; }
	@for packages in .venv-trainer/lib/python3*/site-packages; do echo '$(CURDIR)/.venv-trainer/tensorboard' | cmp -s - $$packages/tensorboard.pth || echo '$(CURDIR)/.venv-trainer/tensorboard' > $$packages/tensorboard.pth; done

tfjs: trainer # for one test, if npm is installed
	@scripts/make_tfjs.sh .venv-trainer/tfjs

# -- tests ----------------------------------------------------------------------------------------------------

PARTS := trainer-all parity operator-adversaries api-all campaigns node release docs neighbours tfjob browser
.PHONY: test test-all test-for-change test-unit test-adversaries $(PARTS:%=test-%)
test: ## the gate: what must pass on each commit (10 minutes on 2 cores; at first 6 more, which build a kube-apiserver)
	@scripts/test.sh gate

test-all: ## lint, unit tests and all parts (an hour and more; as root)
	@scripts/test.sh all

test-for-change: export DTJ_BASE = $(BASE)
test-for-change: ## the gate, and the parts that test what differs from BASE (origin/main)
	@scripts/test.sh for-change

test-unit: ## pure code: unit and property tests (a minute)
	@scripts/test.sh unit

test-trainer-all: ## all tests of real TensorFlow processes
test-parity: ## the whole tables of models and of scripts, each against plain Keras
test-adversaries: ## what users write, composed at random, against plain Keras; what harms an operator (DTJ_ADVERSARY_SECONDS=600)
	@scripts/test.sh adversaries operator-adversaries

test-operator-adversaries: ## what comes in to the operator, composed at random, and harms no other job (DTJ_ADVERSARY_SECONDS=600)
test-api-all: ## all tests on a real kube-apiserver
test-campaigns: ## all plans of all campaigns
test-node: ## a real node with real pods (Linux, root)
test-release: ## what a release builds, installed by helm and by krew, judged by OLM's validator, and upgraded (Linux, root)
test-docs: ## the commands and the code of the documents
test-neighbours: ## the real Kueue, gang schedulers and other versions of Kubernetes; built on the first run (30 minutes)
test-tfjob: ## TFJobs, judged by what Kubeflow, Katib and Kueue bring; built on the first run (20 minutes)
test-browser: ## the report page in a real browser (as root, installs Chromium by apt if it is missing: 90 MB)
$(PARTS:%=test-%): test-%:
	@scripts/test.sh $*

BUILD = cd tests && ../$(OPERATOR)/python -m testbed build
.PHONY: programs programs-node programs-neighbours programs-tfjob
programs: operator # the control plane of Kubernetes, kubectl and helm
	@$(BUILD)

programs-node: operator # and what a node runs
	@$(BUILD) --node

programs-neighbours: export DTJ_KUBERNETES_VERSIONS ?=
programs-neighbours: operator # components of other projects
	@$(BUILD) && ../$(OPERATOR)/python -m testbed build --neighbours
	@$(if $(DTJ_KUBERNETES_VERSIONS),$(BUILD) --versions,true)

programs-tfjob: operator # what the world around TFJobs brings: programs, and the SDK of its users
	@$(BUILD) && ../$(OPERATOR)/python -m testbed build --tfjob
	@scripts/make_venv.sh .venv-tfjob "the SDK of TFJobs" requirements/tfjob.lock

.PHONY: release
release: operator ## wheels, sdists, chart, SBOMs, notes and checksums into dist/; and the images (Docker, else buildah as root)
	@$(OPERATOR)/python scripts/levels.py known-failures
	@$(OPERATOR)/python scripts/release_build.py $(if $(filter 0,$(IMAGES)),,--images) $(if $(DTJ_REPOSITORY),--repository $(DTJ_REPOSITORY))

.PHONY: images
images: operator ## the operator's and the trainer's image, from their Dockerfiles (Docker, else root); prints sizes
	@scripts/images

# -- a local cluster -------------------------------------------------------------------------------------

.PHONY: cluster cluster-install cluster-down
cluster: operator ## a real Kubernetes on this machine, with a node (root); prints the KUBECONFIG line
	@cd tests && ../$(OPERATOR)/python -m testbed up --node

cluster-install: operator ## build both images, load them onto its node, install the operator by helm
	@cd tests && ../$(OPERATOR)/python -m testbed install

cluster-down: operator ## remove the cluster and everything that belongs to it
	@cd tests && ../$(OPERATOR)/python -m testbed down --node

# -- quality --------------------------------------------------------------------------------------------------

.PHONY: lint format
lint: operator ## ruff, mypy --strict, import contracts, zizmor on the workflows, generated files up to date
	$(OPERATOR)/ruff format --check .
	$(OPERATOR)/ruff check .
	$(OPERATOR)/mypy
	PYTHONPATH=operator:trainer-image $(OPERATOR)/lint-imports
	$(OPERATOR)/zizmor --offline --quiet .github
	$(OPERATOR)/python scripts/generate_crds.py --check
	$(OPERATOR)/python scripts/generate_reference.py --check
	$(OPERATOR)/python scripts/generate_cli.py --check
	$(OPERATOR)/python scripts/generate_chart.py --check
	$(OPERATOR)/python scripts/generate_metrics.py --check
	$(OPERATOR)/python scripts/generate_parity.py --check
	$(OPERATOR)/python scripts/generate_failure_modes.py --check

format: operator ## let ruff format and fix the code
	$(OPERATOR)/ruff format .
	$(OPERATOR)/ruff check --fix .

# -- documents ------------------------------------------------------------------------------------------------

.PHONY: docs picture
docs: ## the documents as a site, in site/; fails if a link is broken
	@scripts/make_venv.sh .venv-docs "the environment of the documents" requirements/docs.lock
	@NO_MKDOCS_2_WARNING=1 .venv-docs/bin/mkdocs build --strict
	@echo "site/index.html"

picture: setup ## docs/images/demo.svg, from a run of the demo
	@$(OPERATOR)/python scripts/terminal_picture.py

# -- generated files ------------------------------------------------------------------------------------------

.PHONY: generate lock
generate: operator ## crds/, docs/{reference,cli,metrics,parity}.md, the tables of docs/failure-modes.md and the generated parts of the chart
	$(OPERATOR)/python scripts/generate_crds.py
	$(OPERATOR)/python scripts/generate_reference.py
	$(OPERATOR)/python scripts/generate_cli.py
	$(OPERATOR)/python scripts/generate_chart.py
	$(OPERATOR)/python scripts/generate_metrics.py
	$(OPERATOR)/python scripts/generate_parity.py
	$(OPERATOR)/python scripts/generate_failure_modes.py

# Leaves out what other lock files have.
WITHOUT = $$(sed -nE 's/^([a-zA-Z0-9_.-]+)==.*/--no-emit-package \1/p' $(1))
UV_COMPILE := $(CURDIR)/$(OPERATOR)/uv pip compile --quiet --upgrade --generate-hashes --universal --python-version 3.11 --no-header --no-annotate
lock: operator ## resolve the dependencies again
	$(UV_COMPILE) pyproject.toml --output-file requirements/operator.lock
	$(UV_COMPILE) pyproject.toml --extra dev --output-file requirements/dev.lock
	$(UV_COMPILE) requirements/docs.in --output-file requirements/docs.lock
	$(UV_COMPILE) requirements/tfjob.in --output-file requirements/tfjob.lock
	cd trainer-image && $(UV_COMPILE) pyproject.toml --extra cpu --output-file requirements.lock
	cd trainer-image && $(UV_COMPILE) requirements-test.in --constraint requirements.lock --no-emit-package packaging --no-emit-package pygments --output-file requirements-test.lock
	cd trainer-image && $(UV_COMPILE) requirements-stores.in --constraint requirements.lock $(call WITHOUT,requirements.lock) --output-file requirements-stores.lock
	cd trainer-image && $(UV_COMPILE) requirements-stores-test.in --constraint requirements.lock --constraint requirements-test.lock --constraint requirements-tensorboard.lock --constraint requirements-stores.lock $(call WITHOUT,requirements.lock requirements-test.lock requirements-tensorboard.lock requirements-stores.lock) --output-file requirements-stores-test.lock
	cd trainer-image && $(UV_COMPILE) --no-deps requirements-tfjs.in --output-file requirements-tfjs.lock
	cd trainer-image && $(UV_COMPILE) requirements-tensorboard.in $(addprefix --no-emit-package ,absl-py grpcio numpy packaging protobuf typing-extensions tensorboard-data-server) --output-file requirements-tensorboard.lock
