# A fresh machine needs python3 with venv and pip, and make; every target sets up what it uses in $(VENV).
.DEFAULT_GOAL := help
PYTHON ?= python3
VENV ?= .venv
PY := $(VENV)/bin/python
# Modules are compiled as they are imported, on all cores; pip would compile twice as many on one, before anything runs.
PIP := $(PY) -m pip install --quiet --disable-pip-version-check --no-compile
JOBS ?= 2
N ?= 10000
CASES ?= 50000
SECONDS ?= 130
SEED ?= 1
PYTEST_ARGS ?=
GPU_PYTHON ?= python3
PARTS ?=
# Bytecode is kept, whatever the shell says: tests and make start the package often, which takes three times as long without.
export PYTHONDONTWRITEBYTECODE :=
# Kernels that mistakes are planted in: one of each kind, as wgmma takes long in the simulator.
CORPUS := $(filter-out %/gemm.kir %/gemm_bias.kir %/fb_triton_1278.fixed.kir %/nvfuser_3561.fixed.kir %/triton_9786.fixed.kir, \
	$(wildcard tests/kernels/*.kir tests/goldens/examples/*.kir tests/check/museum/*.fixed.kir)) tests/kernels/gemm.kir
# Programs that mistakes in values are planted in: those of few threads, and with fewer mutants, as wgmma takes long in the simulator, those of tensor cores.
PROGRAMS := founding horizontal_fusion nested_groups pipeline stream block_roles transpose matmul cat:gather cat:scatter_shared_loop cat:scatter_horizontal
INSTRUCTIONS := wgmma:bf16 wgmma:e4m3 wgmma:tf32 wgmma:registers wgmma:blocks wgmma:threads wgmma:stored wgmma:persistent wgmma:cluster mma:ldmatrix mma:stmatrix mma:cp.async
TENSOR_CORES := "products 7" "products 10" "streams 17" "products 20" "products 6" "products 3" "products 2" "products 14" gemm gemm_cluster

.PHONY: help demo test suite lint types fuzz work anything lists compiles runs faults agreement refutation maps evidence bench-compile bench-proof gpu golden clean

help: ## list these targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1#\2/p' $(MAKEFILE_LIST) | while IFS='#' read -r name text; do printf '%-22s %s\n' "$$name" "$$text"; done

demo: $(VENV)/.core ## run the founding example: its loop nest, its simulation, the difference from NumPy; pictures in build/
	@$(PY) examples/founding.py build

test: $(VENV)/.dev ## lint, type check and all tests, side by side (JOBS=2, PYTEST_ARGS=)
	@$(MAKE) --no-print-directory --jobs=3 lint types suite

suite: $(VENV)/.dev ## all tests (JOBS=2, PYTEST_ARGS=)
	$(PY) -m pytest -n $(JOBS) --dist worksteal $(PYTEST_ARGS)

lint: $(VENV)/.dev ## ruff
	$(PY) -m ruff check .

types: $(VENV)/.dev ## pyright, strict
	$(PY) -m pyright --project pyproject.toml --pythonpath $(PY)

fuzz: $(VENV)/.dev ## run N=10000 random fusions against NumPy; a failure prints the line that reproduces it
	$(PY) -m taskfuse.testing.fuzz --mix everything --prove --cases $(N)
	$(PY) -m taskfuse.testing.fuzz --mix calls --prove --interleavings 1 --cases $$(( $(N) / 4 ))

work: $(VENV)/.dev ## N=10000 random cases whose work data decides: tables, triangles, lists of products (JOBS=2, SEED=1); goes on where it was stopped
	$(PY) -m taskfuse.testing.fuzz --mix work --prove --interleavings 1 --cases $(N) --seed $(SEED) --jobs $(JOBS) --log build/work.jsonl --resume

anything: $(VENV)/.dev ## tf.compile of N=10000 random fusions of all ops: kernels are made, proved, and right
	$(PY) -m taskfuse.testing.anything --seeds 0 $(N)

lists: $(VENV)/.dev ## prove the kernels of N=10000 random lists of unlike products (tf.schedulers.products)
	$(PY) -m taskfuse.testing.lists --seeds 0 $(N)

compiles: $(VENV)/.dev ## compile the kernels of N=10000 random fusions with NVRTC, and compare their PTX with kernel IR (no GPU)
	$(PY) -m taskfuse.testing.fuzz --mix everything --ptx --cases $(N)

runs: $(VENV)/.dev ## run the PTX of N=10000 random kernels without a GPU, and compare the results with the simulator
	$(PY) -m taskfuse.testing.runs --cases $(N) --jobs $(JOBS)

faults: $(VENV)/.dev ## plant mistakes in kernels: who finds them, the proof, schedules or results (minutes)
	$(PY) -m taskfuse.testing.faults --list --small 24 --jobs $(JOBS) $(CORPUS)
	$(PY) -m taskfuse.testing.value_faults --list --jobs $(JOBS) $(PROGRAMS)
	$(PY) -m taskfuse.testing.value_faults --list --jobs $(JOBS) --cases 0 --mutants 60 $(INSTRUCTIONS)
	$(PY) -m taskfuse.testing.value_faults --list --jobs $(JOBS) --cases 0 --mutants 14 $(TENSOR_CORES)

agreement: $(VENV)/.dev ## static proof, every interleaving and random ones on CASES=50000 small kernels, half of them mutants; goes on where it was stopped
	$(PY) -m taskfuse.testing.agreement --cases $(CASES) --seed 1 --log build/agreement.jsonl --resume

refutation: $(VENV)/.dev ## the static proof against the second machine on CASES=50000 kernels with side conditions; goes on where it was stopped
	$(PY) -m taskfuse.testing.refutation --cases $(CASES) --seed 1 --log build/refutation.jsonl --resume

maps: $(VENV)/.dev ## the proof of values against what definitions mean, on CASES=50000 small kernels with index maps of their own; goes on where it was stopped
	$(PY) -m taskfuse.testing.maps --cases $(CASES) --seed 1 --log build/maps.jsonl --resume

evidence: $(if $(filter $(VENV)/%,$(PY)),$(VENV)/.dev) ## all campaigns against the proof side by side, then what it covers and costs by kind, each SECONDS=130 long (JOBS=2, SEED=1, PY=python3)
	$(PY) benchmarks/evidence.py --jobs $(JOBS) --seconds $(SECONDS) --seed $(SEED) --logs build/evidence
	$(PY) benchmarks/values.py --jobs $(JOBS) --seconds $(SECONDS) --seeds 700 2> build/evidence/values.log

bench-compile: $(VENV)/.core ## time fusion to kernel text, and simulation
	$(PY) benchmarks/compile.py

bench-proof: $(VENV)/.core ## what the static proof covers of random kernels, and what it costs (minutes)
	$(PY) benchmarks/proof.py

gpu: ## all that needs a GPU: tests, sanitizers, benchmarks (GPU_PYTHON=python3: one with torch and pytest, PARTS="tests random")
	$(GPU_PYTHON) benchmarks/gpu.py $(PARTS)

golden: $(VENV)/.dev ## rewrite the golden files in tests/goldens; review them like code
	$(PY) -m pytest --update-golden
	$(PY) benchmarks/ulp.py --docs

clean: ## remove the virtual environment and every cache
	rm -rf $(VENV) build dist .hypothesis .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The stamps: newer than pyproject.toml, or the environment is stale.
$(VENV)/.core: pyproject.toml
	@echo "setting up $(VENV)"
	@test -x $(PY) || $(PYTHON) -m venv --clear $(VENV)
	@$(PIP) --editable .
	@touch $@

$(VENV)/.dev: pyproject.toml
	@echo "setting up $(VENV) for development"
	@test -x $(PY) || $(PYTHON) -m venv --clear $(VENV)
	@$(PIP) --editable '.[dev]'
	@touch $(VENV)/.core $@
