"""Cold compile time of models: the first call by ``torch.compile(backend="taskfuse")`` and by Inductor, each in a process of its own with empty caches.

    python benchmarks/cold_compile.py [NAME ...] [--train] [--dtype bfloat16] [--turns 1] [--seconds 100]

A process is forked of one that has imported torch, both compilers and no CUDA; it makes the model of ``benchmarks/models.py``, runs it twice without a
compiler, and then once with it, which is timed until the GPU is idle: tracing, compilation, loading, the first launches. Backends take turns. The parts of
taskfuse's time: *trace* until the first graph is there, *plan* the partition and import, *wait* for fusions, *rest* of torch, loading and running.
``--host`` tries the script without a GPU, on small models by the reference.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import ExitStack
from functools import wraps
from typing import Any
from unittest.mock import patch

import torch
from models import cases
from torch._inductor import compile_fx
from torch_models import step

from taskfuse.options import set_variables, variables
from taskfuse.torch import compilation, dynamo

INDUCTOR = compile_fx.compile_fx
PARTS = {"plan": "planned_regions", "wait": "_compiled"}
"""Functions of :mod:`taskfuse.torch.compilation` whose time is told."""
CACHES = "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "TASKFUSE_CACHE_DIR"


def first_call(name: str, kind: str, given: argparse.Namespace) -> dict[str, float]:
    """Seconds of the first call, and of its parts."""
    device, dtype = ("cpu" if given.host else "cuda"), getattr(torch, given.dtype)
    torch.manual_seed(0)
    make, inputs_of = cases(given.host)[name]
    model = make().to(device=device, dtype=dtype)
    inputs = tuple(x.to(device=device, dtype=dtype if x.is_floating_point() else None) for x in inputs_of())
    for _ in range(2):
        step(model, inputs, given.train)
    seconds: dict[str, float] = defaultdict(float)

    def timed(part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def call(*args: Any, **more: Any) -> Any:
            begin = time.perf_counter()
            try:
                return function(*args, **more)
            finally:
                seconds[part] += time.perf_counter() - begin

        return call

    def entered(gm: Any, example: Any) -> Any:
        seconds.setdefault("trace", time.perf_counter() - start)
        return dynamo.backend(gm, example, options={"run": "reference"} if given.host else None)

    with ExitStack() as stack:
        for part, function in PARTS.items():
            stack.enter_context(patch.object(compilation, function, timed(part, getattr(compilation, function))))
        if not given.host:
            torch.cuda.synchronize()
        start = time.perf_counter()
        step(torch.compile(model, backend=entered if kind == "taskfuse" else INDUCTOR), inputs, given.train)
        if not given.host:
            torch.cuda.synchronize()
        seconds["all"] = time.perf_counter() - start
    return dict(seconds)


def in_a_process(name: str, kind: str, given: argparse.Namespace) -> dict[str, float]:
    """The same in a process that is forked for it. Raises :class:`RuntimeError` if that fails."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        status = 1
        try:
            with tempfile.TemporaryDirectory() as folder:
                set_variables((*variables(), *((cache, f"{folder}/{cache}") for cache in CACHES)))
                os.write(write, json.dumps(first_call(name, kind, given)).encode())
            status = 0
        except Exception as error:
            print(f"{name} {kind}: {type(error).__name__}: {str(error)[:300]}", file=sys.stderr, flush=True)
        finally:
            os._exit(status)
    os.close(write)
    with os.fdopen(read, "rb") as stream:
        content = stream.read()
    if os.waitpid(child, 0)[1] or not content:
        raise RuntimeError(f"{name} {kind}")
    return json.loads(content)


def main() -> int:
    """Run what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--train", action="store_true")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--turns", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=math.inf, help="no new model after these")
    parser.add_argument("--host", action="store_true")
    given = parser.parse_args()
    begin, ratios = time.perf_counter(), list[float]()
    for name in given.names or list(cases(given.host)):
        if time.perf_counter() - begin > given.seconds:
            print(f"{name} and what follows: no time", flush=True)
            break
        found: dict[str, list[dict[str, float]]] = {"taskfuse": [], "inductor": []}
        try:
            for turn in range(given.turns):
                for kind in list(found) if turn % 2 == 0 else list(found)[::-1]:
                    found[kind].append(in_a_process(name, kind, given))
        except RuntimeError as error:
            print(f"{name:9} FAILED {error}", flush=True)
            continue
        ours, theirs = ({part: statistics.median(one[part] for one in runs) for part in runs[0]} for runs in found.values())
        ratios.append(ours["all"] / theirs["all"])
        rest = ours["all"] - sum(ours.get(part, 0.0) for part in ("trace", *PARTS))
        parts = ", ".join(f"{part} {ours.get(part, 0.0):.2f}" for part in ("trace", *PARTS))
        print(f"{name:9} taskfuse {ours['all']:5.2f} s ({parts}, rest {rest:.2f}) Inductor {theirs['all']:5.2f} s ratio {ratios[-1]:.2f}", flush=True)
    if ratios:
        print(f"geometric mean of taskfuse/Inductor {math.exp(statistics.fmean(map(math.log, ratios))):.2f}, most {max(ratios):.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
