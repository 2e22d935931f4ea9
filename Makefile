# chessrl: `make help` lists what there is.
VENV := .venv
PYTHON ?= python3
RUN := $(VENV)/bin/python -m chessrl
ARGS ?=
PIP_ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help setup run test check slow data pretrain traces sft rl evaluate results clean

help:  ## list the targets
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-10s %s\n", $$1, $$2}'
	@echo '  any setting goes into ARGS: make run ARGS="run=mine model=300k seed=1"'

setup: $(VENV)/ready  ## make .venv with the pinned packages

$(VENV)/ready: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit("chessrl needs Python 3.11 or newer; make PYTHON=...") if sys.version_info < (3, 11) else 0'
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt $(PIP_ARGS) --editable '.[test]'
	touch $@

run: setup  ## the whole pipeline on the embedded data, ending in a table
	$(RUN) stage=pipeline $(ARGS)

data: setup  ## games and puzzles to a dataset
	$(RUN) stage=prepare $(ARGS)

pretrain traces sft rl evaluate: setup
	$(RUN) stage=$@ $(ARGS)

pretrain:  ## train a model on games
traces:    ## sample lines of thought from it
sft:       ## teach it to think and answer
rl:        ## let it practise on puzzles
evaluate:  ## measure it: ARGS="evaluate.of=sft"

results: setup  ## results.csv and a table of all runs
	$(RUN) stage=collect runs='outputs/**' $(ARGS)

test: setup check  ## lint and all tests but the slow ones
	$(VENV)/bin/python -m pytest -m 'not slow'

slow: setup  ## the slow tests
	$(VENV)/bin/python -m pytest -m slow

check: setup  ## lint
	$(VENV)/bin/python -m ruff check .
	$(VENV)/bin/python -m ruff format --check .

clean:  ## remove .venv and caches; outputs stay
	rm -rf $(VENV) .pytest_cache .ruff_cache .hypothesis
