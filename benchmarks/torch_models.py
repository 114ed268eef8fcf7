"""Models through ``torch.compile(backend="taskfuse")``: right, how much of them, how fast, against eager and Inductor.

    python benchmarks/torch_models.py [NAME ...] [--train] [--dtype bfloat16] [--autotune] [--small] [--host] [--dynamic] [--plan [--compile]]
        [--options JSON]

Random weights, real widths, two blocks each. *Right* is torch's own rule (``torch._dynamo.utils.same``): as close to the model in float64 as eager is, within
a factor. Times are medians of 20 times of 3 calls between events, taken in turn; *host* is how long the host needs for a call on an idle GPU.
``--host`` runs the reference on the host, for small sizes: no times.
"""

from __future__ import annotations

import argparse
import copy
import cProfile
import json
import math
import pstats
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, cast

import torch
from models import Case, cases, step

import taskfuse as tf
from taskfuse.schedulers.roofline import roofline
from taskfuse.schedulers.schedule import Sizes
from taskfuse.target import H200
from taskfuse.torch.compilation import GraphReport, copied, listeners, ops_of, planned_regions
from taskfuse.torch.decompositions import decompositions
from taskfuse.torch.dynamo import backend
from taskfuse.torch.fates import NUMBER, NodeKind
from taskfuse.torch.partition import PartitionLimits, planned
from taskfuse.torch.program import GraphProgram
from taskfuse.torch.reports import Report
from taskfuse.torch.settings import Settings


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


def measure(name: str, case: Case, given: Any) -> tuple[float, float] | None:
    """Print the row of a model. Returns, if measured, Inductor's time over taskfuse's, and taskfuse's seconds of the first call over Inductor's."""
    device, dtype = ("cpu" if given.host else "cuda"), getattr(torch, given.dtype)
    torch.manual_seed(0)
    model = case[0]().to(device=device, dtype=dtype)
    inputs = tuple(x.to(device=device, dtype=dtype if x.is_floating_point() else None) for x in case[1]())
    exact = step(copy.deepcopy(model).double(), tuple(x.double() if x.is_floating_point() else x for x in inputs), given.train)
    want = [t.clone() for t in step(model, inputs, given.train)]
    reports: list[GraphReport] = []
    listeners[:] = [reports.append]
    options = {**json.loads(given.options), **({"run": "reference"} if given.host else {}), "strict": True}
    torch._dynamo.reset()
    start = time.perf_counter()

    def ours_at(gm: Any, example: Any) -> Any:
        return backend(gm, example, mode=given.mode or None, options=options)

    ours = torch.compile(model, backend=ours_at)
    got = [t.clone() for t in step(ours, inputs, given.train)]
    seconds = time.perf_counter() - start
    from torch._dynamo.utils import same

    right = all(same(a, b, c, tol=1e-2 if given.train else 1e-3) for a, b, c in zip(want, got, exact, strict=True))
    r = Report(tuple(reports))
    row = f"{name:9} {'right' if right else 'WRONG'} coverage {r.coverage:4.0%} of {r.could:4.0%} "
    row += f"fusions {r.fusions:3} kernels {r.kernels:3} compile {seconds:5.1f} s"
    if given.explain:
        print(r)
        for g in reports:
            print(g.program.source)
    if given.host:
        print(row, flush=True)
        return None
    runs: dict[str, Callable[[], Any]] = {"eager": lambda: step(model, inputs, given.train), "taskfuse": lambda: step(ours, inputs, given.train)}
    longer = math.inf
    if not given.alone:
        start = time.perf_counter()
        theirs = torch.compile(model, mode=given.mode or None)
        step(theirs, inputs, given.train)
        longer = time.perf_counter() - start
        row += f" (Inductor {longer:5.1f} s)"
        runs["Inductor"] = lambda: step(theirs, inputs, given.train)
    if given.autotune:
        chosen: dict[str, Any] = {"our max-autotune": backend} | ({} if given.alone else {"Inductor's": "inductor"})
        for k, by in chosen.items():
            start = time.perf_counter()
            tuned = torch.compile(model, backend=by, mode="max-autotune-no-cudagraphs")
            got = [t.clone() for t in step(tuned, inputs, given.train)]
            is_right = all(same(a, b, c, tol=1e-2 if given.train else 1e-3) for a, b, c in zip(want, got, exact, strict=True))
            row += f" ({k} {'right' if is_right else 'WRONG'}, {time.perf_counter() - start:.1f} s)"
            runs[k] = lambda tuned=tuned: step(tuned, inputs, given.train)
    times: dict[str, list[float]] = {k: [] for k in runs}
    for turn in range(23):
        for k, run in runs.items():
            t = timed(run)()
            if turn >= 3:
                times[k].append(t)
    hosts = ", ".join(f"{k} {host_time(run):.0f}" for k, run in runs.items())
    if given.profile:
        for k, run in runs.items():
            profile(k, run)
    medians = {k: statistics.median(v) for k, v in times.items()}
    print(row, *(f"{k} {v:.0f} us" for k, v in medians.items()), f"eager/taskfuse {medians['eager'] / medians['taskfuse']:.2f}", end=" ")
    ratio = medians["Inductor"] / medians["taskfuse"] if "Inductor" in medians else None
    print(f"Inductor/taskfuse {ratio:.2f}" if ratio else "", f"host us: {hosts}", flush=True)
    return None if ratio is None else (ratio, seconds / longer)


def dynamic(name: str, case: Case, given: Any) -> None:
    """Print whether a model is right at several sizes of batch and sequence, and how many graphs were compiled after the first."""
    device, dtype = ("cpu" if given.host else "cuda"), getattr(torch, given.dtype)
    torch.manual_seed(0)
    model = case[0]().to(device=device, dtype=dtype)
    finer = copy.deepcopy(model).double()
    whole = tuple(x.to(device=device, dtype=dtype if x.is_floating_point() else None) for x in case[1]())
    reports: list[GraphReport] = []
    listeners[:] = [reports.append]
    torch._dynamo.reset()
    options = {**json.loads(given.options), **({"run": "reference"} if given.host else {}), "strict": True, "cache": False}

    def ours_at(gm: Any, example: Any) -> Any:
        return backend(gm, example, options=options)

    ours = torch.compile(model, dynamic=True, backend=ours_at)
    counts: list[int] = []
    right = True
    from torch._dynamo.utils import same

    first = whole[0].shape
    batches = [first[0], max(first[0] // 2, 2), first[0] + 1]
    lengths = [first[1], first[1] - 3, first[1] // 2] if name in ANY_LENGTH else [first[1]] * 3
    for batch, length in zip(batches, lengths, strict=True):
        parts = [torch.cat([x, x])[:batch] if k else torch.cat([x, x])[:batch, :length] for k, x in enumerate(whole)]
        inputs = tuple(x.clone(memory_format=torch.contiguous_format) for x in parts)  # a view would have a guard on what it is a view of
        exact = step(finer, tuple(x.double() if x.is_floating_point() else x for x in inputs), given.train)
        want, got = ([t.clone() for t in step(run, inputs, given.train)] for run in (model, ours))
        right = right and all(same(a, b, c, tol=1e-2 if given.train else 1e-3) for a, b, c in zip(want, got, exact, strict=True))
        counts.append(len(reports))
    words = "batch and length" if name in ANY_LENGTH else "batch"
    print(f"{name:9} {'right' if right else 'WRONG'} at 3 sizes of {words}: {counts[0]} graphs, {counts[-1] - counts[0]} more later", flush=True)


def plan(name: str, case: Case, given: Any) -> None:
    """Print the share of a model's ops that are in fusions, at its real widths: its graphs are made of tensors without elements, and nothing is compiled."""
    from torch._functorch.aot_autograd import aot_module_simplified, make_boxed_func
    from torch._functorch.partitioners import min_cut_rematerialization_partition
    from torch._subclasses.fake_tensor import FakeTensorMode

    found: list[GraphReport] = []
    fusions = 0

    def planned_only(kind: str) -> Callable[..., Any]:
        def compiler(gm: Any, _: Any) -> Any:
            nonlocal fusions
            made = planned(gm.graph, PartitionLimits("cpu", **{k: v for k, v in json.loads(given.options).items() if k in ("products", "least", "most")}))
            fusions += len(made.regions)
            if given.compile:
                print(f"  {kind}: {compiled(gm)}", flush=True)
            found.append(GraphReport(kind, ops_of(gm, made), frozenset(n.name for n in made.able), {}, 0.0, GraphProgram("", {})))
            return make_boxed_func(gm.forward)

        return compiler

    def chosen(gm: Any, example: Any) -> Any:
        return aot_module_simplified(
            gm,
            example,
            fw_compiler=planned_only("forward"),
            bw_compiler=planned_only("backward"),
            inference_compiler=planned_only("inference"),
            partition_fn=min_cut_rematerialization_partition,
            decompositions=decompositions(),
            keep_inference_input_mutations=True,
        )

    torch._dynamo.reset()
    with FakeTensorMode(allow_non_fake_inputs=True):
        dtype = getattr(torch, given.dtype)
        torch.set_default_dtype(dtype)
        try:
            model = case[0]()
        finally:
            torch.set_default_dtype(torch.float32)
        inputs = tuple(x.to(dtype=dtype if x.is_floating_point() else None) for x in case[1]())
        step(torch.compile(model, backend=chosen), inputs, given.train)
    r = Report(tuple(found))
    print(f"{name:9} coverage {r.coverage:4.0%} of {r.could:4.0%} fusions {fusions:3}", flush=True)
    if given.explain:
        lines = [(g.kind, op, reason) for g in found for _, op, where, reason in g.ops if where == NodeKind.TORCH.value]
        left = Counter(line for line in lines if line[1] != "getitem" and line[2] != NUMBER)
        for (kind, op, reason), n in left.most_common():
            print(f"  {n:3} {kind} {op}: {reason}")


def compiled(gm: Any) -> str:
    """Compile the fusions of a graph for an H200 in this process, machine code included, each once and without a cache: how long that takes."""
    known: dict[str, Any] = {}
    seconds: list[tuple[float, str]] = []
    us, bound = 0.0, 0.0
    for region in planned_regions(copied(gm), Settings(run="reference"))[1].values():
        text = str(region.fusion)
        start = time.process_time()
        if text not in known:
            known[text] = tf.compile(region.fusion, "cuda", target="H200", cache=False).schedule
            seconds.append((time.process_time() - start, ", ".join(tv.name for tv in region.fusion.outputs)))
        us += known[text].us
        bound += roofline(region.fusion, Sizes(region.fusion, None, H200))
    longest = max(seconds, default=(0.0, ""))
    whole = f"{len(seconds)} different fusions in {sum(s for s, _ in seconds):.1f} s of a processor, the longest in {longest[0]:.1f} s"
    return f"{whole} ({longest[1]}); all fusions {us:.0f} us expected, rooflines {bound:.0f} us"


ANY_LENGTH = ("bert", "vit", "encoder", "dit")
"""Models whose weights do not say how long a sequence is."""


def main() -> int:
    """Run what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--train", action="store_true")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--host", action="store_true")
    parser.add_argument("--alone", action="store_true", help="without Inductor")
    parser.add_argument("--autotune", action="store_true", help="also max-autotune of both, without CUDA graphs")
    parser.add_argument("--explain", action="store_true")
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--options", default="{}")
    parser.add_argument("--mode", default="")
    parser.add_argument("--dynamic", action="store_true", help="several sizes of batch and sequence, in one compilation")
    parser.add_argument("--plan", action="store_true", help="which ops are in fusions, at real widths, on any machine: nothing runs")
    parser.add_argument("--compile", action="store_true", help="with --plan: also compile the fusions, for an H200")
    given = parser.parse_args()
    ratios: list[tuple[float, float]] = []
    for name, case in cases(given.small).items():
        if not given.names or name in given.names:
            try:
                if given.plan:
                    plan(name, case, given)
                    continue
                if given.dynamic:
                    dynamic(name, case, given)
                    continue
                ratio = measure(name, case, given)
            except Exception as error:
                print(f"{name:9} FAILED {type(error).__name__}: {str(error)[:300]}", flush=True)
                continue
            ratios += [] if ratio is None else [ratio]
    if ratios:
        times, compiling = (math.exp(sum(map(math.log, column)) / len(column)) for column in zip(*ratios, strict=True))
        print(f"geometric mean of Inductor/taskfuse {times:.2f}, worst {min(ratios)[0]:.2f}; of the first calls, taskfuse/Inductor {compiling:.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
