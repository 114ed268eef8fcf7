"""From a fusion to its first result, in fresh processes in which the CUDA context is already made, and in such that have called another fusion.

``python benchmarks/first_call.py [--write] [--runs 20]``. A run is a process forked from one that has imported torch and taskfuse but not
touched CUDA: it makes the context, then the clock runs from the first line that builds the fusion until its result is there. Before each cold
run the cache folder is emptied; before the others it was filled by a run that is not counted. For comparison: a one-line Triton kernel, and
torch.compile of the founding example's math, both with empty caches.
"""

from __future__ import annotations

import argparse
import compileall
import multiprocessing
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
from reporting import parser, publish, spread

import taskfuse as tf

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
import founding

Pieces = dict[str, float]
"""Name of a step to its milliseconds."""


def ours(x: Any) -> Pieces:
    """The founding example through the public interface."""
    clock = Clock()
    fusion = founding.build()
    clock.lap("build and schedule")
    run = tf.compile(fusion, backend="cuda")
    clock.lap("tf.compile")
    run(x)
    clock.lap("first call")
    torch.cuda.synchronize()
    clock.lap("until the result is there")
    return clock.pieces()


def ours_later(x: Any) -> Pieces:
    """The founding example in a process that has called another fusion."""
    call_another(x)
    return ours(x)


def unscheduled_later(x: Any) -> Pieces:
    """A norm, a product and its activation that nobody scheduled, in a process that has called another fusion."""
    call_another(x)
    a, w = (torch.rand(shape, device="cuda").bfloat16() for shape in ((512, 1024), (1024, 256)))
    torch.cuda.synchronize()
    clock = Clock()
    with tf.Fusion("mlp") as fusion:
        rows, weights = tf.define_tensor([512, 1024], tf.bfloat16), tf.define_tensor([1024, 256], tf.bfloat16)
        fusion.add_output(tf.gelu(tf.softmax(rows, 1) @ weights))
    clock.lap("build")
    run = tf.compile(fusion, backend="cuda")
    clock.lap("tf.compile")
    run(a, w)
    clock.lap("first call")
    torch.cuda.synchronize()
    clock.lap("until the result is there")
    return clock.pieces()


def call_another(x: Any) -> None:
    """Compile and call a fusion that nobody scheduled."""
    with tf.Fusion("another") as fusion:
        fusion.add_output(tf.define_tensor(["A", "B", "C"], tf.float32) + 1)
    tf.compile(fusion, backend="cuda")(x)
    torch.cuda.synchronize()


def triton_line(x: Any) -> Pieces:
    """A Triton kernel of one line."""
    import peers

    clock = Clock()
    peers.triton_add_one(x.flatten())
    torch.cuda.synchronize()
    return clock.pieces()


def torch_compiled(x: Any) -> Pieces:
    """torch.compile of the founding example's math."""
    import peers

    clock = Clock()
    torch.compile(peers.founding_math)(x)
    torch.cuda.synchronize()
    return clock.pieces()


class Clock:
    """Milliseconds since it was made, in pieces."""

    def __init__(self) -> None:
        self._start = self._last = time.perf_counter()
        self._pieces: Pieces = {}

    def lap(self, name: str) -> None:
        """End a piece."""
        now = time.perf_counter()
        self._pieces[name] = 1e3 * (now - self._last)
        self._last = now

    def pieces(self) -> Pieces:
        """The pieces and the whole."""
        return self._pieces | {"whole": 1e3 * (time.perf_counter() - self._start)}


PROGRAMS: dict[str, Callable[[Any], Pieces]] = {
    "ours": ours,
    "later": ours_later,
    "unscheduled": unscheduled_later,
    "triton": triton_line,
    "torch": torch_compiled,
}


def _child(program: str, pipe: Connection) -> None:
    x = torch.rand(64, 5, 8, device="cuda")
    torch.cuda.synchronize()
    pipe.send(PROGRAMS[program](x))


def runs(program: str, count: int, folder: Path, cold: bool) -> None:
    """Print the pieces of each run, one run per line. The environment points every cache at ``folder``."""
    context = multiprocessing.get_context("fork")
    for k in range(count + (not cold)):
        if cold:
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
        here, there = context.Pipe()
        process = context.Process(target=_child, args=(program, there))
        process.start()
        there.close()  # so that the end of the child is the end of the pipe
        if not here.poll(120):
            process.kill()
            sys.exit(f"{program}: no result after 120 s")
        found: Pieces = here.recv()
        process.join()
        if cold or k:
            print("\t".join(f"{name}={ms}" for name, ms in found.items()), flush=True)


def collect(program: str, count: int, folder: Path, cold: bool) -> list[Pieces]:
    """The pieces of ``count`` runs, from a process whose environment has the caches in ``folder``."""
    variables = [f"{name}={folder}" for name in ("TASKFUSE_CACHE_DIR", "TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR")]
    arguments = ["--program", program, "--runs", str(count), "--folder", str(folder), *(["--cold"] if cold else [])]
    done = subprocess.run(["env", *variables, sys.executable, __file__, *arguments], stdout=subprocess.PIPE, text=True, check=True)
    return [{k: float(v) for k, v in (piece.split("=") for piece in line.split("\t"))} for line in done.stdout.splitlines() if "whole=" in line]


def stages() -> list[str]:
    """The same work in this process, stage by stage: the median of 10, with everything imported."""
    from taskfuse.cuda.nvrtc import CompileOptions, compile_cubin
    from taskfuse.cuda.source import emit

    major, minor = torch.cuda.get_device_capability()
    options = CompileOptions(arch=f"sm_{major}{minor}{'a' if major >= 9 else ''}")
    laps: list[Pieces] = []
    for _ in range(10):
        clock = Clock()
        fusion = founding.build()
        clock.lap("build and schedule")
        kernel = tf.lower(fusion)
        clock.lap("lower")
        source = emit(kernel)
        clock.lap("CUDA C++")
        compile_cubin(source.text, source.name, options)
        clock.lap("NVRTC and ptxas")
        laps.append(clock.pieces())
    return table("stages, everything imported", laps)


def table(title: str, found: list[Pieces]) -> list[str]:
    """Medians, least and greatest of each piece."""
    return [f"{title}, ms, median of {len(found)} (least to greatest):"] + [f"  {name:28} {spread([p[name] for p in found])}" for name in found[0]]


def main() -> None:
    """Measure, print and, if asked, store."""
    arguments = parser(__doc__)
    arguments.add_argument("--runs", type=int, default=20, help="processes for each of ours (default: 20)")
    arguments.add_argument("--peer-runs", type=int, default=5, help="processes for Triton and torch.compile; 0: leave them out (default: 5)")
    for name in ("--program", "--folder"):
        arguments.add_argument(name, help=argparse.SUPPRESS)
    arguments.add_argument("--cold", action="store_true", help=argparse.SUPPRESS)
    options = arguments.parse_args()
    if options.program:
        runs(options.program, options.runs, Path(options.folder), options.cold)
        return
    for package in (Path(tf.__file__).parent, Path(founding.__file__).parent):
        compileall.compile_dir(package, quiet=1)  # an installed package has its bytecode
    lines: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        lines += table("founding example, cold (aim: 150)", collect("ours", options.runs, Path(folder, "cold"), cold=True))
        lines += table("founding example, cubin in the disk cache (aim: 10)", collect("ours", options.runs, Path(folder, "warm"), cold=False))
        another = "in a process that has called another fusion, decisions, proof and cubin in the disk cache (aim: 5)"
        lines += table(f"founding example {another}", collect("later", options.runs, Path(folder, "warm"), cold=False))
        lines += table(f"softmax, product and gelu that nobody scheduled {another}", collect("unscheduled", options.runs, Path(folder, "warm"), cold=False))
        if options.peer_runs:
            lines += table("one-line Triton kernel, cold", collect("triton", options.peer_runs, Path(folder, "triton"), cold=True))
            lines += table("torch.compile of the founding example, cold", collect("torch", options.peer_runs, Path(folder, "torch"), cold=True))
    publish("first_call", lines + stages(), options)


if __name__ == "__main__":
    main()
