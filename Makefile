# Every target stands alone on a machine with git, make and Python >= 3.11; the first one makes .venv.
# `make PYTHON=/path/to/python` picks the interpreter; PYTEST_ARGS adds to pytest's arguments.

VENV := .venv
PY := $(VENV)/bin/python
PRODUCT := $(VENV)/.product
INSTALLED := $(VENV)/.installed
PIP := $(PY) -m pip --disable-pip-version-check
# Python compiles what is imported, when it is; pip would compile all that is installed, for seconds.
INSTALL := $(PIP) install --quiet --no-compile -c constraints.txt
PYTEST_ARGS :=
FUZZ_ARGS :=
MUTATION_ARGS :=
ONLY :=

# Images for containers often set it. The suite starts hundreds of interpreters, and none should compile what the one
# before it has compiled.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo test test-long hostile hostile-results chaos soak fuzz mutation check release-check format bench \
	bench-peers bench-short clean
.DEFAULT_GOAL := help

help:
	@echo 'make demo       see it work: one conversation with the installed server; the first time it installs it'
	@echo 'make test       the whole suite, in a quarter of an hour'
	@echo 'make test-long  its long forms, in half an hour'
	@echo 'make fuzz       changed inputs for what reads those of others; ten minutes each, then in the suite what failed'
	@echo 'make mutation   whether the tests notice small changes of the modules that protect people'
	@echo 'make chaos      an hour in which whatever can fail does; MINUTES=10 for less'
	@echo 'make soak       100,000 mixed calls of one server, which has to stay as it was'
	@echo 'make hostile    hostile cases against this server; ONLY=paths,shell picks groups'
	@echo 'make hostile-results'
	@echo '                the same against other servers too, for docs/hostile-results.md; needs npm'
	@echo 'make check      format, lint, types (Linux, macOS, Windows), import rules'
	@echo 'make format     put the code into its format'
	@echo 'make bench      the measurements'
	@echo 'make bench-peers'
	@echo '                this server beside others, which it installs; writes docs/benchmarks.md'
	@echo 'make release-check'
	@echo '                whether what describes a release agrees, and nothing is left to fill in'
	@echo 'make clean      remove what was built, .venv included'

demo: $(PRODUCT)
	@$(PY) -P docs/demo/run.py

# tests/conftest.py says how many workers. `worksteal` gives each one neighbours, which share servers.
# A backend that cannot start here shows up as a skipped test whose reason begins with "not run:"; so do the tests of
# the conformance suite where the registries it comes from cannot be reached.
test: $(INSTALLED)
	-@$(PY) -P tests/conformance/fetch.py
	$(PY) -m pytest -q -rs -n auto --dist worksteal -m 'not long' $(PYTEST_ARGS)

test-long: $(INSTALLED)
	$(PY) -m pytest -q -rs -m long $(PYTEST_ARGS)

fuzz: $(INSTALLED)
	$(PY) -m tests.fuzz.run $(FUZZ_ARGS)

mutation: $(INSTALLED)
	@$(INSTALL) --group mutation
	nice -n 10 $(PY) -m tests.mutation.run $(MUTATION_ARGS)

# A seed that nobody has seen, which is printed. `make chaos SEED=7 MINUTES=5`
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

# The build backend comes first, so that it is the pinned one, too.
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

# A file name says nothing about whether an interpreter runs (version managers leave stubs), so each is asked.
# What a failed attempt left behind goes away first.
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
