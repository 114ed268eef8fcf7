"""Compile time of models: the first call by ``torch.compile(backend="taskfuse")`` and by Inductor, each in a process of its own, cold and warm.

    python benchmarks/cold_compile.py [NAME ...] [--train] [--dtype bfloat16] [--turns 1] [--together 1] [--seconds 100] [--no-warm]

A *cold* process has empty caches; a *warm* one finds what the cold one has left: torch's caches of graphs, Triton's of kernels, taskfuse's. A process imports
torch, makes the model of ``benchmarks/models.py``, and runs it twice without a compiler; those of a model do this together. Then one after another imports its
compiler, whose worker processes start with that, and runs the model once with it, which is timed until the GPU is idle: tracing, compilation, loading, the
first launches. The second ratio counts the imports, too. ``--together N`` takes N models side by side, each on its own share of the cores. The files of
taskfuse are byte-compiled before, as by an installation. The parts of taskfuse's time: *trace* until the first graph is there, *plan* the partition and
import, *wait* for fusions, *run* what follows the last graph, loading and running, *rest* of torch. ``--host`` tries the script without a GPU, on small models
by the reference.
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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import wraps
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, Final, TextIO
from unittest.mock import patch

import torch
from models import cases, step

PARTS = {"plan": "planned_regions", "wait": "_compiled"}
"""Functions of :mod:`taskfuse.torch.compilation` whose time is told."""
KINDS = "taskfuse", "inductor"
READY: Final = "ready\n"
WHEN: Final = "cold", "warm"
CACHES = "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "TASKFUSE_CACHE_DIR"


Run = tuple[str, bool]
"""The compiler, and whether it finds what an earlier process has left in its caches."""
Seconds = dict[str, float]
"""Of a first call and of its parts."""


def first_call(name: str, kind: str, given: argparse.Namespace) -> Seconds:
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


def first_calls(name: str, given: argparse.Namespace, cores: Sequence[int]) -> list[tuple[Run, Seconds | str]]:
    """:func:`first_call` of a model by each compiler, cold and then warm, each in a process of its own on some cores; an error in place of its result.

    The processes are prepared together and timed one after another.
    """
    os.sched_setaffinity(0, cores)  # of this thread; processes that it starts have it from there
    flags = [f"--{flag}" for flag in ("train", "host") if getattr(given, flag)]
    with ExitStack() as stack:
        processes: list[tuple[Run, subprocess.Popen[str], TextIO]] = []
        for turn in range(given.turns):
            kinds = KINDS if turn % 2 == 0 else KINDS[::-1]
            folders = {kind: stack.enter_context(tempfile.TemporaryDirectory()) for kind in kinds}
            for is_warm in (False, True)[: 2 if given.warm else 1]:
                for kind in kinds:
                    folder = folders[kind]
                    errors = stack.enter_context(open(f"{folder}/errors{is_warm:d}", "w+"))
                    caches = [f"{cache}={folder}/{cache}" for cache in CACHES]
                    command = ["env", *caches, sys.executable, __file__, name, "--one", kind, "--dtype", given.dtype, *flags]
                    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True)
                    processes.append(((kind, is_warm), stack.enter_context(process), errors))
        for _, process, _ in processes:
            assert process.stdout is not None
            while process.stdout.readline() not in (READY, ""):
                pass
        found: list[tuple[Run, Seconds | str]] = []
        for run, process, errors in processes:
            try:
                lines = process.communicate("start\n")[0].splitlines()
            except BrokenPipeError:  # it has ended
                lines = []
            errors.seek(0)
            result = json.loads(lines[-1]) if lines and not process.returncode else " ".join(errors.readlines()[-1:]).strip() or "no result"
            print(name, *run, result if isinstance(result, str) else f"{result['all']:.2f} s", file=sys.stderr, flush=True)
            found.append((run, result))
        return found


def medians(found: Sequence[tuple[Run, Seconds | str]]) -> dict[Run, Seconds]:
    """The median of every part over the turns of each run."""
    of: dict[Run, list[Seconds]] = {}
    for run, result in found:
        if not isinstance(result, str):
            of.setdefault(run, []).append(result)
    return {run: {part: statistics.median(one[part] for one in every) for part in every[0]} for run, every in of.items()}


def side_by_side(names: Sequence[str], given: argparse.Namespace) -> Iterator[tuple[str, list[tuple[Run, Seconds | str]]]]:
    """:func:`first_calls` of models, ``given.together`` at a time, each on its share of the cores; no new ones after ``given.seconds``."""
    begin = time.perf_counter()
    cores = sorted(os.sched_getaffinity(0))
    share = max(len(cores) // given.together, 1)
    left = SimpleQueue[str]()
    for name in names:
        left.put(name)
    done = SimpleQueue[tuple[str, list[tuple[Run, Seconds | str]]] | None]()

    def take(own: Sequence[int]) -> None:
        with suppress(Empty):
            while time.perf_counter() - begin <= given.seconds:
                name = left.get_nowait()
                done.put((name, first_calls(name, given, own)))
        done.put(None)

    lanes = [Thread(target=take, args=(cores[k * share : (k + 1) * share] or cores,)) for k in range(given.together)]
    for lane in lanes:
        lane.start()
    ended = 0
    while ended < len(lanes):
        one = done.get()
        if one is None:
            ended += 1
        else:
            yield one
    while not left.empty():
        print(f"{left.get():9} no time", flush=True)


def main() -> int:
    """Run what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--train", action="store_true")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--turns", type=int, default=1)
    parser.add_argument("--together", type=int, default=1, help="models side by side, each on its share of the cores")
    parser.add_argument("--no-warm", dest="warm", action="store_false", help="only cold processes")
    parser.add_argument("--seconds", type=float, default=math.inf, help="no new models after these")
    parser.add_argument("--host", action="store_true")
    parser.add_argument("--one", choices=KINDS, help="only the seconds of this compiler, as JSON, in this process, when it may start")
    given = parser.parse_args()
    if given.one:
        print(json.dumps(first_call(given.names[0], given.one, given)), flush=True)
        return 0
    import taskfuse

    compileall.compile_dir(os.path.dirname(taskfuse.__file__), quiet=2)
    ratios: dict[str, list[float]] = defaultdict(list)
    for name, found in side_by_side(given.names or list(cases(given.host)), given):
        of = medians(found)
        print(f"{name:9} {told(of, ratios)}" if (KINDS[0], False) in of and (KINDS[1], False) in of else f"{name:9} FAILED", flush=True)
        for run, result in found:
            if isinstance(result, str):
                print(f"  {run[0]}, {WHEN[run[1]]}: {result[:300]}", flush=True)
    for what, some in ratios.items():
        print(f"geometric mean of taskfuse/Inductor, {what}: {math.exp(statistics.fmean(map(math.log, some))):.2f}, most {max(some):.2f}, {len(some)} models")
    return 0


def told(of: Mapping[Run, Seconds], ratios: dict[str, list[float]]) -> str:
    """A line about a model, whose ratios are added to those of the others."""
    lines: list[str] = []
    for is_warm in (False, True):
        if all((kind, is_warm) in of for kind in KINDS):
            ours, theirs = (of[kind, is_warm] for kind in KINDS)
            each = {WHEN[is_warm]: ours["all"] / theirs["all"], f"{WHEN[is_warm]} with imports": whole(ours) / whole(theirs)}
            for what, ratio in each.items():
                ratios[what].append(ratio)
            parts = {part: ours.get(part, 0.0) for part in ("trace", *PARTS, "run")}
            parts["rest"] = ours["all"] - sum(parts.values())
            first, second = each.values()
            detail = ", ".join(f"{part} {seconds:.2f}" for part, seconds in parts.items())
            times = f"{WHEN[is_warm]}: taskfuse {ours['all']:5.2f} s ({detail}) Inductor {theirs['all']:5.2f} s ratio {first:.2f}"
            lines.append(f"{times}; imports {ours['import']:.2f} and {theirs['import']:.2f} s, with them {second:.2f}")
    return "\n          ".join(lines)


def whole(seconds: Seconds) -> float:
    """Seconds of a first call and of the imports before it."""
    return seconds["all"] + seconds["import"]


if __name__ == "__main__":
    sys.exit(main())
