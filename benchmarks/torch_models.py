"""Models through ``torch.compile(backend="taskfuse")``: right, how much of them, how fast, against eager and Inductor.

    python benchmarks/torch_models.py [NAME ...] [--train] [--dtype bfloat16] [--autotune] [--first-calls N] [--small] [--host] [--dynamic]
        [--sizes 10] [--seconds 100] [--layers 2] [--alone] [--mode MODE] [--options JSON]

Random weights, real widths, ``--layers`` blocks each. The columns of the table:

- *right*: by torch's own rule (``torch._dynamo.utils.same``): as close to the model in float64 as eager is, within a factor, or as torch's own decompositions
  are, op by op, which round elsewhere: the gradient of a ReLU jumps where its argument is within a rounding of 0, on which side is chance.
- *fused*, *chosen*, *lacks*: the shares of the ops that compute, convolutions left out, that are in fusions; that taskfuse has fusions of, but leaves to torch,
  whose kernel is expected to be as fast, as most matrix products; and that it has none of. *Coverage* is the first two together.
- *fusions*, *kernels*: what a step runs, besides torch's own kernels.
- *us*: microseconds of a step: eager, taskfuse (*ours*), Inductor (*theirs*); with ``--autotune`` both in ``mode="max-autotune"``, which records CUDA graphs.
  Medians of 20 times of 3 calls between events, taken in turn.
- *host us*: how long the host needs for a call of ours and theirs on an idle GPU.
- *s*: seconds until a compiled model has run once, in this process, ours before theirs: with the caches as they are, and what the first has traced.
- *cold s*, *warm s*: those in processes of their own with empty caches, and with what these have left in them (``benchmarks/cold_compile.py``), with
  ``--first-calls N``, N models side by side. Imports are left out.

``--dynamic``: one compilation with symbolic extents, then ``--sizes`` sizes of batch and, where weights do not say how long a sequence is, length, beside
Inductor's ``dynamic=True``: what was compiled at the first size and at the others, by kind: graphs, and specializations of kernels (docs/automatic.md);
with ``--explain`` the ratio and the time at each size.
``--host`` runs the reference on the host, for small sizes: no times. ``--seconds`` bounds Inductor's compilation with max-autotune, which has a process of its
own before it is taken from torch's caches here, and the models of first calls.
"""

from __future__ import annotations

import copy
import cProfile
import json
import math
import os
import pstats
import random
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import torch
from cold_compile import KINDS, Run, Seconds, medians, side_by_side
from models import Case, named, parser, step

from taskfuse.torch.compilation import GraphReport, listeners
from taskfuse.torch.dynamo import backend
from taskfuse.torch.reports import Report

COLUMNS = {
    "model": 9,
    "right": 5,
    "fused": 5,
    "chosen": 6,
    "lacks": 5,
    "fusions": 7,
    "kernels": 7,
    "us: eager": 9,
    "ours": 6,
    "theirs": 6,
    "tuned: ours": 11,
    "theirs tuned": 12,
    "eager/ours": 10,
    "theirs/ours": 11,
    "tuned t/o": 9,
    "host us: ours, theirs": 21,
    "s: ours, theirs": 15,
    "tuned s": 13,
    "cold s: ours, theirs": 20,
    "warm s: ours, theirs": 20,
}
"""The columns and their widths."""


def timed(run: Callable[[], Any]) -> Callable[[], float]:
    """Microseconds of a call on the GPU: of three, one after another, so that the host is ahead."""

    def once() -> float:
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        for _ in range(3):
            run()
        end.record()
        torch.cuda.synchronize()
        return start.elapsed_time(end) * 1e3 / 3

    return once


def host_time(run: Callable[[], Any]) -> float:
    """Microseconds that the host needs for a call, on a GPU that has nothing else to do: the median of 20."""
    found: list[float] = []
    for _ in range(20):
        torch.cuda.synchronize()
        start = time.perf_counter()
        run()
        found.append((time.perf_counter() - start) * 1e6)
    torch.cuda.synchronize()
    return statistics.median(found)


def profile(name: str, run: Callable[[], Any]) -> None:
    """Print the kernels of a call that take longest, and the functions of Python in which the host spends most."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as seen:
        run()
        torch.cuda.synchronize()
    rows = sorted(((e.self_device_time_total, e.count, e.key) for e in seen.key_averages()), reverse=True)
    print(f"  {name}: kernels {sum(r[0] for r in rows):.0f} us")
    for spent, count, key in rows[:9]:
        print(f"    {spent:8.1f} us x{count} {key[:90]}")
    calls = cProfile.Profile()
    for _ in range(50):
        torch.cuda.synchronize()
        calls.enable()
        run()
        calls.disable()
    functions = cast("dict[tuple[str, int, str], tuple[int, int, float, float, Any]]", pstats.Stats(calls).__dict__["stats"])
    for (file, line, function), (_, count, spent, _, _) in sorted(functions.items(), key=lambda kv: -kv[1][2])[:14]:
        print(f"    host {spent / 50 * 1e6:7.1f} us x{count / 50:g} {'/'.join(file.split('/')[-2:])}:{line} {function[:70]}")


def tuned_apart(name: str, given: Any) -> float | None:
    """The seconds of a first call with Inductor's max-autotune, in a process of its own, which leaves what it finds in the caches; ``None``: it was ended after
    ``given.seconds``. A compilation that ends in the middle would leave torch's recorded graphs unusable."""
    flags = [f"--{flag}" for flag in ("train", "small") if getattr(given, flag)]
    command = [sys.executable, __file__, name, "--tune", "--dtype", given.dtype, "--layers", str(given.layers), *flags]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True)
    try:
        lines = process.communicate(timeout=None if math.isinf(given.seconds) else given.seconds)[0].splitlines()
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)  # and those that it has started
        process.communicate()
        return None
    if process.returncode:
        raise RuntimeError(f"{' '.join(command[1:])} ended with {process.returncode}")
    return float(lines[-1])


def tune(case: Case, given: Any) -> None:
    """Print the seconds of a first call with Inductor's max-autotune."""
    model, inputs = prepared(case, given)
    start = time.perf_counter()
    step(torch.compile(model, mode="max-autotune"), inputs, given.train)
    torch.cuda.synchronize()
    print(time.perf_counter() - start, flush=True)


def prepared(case: Case, given: Any) -> tuple[Any, tuple[Any, ...]]:
    """A model and its inputs in a dtype, on the GPU or the host."""
    device, dtype = ("cpu" if given.host else "cuda"), getattr(torch, given.dtype)
    torch.manual_seed(0)
    model = case[0]().to(device=device, dtype=dtype)
    return model, tuple(x.to(device=device, dtype=dtype if x.is_floating_point() else None) for x in case[1]())


def pair(ours: float | None, theirs: float | None, digits: int = 0) -> str:
    """Two numbers of a column; those that are not known as dashes."""
    return ", ".join("-" if x is None else f"{x:.{digits}f}" for x in (ours, theirs))


def row(of: Mapping[str, object]) -> str:
    """A line of the table."""
    return " ".join(f"{of.get(name, '-'):>{width}}" if k else f"{of.get(name, '-'):<{width}}" for k, (name, width) in enumerate(COLUMNS.items()))


def steps(model: Any, inputs: tuple[Any, ...], train: bool) -> Callable[[], list[Any]]:
    """Steps whose results a recorded graph may overwrite in the next one."""

    def run() -> list[Any]:
        torch.compiler.cudagraph_mark_step_begin()
        return step(model, inputs, train)

    return run


def is_right(model: Any, inputs: tuple[Any, ...], train: bool, want: Sequence[Any], got: Sequence[Any], exact: Sequence[Any]) -> bool:
    """Whether each result of a step is as close to that in float64 as eager mode's, ``want``, or, if not, as that of torch's decompositions."""
    from torch._dynamo.utils import same

    def close(ours: Any, reference: Any, finer: Any) -> bool:
        return same(reference, ours, finer, tol=1e-2 if train else 1e-3)

    if all(map(close, got, want, exact)):
        return True
    decomposed = step(torch.compile(model, backend="aot_eager_decomp_partition", dynamic=True), inputs, train)
    return all(close(ours, a, finer) or close(ours, b, finer) for ours, a, b, finer in zip(got, want, decomposed, exact, strict=True))


def measure(name: str, case: Case, given: Any, first: Mapping[Run, Seconds]) -> tuple[float, float | None] | None:
    """Print the row of a model. Returns, if measured, Inductor's time over taskfuse's, and that of both tuned.

    Args:
        first: the seconds of first calls.
    """
    model, inputs = prepared(case, given)
    exact = step(copy.deepcopy(model).double(), tuple(x.double() if x.is_floating_point() else x for x in inputs), given.train)
    want = [t.clone() for t in step(model, inputs, given.train)]
    reports: list[GraphReport] = []
    listeners[:] = [reports.append]
    options = {**json.loads(given.options), **({"run": "reference"} if given.host else {}), "strict": True}
    torch._dynamo.reset()

    def ours_at(gm: Any, example: Any) -> Any:
        return backend(gm, example, mode=given.mode or None, options=options)

    def begun(run: Callable[[], list[Any]]) -> tuple[float, bool]:
        """The seconds of a first call, and whether it is right."""
        start = time.perf_counter()
        got = [t.clone() for t in run()]
        if not given.host:
            torch.cuda.synchronize()
        seconds = time.perf_counter() - start
        return seconds, is_right(model, inputs, given.train, want, got, exact)

    runs: dict[str, Callable[[], list[Any]]] = {"us: eager": lambda: step(model, inputs, given.train)}
    runs["ours"] = steps(torch.compile(model, backend=ours_at), inputs, given.train)
    seconds, right = begun(runs["ours"])
    listeners[:] = []
    r = Report(tuple(reports))
    shares = {"fused": r.coverage, "chosen": r.could - r.coverage, "lacks": 1 - r.could}
    found: dict[str, object] = {"model": name, "right": "yes" if right else "WRONG", "fusions": r.fusions, "kernels": r.kernels}
    found |= {what: f"{share:.0%}" for what, share in shares.items()}
    for is_warm, column in ((False, "cold s: ours, theirs"), (True, "warm s: ours, theirs")):
        found[column] = pair(*(first[kind, is_warm]["all"] if (kind, is_warm) in first else None for kind in KINDS), digits=1)
    if given.explain:
        print(r)
        for g in reports:
            print(g.program.source)
    if given.host:
        found["s: ours, theirs"] = pair(seconds, None, 1)
        print(row(found), flush=True)
        return None
    longer = None
    if not given.alone:
        runs["theirs"] = steps(torch.compile(model, mode=given.mode or None), inputs, given.train)
        longer, _ = begun(runs["theirs"])
    found["s: ours, theirs"] = pair(seconds, longer, 1)
    tuning: dict[str, float] = {}
    if given.autotune:
        for column, by in {"tuned: ours": backend, **({} if given.alone else {"theirs tuned": "inductor"})}.items():
            try:
                seconds = tuned_apart(name, given) if by == "inductor" else math.nan
                if seconds is None:
                    found[column] = "late"
                    continue
                run = steps(torch.compile(model, backend=by, mode="max-autotune"), inputs, given.train)
                here, right = begun(run)
            except Exception as error:
                found[column] = "failed"
                print(f"  {name}, {column}: {type(error).__name__}: {str(error)[:200]}", file=sys.stderr)
                continue
            runs[column], tuning[column] = run, here if math.isnan(seconds) else seconds
            found["right"] = found["right"] if right else f"WRONG {column}"
        found["tuned s"] = pair(tuning.get("tuned: ours"), tuning.get("theirs tuned"), 1)
    times: dict[str, list[float]] = {k: [] for k in runs}
    for turn in range(23):
        for k, run in runs.items():
            t = timed(run)()
            if turn >= 3:
                times[k].append(t)
    of = {k: statistics.median(v) for k, v in times.items()}
    found |= {k: f"{us:.0f}" for k, us in of.items()}
    found["host us: ours, theirs"] = pair(host_time(runs["ours"]), host_time(runs["theirs"]) if "theirs" in runs else None)
    ratio = of["theirs"] / of["ours"] if "theirs" in of else None
    tuned = of["theirs tuned"] / of["tuned: ours"] if "tuned: ours" in of and "theirs tuned" in of else None
    found |= {what: f"{x:.2f}" for what, x in (("eager/ours", of["us: eager"] / of["ours"]), ("theirs/ours", ratio), ("tuned t/o", tuned)) if x is not None}
    print(row(found), flush=True)
    if given.profile:
        for k, run in runs.items():
            profile(k, run)
    return None if ratio is None else (ratio, tuned)


ANY_LENGTH = ("gpt2", "bert", "vit", "encoder", "dit")
"""Models whose weights do not say how long a sequence is."""


def sizes_of(shape: Sequence[int], has_lengths: bool, count: int) -> list[tuple[int, int]]:
    """So many batches and lengths: the whole, and random ones, every other length a multiple of 8."""
    draw = random.Random(0)
    batch, length = shape[0], shape[1]
    found = [(batch, length)]
    while len(found) < count:
        drawn = draw.randint(max(length // 4, 4), length)
        one = (draw.randint(2, 2 * batch), (drawn if len(found) % 2 else max(drawn // 8 * 8, 4)) if has_lengths else length)
        if one not in found or 2 * batch <= count:
            found.append(one)
    return found


def dynamic(name: str, case: Case, given: Any) -> None:
    """Print whether a model is right at several sizes of batch and sequence, what was compiled after the first one, and, on a GPU, the times."""
    from torch._dynamo.utils import counters

    model, whole = prepared(case, given)
    finer = copy.deepcopy(model).double()
    reports: list[GraphReport] = []
    listeners[:] = [reports.append]
    torch._dynamo.reset()
    options = {**json.loads(given.options), **({"run": "reference"} if given.host else {}), "strict": True, "cache": False}

    def ours_at(gm: Any, example: Any) -> Any:
        return backend(gm, example, options=options)

    by: dict[str, Any] = {"ours": torch.compile(model, dynamic=True, backend=ours_at)}
    if not given.host and not given.alone:
        by["theirs"] = torch.compile(model, dynamic=True)

    def compiled() -> tuple[int, int]:
        executables = {id(c): c.executable for g in reports for _, c in g.fusions.values() if c.executable is not None}
        return len(reports), sum(len(e.specializations) for e in executables.values())

    right, counts, theirs = True, list[tuple[int, int]](), list[int]()
    firsts: dict[str, list[float]] = {k: [] for k in by}
    times: dict[str, list[float]] = {k: [] for k in by}
    hosts: dict[str, list[float]] = {k: [] for k in by}
    sizes = sizes_of(whole[0].shape, name in ANY_LENGTH, given.sizes)
    for batch, length in sizes:
        parts = [torch.cat([x, x])[:batch] if k else torch.cat([x, x])[:batch, :length] for k, x in enumerate(whole)]
        inputs = tuple(x.clone(memory_format=torch.contiguous_format) for x in parts)  # a view would have a guard on what it is a view of
        exact = step(finer, tuple(x.double() if x.is_floating_point() else x for x in inputs), given.train)
        want = [t.clone() for t in step(model, inputs, given.train)]
        runs = {k: steps(run, inputs, given.train) for k, run in by.items()}
        for k, run in runs.items():
            before = counters["stats"]["unique_graphs"]
            start = time.perf_counter()
            got = [t.clone() for t in run()]
            if not given.host:
                torch.cuda.synchronize()
            firsts[k].append(time.perf_counter() - start)
            if k == "ours":
                right = right and is_right(model, inputs, given.train, want, got, exact)
                counts.append(compiled())
            else:
                theirs.append(counters["stats"]["unique_graphs"] - before)
        if not given.host:
            turns = [{k: timed(run)() for k, run in runs.items()} for _ in range(8)]
            for k in by:
                times[k].append(statistics.median(turn[k] for turn in turns[2:]))
                hosts[k].append(host_time(runs[k]))
    listeners[:] = []
    words = "batch and length" if name in ANY_LENGTH else "batch"
    (made, special), (more, later) = counts[0], counts[-1]
    text = f"{name:9} {'right' if right else 'WRONG'} at {len(sizes)} sizes of {words}: ours {made} graphs, {more - made} more later"
    text += f", {special} specializations, {later - special} more later{'' if given.host else called(firsts['ours'])}"
    if theirs:
        ratios = [b / a for a, b in zip(times["ours"], times["theirs"], strict=True)]
        text += f"; theirs {theirs[0]} graphs, {sum(theirs[1:])} more later{called(firsts['theirs'])}"
        slowest = sizes[ratios.index(min(ratios))]
        text += f"; theirs/ours {statistics.geometric_mean(ratios):.2f}, least {min(ratios):.2f} at {slowest[0]} x {slowest[1]}"
        text += f"; host us: {pair(statistics.median(hosts['ours']), statistics.median(hosts['theirs']))}"
        whole_us = [f"{b / a:.2f} ({a:.0f} us)" for a, b in zip(times["ours"], times["theirs"], strict=True)]
        text += f"; by size {', '.join(whole_us)}" if given.explain else ""
    print(text, flush=True)


def called(seconds: Sequence[float]) -> str:
    """How long the first calls at each size took."""
    return f", first call {seconds[0]:.1f} s, first ones of later sizes {statistics.median(seconds[1:]) * 1e3:.0f} ms, most {max(seconds[1:]) * 1e3:.0f}"


def main() -> int:
    """Run what the command line says."""
    line = parser(__doc__)
    line.add_argument("--host", action="store_true")
    line.add_argument("--alone", action="store_true", help="without Inductor")
    line.add_argument("--autotune", action="store_true", help="also max-autotune of both")
    line.add_argument("--seconds", type=float, default=math.inf, help="most of Inductor's max-autotune; no first calls of new models after these")
    line.add_argument("--first-calls", dest="together", type=int, default=0, help="also cold and warm processes, of so many models side by side")
    line.add_argument("--tune", action="store_true", help="only the seconds of Inductor's max-autotune")
    line.add_argument("--explain", action="store_true")
    line.add_argument("--profile", action="store_true")
    line.add_argument("--mode", default="")
    line.add_argument("--dynamic", action="store_true", help="several sizes of batch and sequence, in one compilation")
    line.add_argument("--sizes", type=int, default=10, help="how many of them")
    given = line.parse_args()
    models = named(given)
    given.warm, given.turns = True, 1  # of first calls
    first = {name: medians(found) for name, found in side_by_side(list(models), given)} if given.together else {}
    ratios: list[float] = []
    tuned: list[float] = []
    if given.tune:
        for case in models.values():
            tune(case, given)
        return 0
    if not given.dynamic:
        print(row({name: name for name in COLUMNS}))
    for name, case in models.items():
        try:
            if given.dynamic:
                dynamic(name, case, given)
                continue
            measured = measure(name, case, given, first.get(name, {}))
        except Exception as error:
            print(f"{name:9} FAILED {type(error).__name__}: {str(error)[:300]}", flush=True)
            continue
        if measured is not None:
            ratios.append(measured[0])
            tuned += [] if measured[1] is None else [measured[1]]
    for what, some in (("Inductor/taskfuse", ratios), ("max-autotune of both", tuned)):
        if some:
            print(f"geometric mean of {what} {statistics.geometric_mean(some):.2f}, worst {min(some):.2f}, {len(some)} models")
    return 0


if __name__ == "__main__":
    sys.exit(main())
