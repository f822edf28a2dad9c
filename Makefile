# `make help` lists the targets. `make run` and `make test` set up everything they need in .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
UV := $(BIN)/uv pip

CLIENTS := .venv-clients
DOCS := .venv-docs
DEPLOY := .venv-deploy
RELEASE := .venv-release

.PHONY: help run test test-all test-slow test-clients test-pythons test-oldest test-newest check cover mutations fix golden bench chaos runtime soak cluster nemesis fuzz docs docs-site deploy-check dist screenshots transcripts lock clean

# Containers often disable Python's bytecode cache; then each of the many processes that tests start compiles everything again.
export PYTHONDONTWRITEBYTECODE :=

run: $(VENV)/.run ## set up and start the gateway
	$(BIN)/cursor-gateway serve

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1\t\2/p' $(MAKEFILE_LIST) | expand -t 14

test: $(VENV)/.dev $(VENV)/axe/.axe ## set up and run the tests, in five to six minutes on two cores
	$(BIN)/pytest -n auto --dist worksteal --ignore tests/clients -m "not slow"

test-all: $(VENV)/.dev $(VENV)/axe/.axe ## all tests, including slow ones and more examples, with coverage
	$(BIN)/pytest -n auto --dist worksteal --hypothesis-profile=thorough --cov --cov-report=term:skip-covered

test-slow: $(VENV)/.dev $(VENV)/axe/.axe ## the tests that `make test` skips, and more generated examples
	$(BIN)/pytest -n auto --dist worksteal --ignore tests/clients -m "slow or hypothesis" --hypothesis-profile=thorough

test-clients: $(VENV)/.dev $(CLIENTS)/.python $(CLIENTS)/.node $(CLIENTS)/aider/.python ## set up real clients and run their tools through the gateway
	$(BIN)/pytest -n auto --dist loadgroup tests/clients -m "not slow"

test-pythons: $(VENV)/.dev ## the tests that can tell, with each Python from 3.11 to 3.14 that is found; PYTHONS="/path …" names more, ALL=1 runs more tests
	$(BIN)/python -m tools.versions pythons $(if $(ALL),--all)

test-oldest: $(VENV)/.dev ## the same with the oldest dependencies that pyproject.toml allows
	$(BIN)/python -m tools.versions oldest $(if $(ALL),--all)

test-newest: $(VENV)/.dev ## the same with the newest dependencies, whatever is pinned
	$(BIN)/python -m tools.versions newest $(if $(ALL),--all)

check: $(VENV)/.dev ## format, lint, types, architecture, generated files
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m tools.reference --check
	$(BIN)/python -m tools.structure --check

cover: $(VENV)/.dev ## check that each pure module is fully covered by its own tests
	$(BIN)/python -m tools.own_coverage

mutations: $(VENV)/.dev ## break each rule of security and of text in a copy; its tests must fail; takes several minutes; WRITE=1 updates docs/security.md
	$(BIN)/python -m tools.mutations $(if $(WRITE),--write)

fix: $(VENV)/.dev ## format, and fix what can be fixed automatically
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

golden: $(VENV)/.dev ## rewrite the expected outputs of all scenarios; review the diff
	$(BIN)/python -m tests.scenarios.golden

bench: $(VENV)/.dev ## benchmarks; WRITE=1 updates docs/performance.md, SHORT=1 takes fewer rounds
	$(BIN)/python -m benchmarks $(if $(SHORT),--short) $(if $(WRITE),--write)

chaos: $(VENV)/.dev ## inject every known fault; WRITE=1 updates docs/reliability.md, SHORT=1 is for CI
	$(BIN)/python -m chaos $(if $(SHORT),--short) $(if $(WRITE),--write)

runtime: $(VENV)/.dev ## all scenarios with Cursor's own runtime and a mock of its servers; WRITE=1 updates docs/reliability.md
	$(BIN)/python -m tools.runtime_report $(if $(WRITE),--write)

MINUTES ?= 10
soak: $(VENV)/.dev ## mixed traffic for MINUTES, to find leaks; WRITE=1 keeps the report, SHORT=1 is for CI
	$(BIN)/python -m chaos.soak $(if $(SHORT),--short,--minutes $(MINUTES)) $(if $(WRITE),--write)

cluster: $(VENV)/.dev ## start a database, two fronts, two runners and a balancer on this machine; see OPTIONS=--help
	$(BIN)/python -m tools.cluster $(OPTIONS)

SEEDS ?= 0-9
nemesis: $(VENV)/.dev ## provoke faults in a cluster for SECONDS=20 with each of SEEDS=0-9, and check what everybody saw
	$(BIN)/python -m nemesis --seeds $(SEEDS) --seconds $(or $(SECONDS),20)

fuzz: SECONDS ?= 60
fuzz: $(VENV)/.dev ## fuzzing, SECONDS per target; WRITE=1 keeps the report
	$(BIN)/python -m fuzz --seconds $(SECONDS) --jobs 2 $(if $(WRITE),--write)

docs: $(VENV)/.dev ## regenerate the reference pages and the troubleshooting page
	$(BIN)/python -m tools.reference

docs-site: $(DOCS)/.docs ## build the documentation as a website in build/site; open build/site/index.html
	NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/python -m mkdocs build --strict --quiet

deploy-check: $(DEPLOY)/.deploy ## check the Dockerfile, the chart and the units in deploy/, without a container engine
	$(DEPLOY)/bin/python -m tools.deployment

dist: $(VENV)/.dev $(RELEASE)/.release ## build wheel, sdist and SBOM in dist/, install them in every way, report; WRITE=1 updates docs/licences.md
	$(BIN)/python -m tools.distribution $(if $(WRITE),--write)

screenshots: $(VENV)/.dev ## take new screenshots of the page, and new films of the page and the terminal; look at them
	$(BIN)/python -m tools.screenshots
	$(BIN)/python -m tools.first_tasks
	$(BIN)/python -m tools.films

transcripts: $(VENV)/.dev $(CLIENTS)/.python $(CLIENTS)/.node $(CLIENTS)/aider/.python ## record what the clients print, for their pages; read the difference
	$(BIN)/python -m tools.transcripts

lock: $(VENV)/.dev ## resolve the dependencies again
	$(UV) compile -q --universal --no-header --generate-hashes pyproject.toml --group build -o requirements/run.txt
	$(UV) compile -q --universal --no-header --generate-hashes --group build -o requirements/build.txt
	$(UV) compile -q --universal --no-header --generate-hashes pyproject.toml --group dev -o requirements/dev.txt
	$(UV) compile -q --universal --no-header --generate-hashes pyproject.toml --all-extras -c requirements/dev.txt -o requirements/extras.txt
	@mkdir -p build
	$(UV) compile -q --universal --no-header --no-annotate --resolution lowest-direct --all-extras pyproject.toml -o build/oldest.txt
	$(UV) compile -q --universal --no-header --generate-hashes --all-extras --group dev pyproject.toml -c build/oldest.txt -o requirements/oldest.txt
	$(UV) compile -q --universal --no-header --generate-hashes --group clients -o requirements/clients.txt
	$(UV) compile -q --universal --no-header --generate-hashes --group aider -o requirements/aider.txt
	$(UV) compile -q --universal --no-header --generate-hashes --group docs -o requirements/docs.txt
	$(UV) compile -q --universal --no-header --generate-hashes --group deploy -o requirements/deploy.txt
	echo 'psycopg[binary]>=3.2' | $(UV) compile -q --universal --no-header --generate-hashes - -o requirements/postgres.txt
	printf 'opentelemetry-exporter-otlp-proto-http\nopentelemetry-sdk\n' | $(UV) compile -q --universal --no-header --generate-hashes -c requirements/dev.txt - -o requirements/otel.txt
	$(UV) compile -q --universal --no-header --generate-hashes --group release -o requirements/release.txt
	npm install --prefix tests/page --package-lock-only --omit-lockfile-registry-resolved --ignore-scripts --no-audit --no-fund --loglevel=error
	npm install --prefix tests/clients --package-lock-only --omit-lockfile-registry-resolved --ignore-scripts --no-audit --no-fund --loglevel=error
	echo uv | $(UV) compile -q --universal --no-header --generate-hashes - -o requirements/uv.txt

clean: ## remove everything that these targets created
	rm -rf $(VENV) $(CLIENTS) $(DOCS) $(DEPLOY) $(RELEASE) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis .coverage htmlcov build dist

$(VENV)/.uv: requirements/uv.txt
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "cursor-gateway needs Python 3.11 or newer; name one: make PYTHON=python3.12 …")'
	@echo "Setting up in $(VENV), once. This takes about 20 seconds."
	@echo "1/3 Creating a virtual environment with $$($(PYTHON) --version 2>&1)"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install -q --disable-pip-version-check --require-hashes -r requirements/uv.txt
	@touch $@

$(VENV)/.run: $(VENV)/.uv requirements/run.txt pyproject.toml
	@echo "2/3 Installing the packages that cursor-gateway needs"
	@$(UV) install -q --python $(BIN)/python --require-hashes -r requirements/run.txt
	@echo "3/3 Installing cursor-gateway"
	@$(UV) install -q --python $(BIN)/python --no-deps --no-build-isolation -e .
	@touch $@

$(VENV)/.dev: $(VENV)/.run requirements/dev.txt
	$(UV) install -q --python $(BIN)/python --require-hashes -r requirements/dev.txt
	@touch $@

$(VENV)/axe/.axe: $(VENV)/.dev tests/page/package.json tests/page/package-lock.json
	@mkdir -p $(VENV)/axe && rm -f $@
	cp tests/page/package.json tests/page/package-lock.json $(VENV)/axe
	npm ci --prefix $(VENV)/axe --ignore-scripts --no-audit --no-fund --loglevel=error && touch $@ || echo 'No npm, or no network: axe-core is left out.'

$(CLIENTS)/.python: $(VENV)/.uv requirements/clients.txt
	$(BIN)/uv venv -q --allow-existing --python $(BIN)/python $(CLIENTS)
	$(UV) sync -q --python $(CLIENTS)/bin/python --require-hashes requirements/clients.txt
	@touch $@

$(DOCS)/.docs: $(VENV)/.uv requirements/docs.txt
	$(BIN)/uv venv -q --allow-existing --python $(BIN)/python $(DOCS)
	$(UV) sync -q --python $(DOCS)/bin/python --require-hashes requirements/docs.txt
	@touch $@

$(DEPLOY)/.deploy: $(VENV)/.uv requirements/deploy.txt
	$(BIN)/uv venv -q --allow-existing --python $(BIN)/python $(DEPLOY)
	$(UV) sync -q --python $(DEPLOY)/bin/python --require-hashes requirements/deploy.txt
	@touch $@

$(RELEASE)/.release: $(VENV)/.uv requirements/release.txt
	$(BIN)/uv venv -q --allow-existing --python $(BIN)/python $(RELEASE)
	$(UV) sync -q --python $(RELEASE)/bin/python --require-hashes requirements/release.txt
	@touch $@

# Its versions are not those of the others. It has no wheels for Python 3.13 yet.
$(CLIENTS)/aider/.python: $(CLIENTS)/.python requirements/aider.txt
	@rm -f $@
	$(BIN)/uv venv -q --allow-existing --python $(BIN)/python $(CLIENTS)/aider
	$(UV) sync -q --python $(CLIENTS)/aider/bin/python --require-hashes requirements/aider.txt && touch $@ || echo 'aider cannot be installed here: it is left out.'

$(CLIENTS)/.node: $(CLIENTS)/.python tests/clients/package.json tests/clients/package-lock.json
	@rm -f $@
	cp tests/clients/package.json tests/clients/package-lock.json $(CLIENTS)
	npm ci --prefix $(CLIENTS) --ignore-scripts --no-audit --no-fund --loglevel=error && touch $@ || echo 'No npm, or no network: the clients in JavaScript are left out.'
