# Everything sets itself up in .venv: `make demo`, `make test`, `make check`.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

.PHONY: demo test browser check format bench docs docs-serve clean

demo: .venv/.inferlab
	$(BIN)/inferlab benchmark demo:resnet50 --time 5 --warmup_time 1

# Most tests wait for processes more than they compute, so five run side by side; a few need the machine for
# themselves. Processes under test write no byte code, so all of it is made before; that of the tests by pytest, which
# rewrites their assertions: half of a worker's start, if each of the five did it alone. Five workers on two cores now
# and then starve a browser: up to twenty tests that failed (one starved page fails all that follow on it) are tried
# once more alone, and named.
HALF := $$(( ($$(find tests -name 'test_*.py' | wc -l) + 1) / 2 ))
FAILED := .pytest_cache/v/cache/lastfailed
test: .venv/.dev browser
	$(BIN)/python -m compileall -q src benchmarks tests/helpers
	-@find tests -name 'test_*.py' | sort | PYTHONDONTWRITEBYTECODE= xargs -P 2 -n $(HALF) \
		$(BIN)/python -m pytest -p no:cacheprovider --collect-only >/dev/null
	$(BIN)/python -m pytest --cache-clear --numprocesses 5 --dist loadscope --no-loadscope-reorder -m 'not alone' || \
		{ $(BIN)/python -c 'import json, sys; sys.exit(len(json.load(open("$(FAILED)"))) > 20)' && \
		echo "Tried once more, alone:" && cat $(FAILED) && $(BIN)/python -m pytest --last-failed -v; }
	$(BIN)/python -m pytest -m alone $$(grep -rl --include='test_*.py' 'mark\.alone' tests)

# Pictures of charts are drawn by a browser, and the pages are tried in one, steered by its driver; where they are not
# there and cannot be installed, their tests are skipped.
BROWSERS := chromium chromium-browser google-chrome google-chrome-stable chrome
browser:
	@found=; for name in $(BROWSERS); do command -v $$name >/dev/null && found=yes; done; \
	[ -n "$$found" ] && command -v chromedriver >/dev/null && exit 0; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		{ apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends \
			chromium chromium-driver; } >/dev/null 2>&1 && exit 0; \
	fi; \
	[ -n "$$found" ] || echo "No browser was found: charts as PNG are not tested."; \
	echo "No browser with its chromedriver was found: the pages are not tested."

check: .venv/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: .venv/.dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# Prints figures as ratios measured side by side; stop other work on the machine first.
bench: .venv/.dev
	$(BIN)/python -m benchmarks

# Builds the documentation without the network; a warning is an error.
docs: .venv/.dev
	$(BIN)/python -m sphinx --builder html --fail-on-warning --keep-going --quiet docs docs/_build/html
	@echo "Open docs/_build/html/index.html, or run: make docs-serve"

docs-serve: docs
	$(BIN)/python -m http.server --bind 127.0.0.1 --directory docs/_build/html 8000

clean:
	rm -rf .venv

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "inferlab needs Python 3.11 or newer; name one with: make PYTHON=python3.12"; exit 1; }
	$(PYTHON) -m venv .venv

.venv/.inferlab: .venv/bin/python pyproject.toml
	$(PIP) --editable .
	@touch $@

.venv/.dev: .venv/.inferlab
	$(PIP) --editable '.[dev,docs,torch,transformers,mnn,llamacpp,genai,hub,postgres,png,fleet]'
	@touch $@
