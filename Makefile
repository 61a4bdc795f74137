# Every target sets up what it needs. `make help` lists them.
SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
# Tests and demo start hundreds of Python processes: without byte code each would compile the whole product.
unexport PYTHONDONTWRITEBYTECODE

PYTHON ?= python3
BIN := .venv/bin
PLATFORM := $(BIN)/gpu-platform
# Warnings are errors in the tests; -X dev makes Python tell of leaked files, sockets and coroutines. Only in the unit
# tier: asyncio's debug mode slows everything that waits for processes.
# Whole modules go to the workers, slow ones first (tests/support/module_seconds.py).
PYTEST_OPTIONS := --dist loadfile --no-loadscope-reorder
UNIT := $(BIN)/python -X dev -m pytest $(PYTEST_OPTIONS) -n 2 tests/unit tests/architecture tests/bench
# Each worker has a cluster of its own, of about 1 GB. Its processes wait more than they compute, so more workers than cores.
WORKERS ?= 4
ON_PARTS := $(BIN)/python -m pytest $(PYTEST_OPTIONS) -n $(WORKERS) tests/integration tests/faults
# In the embedded cluster's own shell: its KUBECONFIG, NATS_URL, Pulumi backend and PATH.
IN_CLUSTER := environment="$$($(PLATFORM) dev env --dir .dev)" && eval "$$environment" &&

.PHONY: help
help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  \033[36m%-12s\033[0m %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.venv/.installed: requirements/dev.txt pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.txt
	$(BIN)/pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps --editable .
	touch $@

.PHONY: venv
venv: .venv/.installed ## Make .venv from the hash-pinned requirements, with the project in it

.PHONY: tools
tools: venv ## Build the real parts into the user's cache (about 15 minutes, once)
	$(PLATFORM) tools

.PHONY: generate
generate: venv ## Rewrite every generated file
	$(BIN)/python tools/generate.py

.PHONY: check
check: venv ## Format, lint, types, import rules, generated files; before every commit
	$(BIN)/ruff format --check --quiet .
	$(BIN)/ruff check --quiet .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/python tools/generate.py --check

# A report, not a rule: what is one idea may be long, and a short module may be the right home of a rule.
PACKAGES := gpu_platform infra platform_api providers reconciler serverless stacks
.PHONY: report
report: ## List modules above 600 or below 40 lines, and the size of each package
	@for package in $(PACKAGES); do \
		git ls-files "$$package" | grep '\.py$$' | xargs wc -l; \
	done | awk '$$2 == "total" { lines += $$1; next } { split($$2, path, "/"); size[path[1]] += $$1; files[path[1]]++ } \
		$$2 !~ /__(init|main)__/ && ($$1 > 600 || $$1 < 40) { print $$1, $$2 } \
		END { for (package in size) print package ": " files[package] " modules, " size[package] " lines" }'

.PHONY: fix
fix: venv ## Format and mend what the linter can mend
	$(BIN)/ruff format --quiet .
	$(BIN)/ruff check --fix --quiet .

.PHONY: unit
unit: venv ## Unit and architecture tests: no cluster, about a minute
	$(UNIT)

.PHONY: integration
integration: tools ## Tests on the real parts, a cluster per worker (WORKERS=4)
	$(ON_PARTS) -m "not faults"

.PHONY: test
test: check unit integration ## Everything that guards main: checks and all tests on the real parts

.PHONY: ci
ci: test ## The same as test

.PHONY: faults
faults: tools ## Crash matrices, races, chaos, scale and soaks; prints what was hit (SOAK_SECONDS)
	$(ON_PARTS) -m faults --timeout 1800

.PHONY: bench
bench: tools ## Measure against bare baselines and print the table
	$(BIN)/python -m tests.bench $(BENCH_OPTIONS)

.PHONY: dev
dev: tools ## Start the embedded cluster, bootstrap the platform on it and leave it running
	$(PLATFORM) dev up --dir .dev

.PHONY: run
run: dev ## The same as dev

.PHONY: demo
demo: tools ## Show the platform at work, end to end, and stop it again
	$(BIN)/python examples/demo.py

# Not `dev`, which would begin with what is to be previewed.
.PHONY: preview
preview: tools ## Show what `pulumi up` would change
	$(PLATFORM) dev up --dir .dev --only cluster
	$(IN_CLUSTER) pulumi stack select --create dev && pulumi preview --diff

.PHONY: up
up: dev ## Bring changes of the Pulumi program and its settings to the running platform
	$(IN_CLUSTER) pulumi stack select --create dev && pulumi up --yes

# The production example has an embedded cluster of its own, without what that cluster cannot have: Helm, and the kind of
# ServiceMonitors. Its settings are a changed copy.
PROD_DIRECTORY := .dev/prod
PROD_SETTINGS := $(PROD_DIRECTORY)/settings.yaml
PROD_OPTIONS := --stack dev --config-file $(PROD_SETTINGS)
IN_PROD := environment="$$($(PLATFORM) dev env --dir $(PROD_DIRECTORY))" && eval "$$environment" &&

$(PROD_SETTINGS): tools Pulumi.prod.yaml
	$(PLATFORM) dev up --only cluster --dir $(PROD_DIRECTORY)
	{ cat Pulumi.prod.yaml; grep ^encryptionsalt Pulumi.dev.yaml; } > $@
	$(IN_PROD) pulumi stack select --create dev && pulumi config set-all $(PROD_OPTIONS) --path \
		--plaintext kubernetes:context=gpu-platform-dev \
		--plaintext gpu-platform:gpuOperator.enabled=false \
		--plaintext gpu-platform:workloads.serviceMonitors.enabled=false

.PHONY: prod-preview
prod-preview: $(PROD_SETTINGS) ## Show what `pulumi up` would change of the production example
	$(IN_PROD) pulumi preview --diff $(PROD_OPTIONS)

.PHONY: prod-up
prod-up: $(PROD_SETTINGS) ## Bring the production example to an embedded cluster of its own
	$(IN_PROD) pulumi up --yes $(PROD_OPTIONS)

.PHONY: lock
lock: venv ## Pin all packages by hash (LOCK_OPTIONS=--upgrade takes the newest allowed)
	@for output in runtime:server base: dev:dev; do \
		name="$${output%%:*}" extra="$${output##*:}"; \
		echo "requirements/$$name.txt"; \
		$(BIN)/uv pip compile --quiet $(LOCK_OPTIONS) --universal --python-version 3.11 --generate-hashes \
			--no-header --no-emit-index-url $${extra:+--extra $$extra} pyproject.toml \
			$$([ $$name = runtime ] || echo --constraint requirements/runtime.txt) \
			--output-file "requirements/$$name.txt"; \
	done
	@for name in go audit; do \
		echo "requirements/$$name.txt"; \
		$(BIN)/uv pip compile --quiet $(LOCK_OPTIONS) --universal --python-version 3.11 --generate-hashes --no-header \
			--no-emit-index-url "requirements/$$name.in" --output-file "requirements/$$name.txt"; \
	done

# Apart from .venv: neither the product nor its tests need them.
AUDIT := .venv/audit
$(AUDIT)/.installed: requirements/audit.txt | .venv/.installed
	$(PYTHON) -m venv $(AUDIT)
	$(AUDIT)/bin/pip install --quiet --disable-pip-version-check --require-hashes -r requirements/audit.txt
	touch $@

# --strict: a package that the database does not know fails the audit instead of being left out.
.PHONY: audit
audit: $(AUDIT)/.installed ## Look for known vulnerabilities of the pinned packages (asks PyPI)
	$(AUDIT)/bin/pip-audit --strict --progress-spinner off --require-hashes --disable-pip \
		$(patsubst %,--requirement %,$(sort $(wildcard requirements/*.txt)))

.PHONY: sbom
sbom: $(AUDIT)/.installed ## List the pinned packages of the product with their hashes: dist/sbom.cdx.json (CycloneDX)
	mkdir -p dist
	$(AUDIT)/bin/cyclonedx-py requirements requirements/runtime.txt --pyproject pyproject.toml --output-reproducible \
		--output-format JSON --output-file dist/sbom.cdx.json

.PHONY: image
image: ## Build the container image on base images named by digest (BASE_IMAGE, PULUMI_IMAGE)
	.ci/build-image

.PHONY: clean
clean: ## Stop the embedded cluster and remove all that make made here (the cache of parts stays)
	if [ -x $(PLATFORM) ]; then $(PLATFORM) dev down --dir $(PROD_DIRECTORY) && $(PLATFORM) dev down --dir .dev; fi
	rm -rf .venv .dev dist bench .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
