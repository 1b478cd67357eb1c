# Everything runs in .venv, which `make env` builds from requirements/. Nothing else on the machine is touched.
# The package is importable from there in any folder. By a path (compat): setuptools' finder loses to a folder of the same name.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help env demo test slowest test-long test-triton test-notebooks notebooks test-ecosystem lint pictures screens docs
MAKEFLAGS += --no-print-directory

LOCK ?= auto
PYTHON ?=
TEST_WORKERS ?= 3
PY := .venv/bin/python
DEMO := runs/demo-$(shell date +%Y%m%d-%H%M%S)

help:  ## say what there is to make
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## */  make \1\t/' | expand -t 20

env:  ## build .venv from the lock (LOCK=cpu|cuda; otherwise cuda where a GPU answers)
	@PYTHON='$(PYTHON)' requirements/make_env.sh '$(LOCK)'
	@test -x .venv/bin/recsys-lab || test ! -f pyproject.toml || \
	    $(PY) -m pip install -qq --disable-pip-version-check --no-deps --no-build-isolation --config-settings editable_mode=compat --editable .
	@$(PY) -m compileall -qq recsys_lab launchers hydra_plugins || true # where PYTHONDONTWRITEBYTECODE is set, each start would compile 300 modules

demo: env  ## plan and simulate MLPerf's DLRM-DCNv2 on 64 H100s, train a small DCN here on generated clicks, and write reports
	$(PY) run.py mode=simulate model=dcn_mlperf cluster=h100x64 data=random hydra.run.dir=$(DEMO)/simulated
	$(PY) run.py hydra.run.dir=$(DEMO)/trained
	@echo 'open $(CURDIR)/$(DEMO)/simulated/report.html and $(CURDIR)/$(DEMO)/trained/report.html'

test: env  ## every test but the long ones, three files at a time (TEST_WORKERS): they fill two cores
	$(PY) -m pytest -m 'not long' -n $(TEST_WORKERS) --dist loadfile --no-loadscope-reorder

slowest: env  ## the slowest 200 tests with their seconds, from a whole run, into tests/slowest.tsv
	$(PY) -m pytest -m 'not long' -n $(TEST_WORKERS) --dist loadfile --no-loadscope-reorder --durations=200 --durations-min=0.5 | \
	    $(PY) -m tests.slowest

test-long: env  ## the long tests
	$(PY) -m pytest -m long

test-triton: env  ## the GPU's kernels without a GPU: interpreted, and compiled (brings Triton, 200 MB, into .venv-triton)
	test -d .venv-triton/triton || $(PY) -m pip install -qq --disable-pip-version-check --no-deps --no-compile --target .venv-triton \
	    $$(grep '^triton==' requirements/cuda.txt)
	TRITON_INTERPRET=1 PYTHONPATH=.venv-triton $(PY) -m pytest tests/kernels/test_triton.py tests/kernels/test_triton_attention.py

test-notebooks: env .venv-notebook/ready  ## the notebooks from top to bottom, held to what is stored in them (brings Jupyter's kernel, 65 MB, into .venv-notebook)
	PYTHONPATH=.venv-notebook $(PY) -m pytest tests/notebooks

notebooks: env .venv-notebook/ready  ## run the notebooks and store what they print
	PYTHONPATH=.venv-notebook $(PY) -m notebooks.execute

.venv-notebook/ready: requirements/notebook.txt
	rm -rf .venv-notebook
	$(PY) -m pip install -qq --disable-pip-version-check --no-deps --no-compile --require-hashes --target .venv-notebook -r requirements/notebook.txt
	touch $@

test-ecosystem: env .venv-ecosystem/ready  ## with a real MLflow server and a real Ray (brings them, 450 MB, into .venv-ecosystem)
	PYTHONPATH=$(CURDIR)/.venv-ecosystem $(PY) -m pytest tests/ecosystem

.venv-ecosystem/ready: requirements/ecosystem.txt
	rm -rf .venv-ecosystem
	$(PY) -m pip install -qq --disable-pip-version-check --no-deps --require-hashes --target .venv-ecosystem -r requirements/ecosystem.txt
	touch $@

lint: env  ## ruff, formatting, types
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy

pictures: env  ## the drawn pictures of README.md and docs, as the code makes them now (two minutes)
	$(PY) -m docs.generator.pictures

screens: env  ## screenshots of reports, sweeps and decide's page for the docs (needs Chromium; two minutes)
	$(PY) -m docs.generator.screens

# mkdocs is not quiet: then it would count no warning, and a broken link would not stop it.
docs: env .venv-docs/ready pictures  ## the docs as a site in site/, with pictures of today's code: open site/index.html
	$(PY) -m docs.generator.screens --if-changed
	$(PY) -m docs.generator .site-pages
	NO_MKDOCS_2_WARNING=1 .venv-docs/bin/mkdocs build
	@echo 'open $(CURDIR)/site/index.html'

.venv-docs/ready: requirements/docs.txt
	rm -rf .venv-docs
	$(PY) -m venv .venv-docs
	.venv-docs/bin/python -m pip install -qq --disable-pip-version-check --no-deps --require-hashes -r requirements/docs.txt
	touch $@
