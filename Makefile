# chessrl: `make help` lists what there is.
VENV := .venv
PYTHON ?= python3
RUN := $(VENV)/bin/python -m chessrl
ARGS ?=
PIP_ARGS ?=
FILE ?= data/starter/games.pgn.bz2

.DEFAULT_GOAL := help
.PHONY: help setup run test check slow data data-starter data-gnuchess data-pgn data-lichess \
	data-puzzles mine describe benchmark pretrain traces sft rl harvest evaluate sweep results \
	frontier advise clean

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-14s %s\n", $$1, $$2}'
	@echo '  any setting goes into ARGS: make run ARGS="run=mine model=300k seed=1"'

setup: $(VENV)/ready  ## make .venv with the pinned packages

$(VENV)/ready: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit("chessrl needs Python 3.11 or newer; make PYTHON=...") if sys.version_info < (3, 11) else 0'
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt $(PIP_ARGS) --editable '.[test]'
	touch $@

run: setup  ## the whole pipeline on the embedded data, ending in a table
	$(RUN) stage=pipeline $(ARGS)

data: setup  ## games and puzzles to a dataset: the starter's, or what ARGS names
	$(RUN) stage=prepare $(ARGS)

data-starter data-gnuchess data-pgn data-lichess data-puzzles: setup
	$(RUN) stage=prepare data=$(@:data-%=%) $(ARGS)

data-starter:   ## the embedded games and puzzles
data-gnuchess:  ## all 145,716 games of the GNU Chess book (a download)
data-pgn:       ## any PGN: ARGS="data.paths=[a.pgn,folder]"
data-lichess:   ## months of Lichess (downloads): ARGS="data.months=[2013-01]"
data-puzzles:   ## the starter's games, all puzzles of Lichess (a download)

mine: setup  ## find puzzles in games: ARGS="engine=stockfish" for more than mates
	$(RUN) stage=mine $(ARGS)

describe: setup  ## tables and pictures of a dataset: ARGS="dataset=FOLDER"
	$(RUN) stage=describe $(ARGS)

pretrain traces sft rl harvest evaluate: setup
	$(RUN) stage=$@ $(ARGS)

pretrain:  ## train a model on games
traces:    ## sample lines of thought from it
sft:       ## teach it to think and answer
rl:        ## let it practise on puzzles
harvest:   ## make documents of what it solved
evaluate:  ## measure it: ARGS="evaluate.of=sft"

sweep: setup  ## a study, a cell after the other: EXPERIMENT=tiny; DRY=1 only tells the plan
	$(RUN) -m $(if $(EXPERIMENT),experiment=$(EXPERIMENT)) $(if $(DRY),dry=true) $(ARGS)

results: setup  ## results.csv and a table of all runs
	$(RUN) stage=collect runs='outputs/**' $(ARGS)

frontier: setup  ## the best split between pretraining and RL by a law: ARGS="law=pre2post"
	$(RUN) stage=frontier $(ARGS)

advise: setup  ## divide a budget: ARGS="advise.n_params=5e7 advise.tokens=2e9 advise.flops=1e18"
	$(RUN) stage=advise $(ARGS)

test: setup check  ## lint and all tests but the slow ones
	$(VENV)/bin/python -m pytest -m 'not slow'

slow: setup  ## the slow tests
	$(VENV)/bin/python -m pytest -m slow

check: setup  ## lint
	$(VENV)/bin/python -m ruff check .
	$(VENV)/bin/python -m ruff format --check .

benchmark: setup  ## games/s of the reader against python-chess: make benchmark FILE=a.pgn
	$(VENV)/bin/python benchmarks/ingest.py $(FILE)

clean:  ## remove .venv and caches; outputs stay
	rm -rf $(VENV) .pytest_cache .ruff_cache .hypothesis
