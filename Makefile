# Works with the make 3.81 of macOS, and in a folder whose name has spaces: every path here is relative.

PY = .venv/bin/python
ARGS =

# They would let packages from elsewhere stand in for those of .venv.
unexport PYTHONHOME PYTHONPATH

.PHONY: help demo test lint format docs clean-venv
.NOTPARALLEL:

help:
	@echo 'make demo         install the package in .venv, audit digits, train networks beside (ARGS="..." for more options)'
	@echo 'make test         lint, type check and tests (ARGS="-k name" goes to pytest)'
	@echo 'make lint         lint and type check alone'
	@echo 'make format       put the code into its standard form'
	@echo 'make docs         write docs/options.md from the signatures that declare the options'
	@echo 'make clean-venv   remove .venv'
	@echo 'PYTHON=/path/to/python3 chooses the Python (3.11 or newer) that .venv is made with.'

demo:
	@sh tools/setup.sh core
	$(PY) -m stepe clean digits --compare $(ARGS)

test: lint
	$(PY) -m pytest -n auto --dist loadfile -q $(ARGS)

lint:
	@sh tools/setup.sh dev
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy

format:
	@sh tools/setup.sh dev
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .

docs:
	@sh tools/setup.sh core
	$(PY) tools/options_page.py

clean-venv:
	rm -rf .venv .venv.previous
