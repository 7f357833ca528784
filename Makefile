# Everything runs in .venv, which the first target that needs it creates. pip takes its settings
# (index, constraints, local wheels) from the environment and its own configuration files, as always.
#
#   make demo                          watch a two-minute video and ask about it
#   make demo VIDEO=my.mp4 QUESTION="what is on the table?" MODEL=path/or/name
#   make test                          set up and run the tests
#   make test ARGS="-k cache"          ... some of them

PYTHON ?= python3
VENV   ?= .venv
ARGS   ?=
MINUTES ?= 60
# Test processes; each has one thread.
WORKERS ?= 2
BIN    := $(VENV)/bin

# One process rarely owns the whole machine: threads that wait must sleep, not spin.
export OMP_WAIT_POLICY ?= PASSIVE
export GOMP_SPINCOUNT ?= 0
# Nothing here needs a model hub.
export HF_HUB_OFFLINE ?= 1
export PIP_DISABLE_PIP_VERSION_CHECK ?= 1

.DEFAULT_GOAL := help
.PHONY: help demo demo-ui eval-quick test test-browser test-ray test-lmms soak lint format types presets checksums wheel check clean

help:  ## show this list
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 15

demo: $(VENV)/.installed  ## render a video (or take VIDEO=... QUESTION=...), watch it, ask about it
	@$(BIN)/python -m demos.quickstart \
	    $${VIDEO:+"$$VIDEO"} $${QUESTION:+"$$QUESTION"} $${MODEL:+--model "$$MODEL"}

demo-ui: $(VENV)/.installed  ## open a page to watch and ask (ARGS="--model NAME --port 8000")
	@$(BIN)/python -m demos.app $(ARGS)

test: $(VENV)/.installed-dev  ## run the tests (ARGS="-k name" for some of them)
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --ignore tests/browser $(ARGS)

test-browser: $(VENV)/.installed-dev  ## test the page in Chromium, which is installed where that is possible
	@$(BIN)/python -c 'import playwright, axe_playwright_python' 2> /dev/null \
	    || $(BIN)/python -m pip install --quiet --progress-bar off -e ".[browser]" \
	    || { echo "browser tests SKIPPED: playwright cannot be installed here"; exit 0; }; \
	command -v chromium > /dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get > /dev/null \
	    && apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium; }; \
	command -v chromium > /dev/null \
	    || { echo "browser tests SKIPPED: no Chromium, and it cannot be installed here"; exit 0; }; \
	HERMES_LIKE_BROWSER_TESTS=1 $(BIN)/python -m pytest tests/browser $(ARGS)

test-ray: $(VENV)/.installed-dev  ## run an evaluation on a two-node Ray cluster, one node killed
	$(BIN)/python -m venv .venv-ray && .venv-ray/bin/pip install -q -e ".[dev,ray]"
	RAY_USAGE_STATS_ENABLED=0 .venv-ray/bin/python -m pytest tests/evaluation/test_ray.py

test-lmms: $(VENV)/.installed-dev  ## answer one task of lmms-eval in an environment of its own
	$(BIN)/python -m build --wheel
	$(BIN)/python -m venv .venv-lmms
	.venv-lmms/bin/pip install -q lmms-eval==0.7.3 "filelock<4"
	.venv-lmms/bin/pip install -q --no-deps dist/*.whl
	$(BIN)/python -m pipelines.eval_lmms --python .venv-lmms/bin/python

eval-quick: $(VENV)/.installed  ## evaluate the sprites set and easy-VQA in some minutes, with tables
	@$(BIN)/python -c 'import easy_vqa' 2> /dev/null \
	    || $(BIN)/python -m pip install --quiet --progress-bar off --no-deps easy-vqa==1.0 \
	    || echo "easy-VQA: the package cannot be installed here"
	$(BIN)/python -m pipelines.eval_quick --out runs/eval-quick

lint: $(VENV)/.installed-dev  ## check style and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(VENV)/.installed-dev  ## repair style and format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: $(VENV)/.installed-dev  ## check types
	$(BIN)/mypy

soak: $(VENV)/.installed  ## an hour of failing cameras in accelerated time, with its report (MINUTES=1)
	$(BIN)/python -m pipelines.soak --minutes $(MINUTES)

presets: $(VENV)/.installed  ## write every field and its comment into configs/*.yaml again
	@for file in configs/*.yaml; do \
	    $(BIN)/hermes-like config --no-env --preset "$$file" > "$$file.new" \
	        && mv "$$file.new" "$$file" || exit 1; \
	done

checksums:  ## write the checksums of the bundled weights again, after they were changed
	cd hermes_like/sprites/weights && sha256sum *.json *.safetensors > SHA256SUMS
	cd hermes_like/easyvqa/weights && sha256sum *.json *.safetensors > SHA256SUMS

wheel: $(VENV)/.installed-dev  ## build the wheel into dist/
	$(BIN)/python -m build --wheel

check: lint types test  ## lint, types and tests

clean:  ## remove what the targets above made, .venv included
	rm -rf $(VENV) .venv-ray .venv-lmms dist build .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	    || { echo "hermes-like needs Python 3.11 or newer; try: make PYTHON=python3.11" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

# One resolve each, so that torch is chosen together with everything else.
$(VENV)/.installed: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --progress-bar off -e .
	@touch $@

$(VENV)/.installed-dev: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --progress-bar off -e ".[dev]"
	@touch $(VENV)/.installed $@
