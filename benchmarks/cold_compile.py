"""Cold compile time of models: the first call by ``torch.compile(backend="taskfuse")`` and by Inductor, each in a process of its own with empty caches.

    python benchmarks/cold_compile.py [NAME ...] [--train] [--dtype bfloat16] [--turns 1] [--together 4] [--seconds 100]

A new process imports torch, makes the model of ``benchmarks/models.py``, and runs it twice without a compiler; processes of several models do this together.
Then one after another imports its compiler, whose worker processes start with that, and runs the model once with it, which is timed until the GPU is idle:
tracing, compilation, loading, the first launches. The second ratio counts the imports, too. The files of taskfuse are byte-compiled before, as by an
installation. The parts of taskfuse's time: *trace* until the first graph is there, *plan* the partition and import, *wait* for fusions, *run* what
follows the last graph, loading and running, *rest* of torch. ``--host`` tries the script without a GPU, on small models by the reference.
"""

from __future__ import annotations

import argparse
import compileall
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import wraps
from typing import Any, Final, TextIO
from unittest.mock import patch

import torch
from models import cases, step

PARTS = {"plan": "planned_regions", "wait": "_compiled"}
"""Functions of :mod:`taskfuse.torch.compilation` whose time is told."""
KINDS = "taskfuse", "inductor"
READY: Final = "ready\n"
CACHES = "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "TASKFUSE_CACHE_DIR"


Run = tuple[str, str]
"""The name of a model, and the compiler."""


def first_call(name: str, kind: str, given: argparse.Namespace) -> dict[str, float]:
    """Seconds of the first call, and of its parts, when a line comes in from the process that asks."""
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
        try:
            return taskfuse_backend(gm, example, options={"run": "reference"} if given.host else None)
        finally:
            seconds["run"] = -time.perf_counter()

    backend: Any
    if not given.host:
        torch.cuda.synchronize()
    print(READY, end="", flush=True)
    sys.stdin.readline()
    begin = time.perf_counter()
    with ExitStack() as stack:
        if kind == "taskfuse":
            from taskfuse.torch_backend import backend as taskfuse_backend

            backend = entered
            from taskfuse.torch import compilation  # later: processes start before the other imports

            for part, function in PARTS.items():
                stack.enter_context(patch.object(compilation, function, timed(part, getattr(compilation, function))))
        else:
            from torch._inductor import compile_fx

            backend = compile_fx.compile_fx
        start = time.perf_counter()
        seconds["import"] = start - begin
        step(torch.compile(model, backend=backend), inputs, given.train)
        if not given.host:
            torch.cuda.synchronize()
        end = time.perf_counter()
        seconds["all"] = end - start
        if "run" in seconds:
            seconds["run"] += end
    return dict(seconds)


def first_calls(runs: Sequence[Run], given: argparse.Namespace) -> Iterator[dict[str, float] | str]:
    """:func:`first_call` of each run in a process of its own, which are prepared together and timed one after another; an error in place of its result."""
    from taskfuse.options import set_variables, variables  # not by the processes whose imports are timed

    flags = [f"--{flag}" for flag in ("train", "host") if getattr(given, flag)]
    with ExitStack() as stack:
        processes: list[tuple[subprocess.Popen[str], TextIO]] = []
        for name, kind in runs:
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            errors = stack.enter_context(open(f"{folder}/errors", "w+"))
            command = [sys.executable, __file__, name, "--one", kind, "--dtype", given.dtype, *flags]
            set_variables((*variables(), *((cache, f"{folder}/{cache}") for cache in CACHES)))
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True)
            processes.append((stack.enter_context(process), errors))
        for process, _ in processes:
            assert process.stdout is not None
            while process.stdout.readline() not in (READY, ""):
                pass
        for process, errors in processes:
            lines = process.communicate("start\n")[0].splitlines()
            errors.seek(0)
            yield json.loads(lines[-1]) if lines and not process.returncode else " ".join(errors.readlines()[-1:]).strip()


def main() -> int:
    """Run what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--train", action="store_true")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--turns", type=int, default=1)
    parser.add_argument("--together", type=int, default=4, help="models whose processes are prepared together")
    parser.add_argument("--seconds", type=float, default=math.inf, help="no new models after these")
    parser.add_argument("--host", action="store_true")
    parser.add_argument("--one", choices=KINDS, help="only the seconds of this compiler, as JSON, in this process, when it may start")
    given = parser.parse_args()
    if given.one:
        print(json.dumps(first_call(given.names[0], given.one, given)), flush=True)
        return 0
    import taskfuse

    compileall.compile_dir(os.path.dirname(taskfuse.__file__), quiet=2)
    begin, ratios, wholes = time.perf_counter(), list[float](), list[float]()
    names = given.names or list(cases(given.host))
    for first in range(0, len(names), given.together):
        some = names[first : first + given.together]
        if time.perf_counter() - begin > given.seconds:
            print(f"{some[0]} and what follows: no time", flush=True)
            break
        runs = [(name, kind) for turn in range(given.turns) for name in some for kind in (KINDS if turn % 2 == 0 else KINDS[::-1])]
        found: list[tuple[Run, dict[str, float] | str]] = []
        for run, result in zip(runs, first_calls(runs, given), strict=True):
            found.append((run, result))
            print(*run, result if isinstance(result, str) else f"{result['all']:.2f} s", file=sys.stderr, flush=True)
        for name in some:
            if failed := [f"{kind}: {result}" for (own, kind), result in found if own == name and isinstance(result, str)]:
                print(f"{name:9} FAILED {failed[0][:300]}", flush=True)
                continue
            of = {kind: [result for run, result in found if run == (name, kind) and not isinstance(result, str)] for kind in KINDS}
            ours, theirs = ({part: statistics.median(one[part] for one in of[kind]) for part in of[kind][0]} for kind in KINDS)
            ratios.append(ours["all"] / theirs["all"])
            wholes.append((ours["all"] + ours["import"]) / (theirs["all"] + theirs["import"]))
            told = {part: ours.get(part, 0.0) for part in ("trace", *PARTS, "run")}
            rest = ours["all"] - sum(told.values())
            parts = ", ".join(f"{part} {each:.2f}" for part, each in told.items())
            first = f"taskfuse {ours['all']:5.2f} s ({parts}, rest {rest:.2f}) Inductor {theirs['all']:5.2f} s ratio {ratios[-1]:.2f}"
            print(f"{name:9} {first}; imports {ours['import']:.2f} and {theirs['import']:.2f} s, with them {wholes[-1]:.2f}", flush=True)
    if ratios:
        mean, whole = (math.exp(statistics.fmean(map(math.log, some))) for some in (ratios, wholes))
        print(f"geometric mean of taskfuse/Inductor {mean:.2f}, most {max(ratios):.2f}; with imports {whole:.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
