# Each target works on its own on a machine with git, make and Python >= 3.11; the first one creates .venv.
# `make PYTHON=/path/to/python` picks the interpreter; PYTEST_ARGS adds to pytest's arguments.

VENV := .venv
PY := $(VENV)/bin/python
PRODUCT := $(VENV)/.product
INSTALLED := $(VENV)/.installed
PIP := $(PY) -m pip --disable-pip-version-check
# Python compiles modules when they are imported; pip would compile everything installed, which takes seconds.
INSTALL := $(PIP) install --quiet --no-compile -c constraints.txt
PYTEST_ARGS :=
FUZZ_ARGS :=
MUTATION_ARGS :=
ONLY :=

# Container images often set this variable. The suite starts hundreds of interpreters, which should not recompile
# modules that others have compiled.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo test test-long hostile hostile-results chaos soak fuzz mutation check release-check format bench \
	bench-peers bench-short clean
.DEFAULT_GOAL := help

help:
	@echo 'make demo       see it work: one session with the installed server; installs it first if needed'
	@echo 'make test       the whole suite, in about 8 minutes'
	@echo 'make test-long  the long variants, in about 15 minutes'
	@echo 'make fuzz       fuzz the parsers of foreign input, ten minutes each; the suite then replays what failed'
	@echo 'make mutation   check whether tests notice small changes to security-relevant modules'
	@echo 'make chaos      random faults everywhere, for an hour; MINUTES=10 for less'
	@echo 'make soak       100,000 mixed calls to one server, whose resource use must not grow'
	@echo 'make hostile    hostile cases against this server; ONLY=paths,shell picks groups'
	@echo 'make hostile-results'
	@echo '                the same against other servers too, for docs/hostile-results.md; needs npm'
	@echo 'make check      format, lint, types (Linux, macOS, Windows), import rules'
	@echo 'make format     format the code'
	@echo 'make bench      run the benchmarks'
	@echo 'make bench-peers'
	@echo '                compare this server with others, which it installs; writes docs/benchmarks.md'
	@echo 'make release-check'
	@echo '                check that release files agree, and that nothing is left to fill in'
	@echo 'make clean      remove everything that was built, including .venv'

demo: $(PRODUCT)
	@$(PY) -P docs/demo/run.py

# tests/conftest.py says how many workers. `worksteal` gives each one neighbours, which share servers.
# A backend that cannot start here shows up as a skipped test whose reason begins with "not run:"; so do the tests of
# the conformance suite where the registries it comes from cannot be reached.
test: $(INSTALLED)
	-@$(PY) -P tests/conformance/fetch.py
	$(PY) -m pytest -q -rs -n auto --dist worksteal -m 'not long' $(PYTEST_ARGS)

test-long: $(INSTALLED)
	$(PY) -m pytest -q -rs -n auto --dist worksteal -m long $(PYTEST_ARGS)

fuzz: $(INSTALLED)
	$(PY) -m tests.fuzz.run $(FUZZ_ARGS)

mutation: $(INSTALLED)
	@$(INSTALL) --group mutation
	nice -n 10 $(PY) -m tests.mutation.run $(MUTATION_ARGS)

# A new seed, which is printed. `make chaos SEED=7 MINUTES=5`
SEED = $(shell date +%s)
MINUTES := 60
CALLS := 100000

chaos: $(INSTALLED)
	$(PY) -m tests.chaos --seed $(SEED) --minutes $(MINUTES)

soak: $(INSTALLED)
	$(PY) -m tests.chaos.soak --calls $(CALLS)

hostile: $(INSTALLED)
	$(PY) -m tests.hostile $(if $(ONLY),--only $(ONLY)) --settings tests/hostile/any_server/ours.json \
		--target '$(abspath $(PY)) -P -m coretools_mcp --workspace {ws} --config {upstream}'

hostile-results: $(INSTALLED)
	$(PY) -m tests.hostile.any_server.results

check: $(INSTALLED)
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/ruff check .
	$(VENV)/bin/basedpyright --pythonplatform Linux
	$(VENV)/bin/basedpyright --pythonplatform Darwin server tools coretools_mcp.py
	$(VENV)/bin/basedpyright --pythonplatform Windows server tools coretools_mcp.py
	$(VENV)/bin/lint-imports

release-check: $(INSTALLED)
	@$(PY) -P docs/release_check.py

format: $(INSTALLED)
	$(VENV)/bin/ruff format .

bench: $(INSTALLED)
	$(PY) bench/run.py

bench-peers: $(INSTALLED)
	$(PY) bench/run_peers.py

bench-short: $(INSTALLED)
	$(PY) bench/run_peers.py --short

clean:
	rm -rf $(VENV) build dist .pytest_cache .ruff_cache .hypothesis .import_linter_cache

# Install the build backend first, so that its pinned version is used.
$(PRODUCT): $(PY) pyproject.toml constraints.txt
	@echo 'installing coretools-mcp and its dependencies into $(VENV), in the versions of constraints.txt'
	@$(INSTALL) hatchling
	@$(INSTALL) --no-build-isolation -e .
	@touch $@

$(INSTALLED): $(PRODUCT)
	@echo 'installing its extras and the development tools (pytest, ruff, basedpyright, node, playwright, ...) into $(VENV)'
	@$(INSTALL) 'pip>=25.1'
	@$(INSTALL) --no-build-isolation --group dev -e '.[full]'
	@touch $@

# An interpreter's file may exist without working (version managers leave stubs), so each one is tried.
# First remove what a failed attempt left behind.
$(PY):
	@rm -rf $(VENV); found=; \
	for python in $(PYTHON) python3.14 python3.13 python3.12 python3.11 python3; do \
		found=$$("$$python" -c 'import sys; print(sys.executable if sys.version_info >= (3, 11) else "")' 2>/dev/null); \
		if [ -n "$$found" ]; then break; fi; \
	done; \
	if [ -z "$$found" ]; then \
		echo 'Python 3.11 or newer is needed; none of python3.14 ... python3.11, python3 is.' >&2; exit 1; \
	fi; \
	echo "making $(VENV) with $$found"; \
	if "$$found" -m venv $(VENV) >/dev/null 2>&1; then exit 0; fi; \
	rm -rf $(VENV); \
	if "$$found" -m virtualenv --quiet $(VENV) 2>/dev/null; then exit 0; fi; \
	if virtualenv --quiet --python "$$found" $(VENV) 2>/dev/null; then exit 0; fi; \
	rm -rf $(VENV); \
	version=$$("$$found" -c 'import sys; print("%d.%d" % sys.version_info[:2])'); \
	echo "$$found cannot make environments. Install the package python$$version-venv (or virtualenv)." >&2; \
	exit 1
