"""``python tests/gpu/sanitizer.py``: examples, hand-written kernels and random kernels under compute-sanitizer's memcheck, racecheck and synccheck.

Every program runs under every tool in a process of its own, on NumPy arrays, so that no kernel but ours runs in it; its results are compared
with the simulator's. Controls are kernels with a planted fault that a tool must find: a tool that finds nothing in them says nothing about
the others. Known false positives are listed in ``FALSE_POSITIVES``, each with its argument, and in docs/cuda.md.
"""

from __future__ import annotations

import argparse
import datetime
import itertools
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeGuard

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT)]

import numpy as np

import taskfuse as tf
from taskfuse.kir import bodies, map_stmts, with_bodies
from taskfuse.kir.nodes import If, Stmt
from taskfuse.kir.synchronization import Arrive, Barrier, BarrierScope, InitBarrier
from taskfuse.target import WARP
from taskfuse.testing import seeded_case
from tests.examples.cases import CASES
from tests.sim.kernels import load, without

TOOLS = ("memcheck", "racecheck", "synccheck")
TIMEOUT = 60  # seconds, of one program under one tool
SUMMARY = re.compile(r"(?:ERROR|RACECHECK) SUMMARY: (\d+) (?:error|hazard)")
_ONE_LANE = (
    'one lane arrives at an mbarrier for its warp, after a warp barrier that orders the warp\'s accesses before (PTX ISA, "Memory Consistency Model": '
    "bar.warp.sync synchronizes, and causality order is transitive); racecheck credits the arriving lane alone: with an arrival of every thread the same "
    "kernel is clean, see the rows 'all arrive'"
)
FALSE_POSITIVES: dict[tuple[str, str], str] = {
    ("racecheck", name): _ONE_LANE for name in ("horizontal_fusion", "nested_groups", "pipeline", "random 0", "random 12", "random 36")
}
"""(tool, program) to the reason why what the tool says is not so."""

Array = np.ndarray[Any, Any]
Launches = Iterator[tuple[tf.Kernel, Sequence[Any], float]]
"""Kernels, their arguments, and the relative difference from the simulator that is accepted."""


def examples(name: str) -> Launches:
    """An example on two sets of shapes."""
    case = next(case for case in CASES if case.name == name)
    for shapes in case.shapes[:2]:
        yield tf.lower(case.build()), case.arguments(shapes), 1e-5


def written(name: str, *shapes: tuple[int, ...]) -> Launches:
    """A kernel of tests/kernels on small integers, which are exact."""
    kernel = tf.parse_kernel(load(name))
    rng = np.random.default_rng(0)
    yield kernel, [rng.integers(-2, 3, shape).astype(p.dtype.numpy) for p, shape in zip(kernel.inputs, shapes, strict=True)], 0.0


def random_kernels(first: int, count: int = 12) -> Launches:
    """Kernels of consecutive seeds."""
    for seed in range(first, first + count):
        case = seeded_case(seed)
        if case.kernel is not None:
            yield case.kernel, case.arguments(), float("inf")


def everyone_arrives(kernel: tf.Kernel) -> tf.Kernel:
    """The kernel with an arrival of each thread where one lane arrives for its warp after a warp barrier."""
    found: set[str] = set()

    def is_for_warp(stmt: Stmt) -> TypeGuard[If]:
        return isinstance(stmt, If) and len(stmt.branches) == 1 and len(stmt.branches[0].body) == 1 and isinstance(stmt.branches[0].body[0], Arrive)

    def body(stmts: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        out: list[Stmt] = []
        for stmt in stmts:
            if is_for_warp(stmt) and out and isinstance(out[-1], Barrier) and out[-1].scope is BarrierScope.WARP:
                (arrive,) = stmt.branches[0].body
                assert isinstance(arrive, Arrive)
                found.add(arrive.barrier.name)
                out.append(arrive)
            else:
                out.append(with_bodies(stmt, tuple(map(body, bodies(stmt)))))
        return tuple(out)

    def counted(stmt: Stmt) -> Stmt:
        return InitBarrier(stmt.barrier, stmt.count * WARP) if isinstance(stmt, InitBarrier) and stmt.barrier.name in found else stmt

    return replace(kernel, body=map_stmts(body(kernel.body), counted))


def all_arrive(launches: Launches) -> Launches:
    """The same with :func:`everyone_arrives`."""
    for kernel, arguments, tolerance in launches:
        yield everyone_arrives(kernel), arguments, tolerance


WARP_ARRIVALS = "horizontal_fusion", "nested_groups", "pipeline"
PROGRAMS: dict[str, Callable[[], Launches]] = {
    **{case.name: (lambda name=case.name: examples(name)) for case in CASES},
    "ring.kir": lambda: written("ring", (9, 32)),
    "exchange.kir": lambda: written("exchange", (5, 4, 32)),
    "rotate.kir": lambda: written("rotate", (7, 32)),
    "double.kir": lambda: written("double", (61, 32)),
    "gemm.kir": lambda: written("gemm", (300, 264), (200, 264)),
    "gemm_bias.kir": lambda: written("gemm_bias", (130, 72), (136, 72), (136,)),
    **{f"{name}, all arrive": (lambda name=name: all_arrive(examples(name))) for name in WARP_ARRIVALS},
    **{f"random {first}, all arrive": (lambda first=first: all_arrive(random_kernels(first))) for first in (0, 12, 36)},
    **{f"random {first}": (lambda first=first: random_kernels(first)) for first in range(0, 48, 12)},
}

_OUTSIDE = """KERNEL outside(x: float32[32]) -> (y: float32[32])
  GRID (1, 1, 1)  BLOCK (32, 1, 1)

y[threadIdx.x + 1000000] = copy(x[threadIdx.x])
"""
_UNINITIALIZED = """KERNEL uninitialized(x: float32[64]) -> (y: float32[64])
  GRID (1, 1, 1)  BLOCK (64, 1, 1)
  MBARRIER b[1]

ARRIVE b[0]
y[threadIdx.x] = copy(x[threadIdx.x])
"""
CONTROLS: dict[str, tuple[str, str, tuple[int, ...]]] = {
    "memcheck": ("a store outside", _OUTSIDE, (32,)),
    "racecheck": ("exchange.kir without a barrier", without(load("exchange"), "# RAW"), (5, 4, 32)),
    "synccheck": ("an mbarrier without its initialization", _UNINITIALIZED, (64,)),
}


@dataclass(frozen=True)
class Row:
    """What a tool says of a program: the number of errors, or why there is none."""

    program: str
    tool: str
    errors: int | None
    log: str

    @property
    def good(self) -> bool:
        """True if all is as it should be."""
        if self.program.startswith("control: "):
            return bool(self.errors)
        return self.errors == 0 or (bool(self.errors) and (self.tool, self.program) in FALSE_POSITIVES)


def launch(program: str) -> None:
    """Run a program; this is what runs under a tool."""
    for kernel, arguments, tolerance in PROGRAMS[program]():
        found = tf.compile(kernel, backend="cuda")(*arguments)
        for a, b in zip(found, kernel.simulate(*arguments), strict=True):
            if not np.allclose(a.astype(np.float64), b.astype(np.float64), rtol=tolerance, atol=tolerance, equal_nan=True):
                sys.exit(f"{program}: the results differ from the simulator's")


def launch_control(tool: str) -> None:
    """Run the kernel with a fault that ``tool`` must find."""
    _, text, shape = CONTROLS[tool]
    try:
        tf.compile(tf.parse_kernel(text), backend="cuda", unsafe=True)(np.ones(shape, np.float32))
    except tf.errors.TaskfuseError as error:  # the launch fails, as it should
        print(error)


def run(sanitizer: str, tool: str, program: str, arguments: Sequence[str]) -> Row:
    """One program under one tool."""
    command = [sanitizer, "--tool", tool, "--print-limit", "5", sys.executable, __file__, *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT, cwd=ROOT)
    except subprocess.TimeoutExpired as late:
        return Row(program, tool, None, f"no end after {TIMEOUT} s\n{late.stdout or ''}")
    log = done.stdout + done.stderr
    summary = SUMMARY.findall(log)
    ended = done.returncode == 0 or program.startswith("control: ")
    return Row(program, tool, int(summary[-1]) if summary and ended else None, log)


def table(rows: Sequence[Row]) -> str:
    """One line per program, one column per tool."""
    found = {(row.program, row.tool): row for row in rows}
    names = list(dict.fromkeys(row.program for row in rows))
    lines = [f"{'':36}" + "".join(f"{tool:>12}" for tool in TOOLS)]
    for name in names:
        cells = [found.get((name, tool)) for tool in TOOLS]
        lines.append(f"{name:36}" + "".join(f"{'' if c is None else 'failed' if c.errors is None else c.errors:>12}" for c in cells))
    return "\n".join(lines)


def main() -> int:
    """Run the tools and print the table. Returns the exit status: 1 if a tool found an error that is not listed, or missed a planted one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", nargs="*", help="which ones (default: all)")
    parser.add_argument("--tools", nargs="*", choices=TOOLS, default=TOOLS, help="which tools (default: all)")
    parser.add_argument("--jobs", type=int, default=8, help="processes at a time (default: 8)")
    parser.add_argument("--write", type=Path, help="also store the table in this file")
    parser.add_argument("--title", default=str(datetime.date.today()), help="first line of that file: the date and the machine")
    parser.add_argument("--launch", metavar="PROGRAM", help=argparse.SUPPRESS)
    parser.add_argument("--launch-control", metavar="TOOL", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.launch:
        launch(options.launch)
        return 0
    if options.launch_control:
        launch_control(options.launch_control)
        return 0
    sanitizer = shutil.which("compute-sanitizer") or shutil.which("/usr/local/cuda/bin/compute-sanitizer")
    if sanitizer is None:
        print("compute-sanitizer is not on the PATH: it comes with the CUDA toolkit", file=sys.stderr)
        return 1
    work = [(tool, name, ["--launch", name]) for name, tool in itertools.product(options.programs or PROGRAMS, options.tools)]
    work += [(tool, f"control: {CONTROLS[tool][0]}", ["--launch-control", tool]) for tool in options.tools]
    with ThreadPoolExecutor(options.jobs) as pool:
        jobs = [pool.submit(run, sanitizer, *job) for job in work]
        rows = [job.result() for job in jobs]
    for row in rows:
        if not row.good:
            print(f"--- {row.program} under {row.tool}\n{row.log[:6000]}")
    print(table(rows))
    listed = [
        f"known false positives: {', '.join(program for (_, program), reason in FALSE_POSITIVES.items() if reason == why)}: {why}"
        for why in dict.fromkeys(FALSE_POSITIVES.values())
    ]
    bad = [row for row in rows if not row.good]
    print("\n".join([*listed, f"{len(rows)} runs, {len(bad)} not as they should be"]))
    if options.write:
        head = [f"{options.title}", "python tests/gpu/sanitizer.py --write FILE", ""]
        options.write.write_text("\n".join([*head, table(rows), *listed, ""]), encoding="utf-8")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
