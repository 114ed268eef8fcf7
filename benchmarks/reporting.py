"""What every GPU benchmark does: name the machine, take medians, print and store the figures."""

from __future__ import annotations

import argparse
import datetime
import re
import shlex
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

RESULTS = Path(__file__).parent / "results"
CALLS, ROUNDS = 10, 20
L2_BYTES = 64 << 20  # larger than the L2 cache of any GPU that these scripts have run on


def parser(description: str | None) -> argparse.ArgumentParser:
    """The arguments that every script takes."""
    found = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    found.add_argument("--write", action="store_true", help="store the figures in benchmarks/results")
    found.add_argument("--date", default=str(datetime.date.today()), help="date that is stored with them (default: today)")
    return found


def machine() -> str:
    """GPU, driver and CUDA version, as the driver tells them: ``NVIDIA H200, driver 580, CUDA 13.0``."""
    bindings: Any = __import__("cuda.bindings.driver", fromlist=["driver"])
    _, version = bindings.cuDriverGetVersion()
    file = Path("/proc/driver/nvidia/version")
    match = re.search(r"\s(\d{3})\.\d+", file.read_text()) if file.exists() else None
    driver = f", driver {match[1]}" if match else ""
    return f"{torch.cuda.get_device_name()}{driver}, CUDA {version // 1000}.{version % 1000 // 10}"


def publish(name: str, lines: Sequence[str], options: argparse.Namespace) -> None:
    """Print the figures, below machine, versions and the command that was given, and, if asked, store them in ``benchmarks/results/<name>.txt``."""
    python = ".".join(map(str, sys.version_info[:2]))
    command = shlex.join(["python", f"benchmarks/{Path(sys.argv[0]).name}", *sys.argv[1:]])
    head = [f"{options.date}, {machine()}, Python {python}, torch {torch.__version__}", command, ""]
    text = "\n".join([*head, *lines])
    print(text, flush=True)
    if options.write:
        (RESULTS / f"{name}.txt").write_text(text + "\n", encoding="utf-8")


def captured(call: Callable[[], object]) -> torch.cuda.CUDAGraph:
    """A graph of 10 calls."""
    for _ in range(3):
        call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(CALLS):
            call()
    graph.replay()
    torch.cuda.synchronize()
    return graph


def in_turn(calls: Sequence[Callable[[], object]]) -> list[float]:
    """Microseconds of each call: the median of 20 replays of a graph of 10, all graphs replayed in turn, so that throttling hits them alike."""
    graphs = [captured(call) for call in calls]
    times: list[list[float]] = [[] for _ in graphs]
    for _ in range(ROUNDS):
        for graph, found in zip(graphs, times, strict=True):
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            start.record()
            graph.replay()
            end.record()
            end.synchronize()
            found.append(start.elapsed_time(end) * 1e3 / CALLS)
    return [statistics.median(t) for t in times]


def gpu_median(runs: Sequence[Callable[[], object]], rounds: int = 30) -> float:
    """Median time of one of ``runs`` on the GPU, in microseconds: :func:`gpu_medians` of one list."""
    return gpu_medians([runs], rounds)[0]


def gpu_medians(lists: Sequence[Sequence[Callable[[], object]]], rounds: int = 30) -> list[float]:
    """For each list, the median time of one of its runs on the GPU, in microseconds. The lists are timed in turn, so that throttling hits them alike.

    A round enqueues all runs of a list, one after another, between two events; they should touch different memory, together more than the
    L2 cache holds. The GPU is kept busy while they are enqueued, for twice as long as that has taken at most before, so that no gap of the host is
    measured.
    """
    cycles: list[int] = []
    for runs in lists:
        for run in runs:
            run()
        torch.cuda.synchronize()
        host = 0.0
        for _ in range(3):
            begun = time.perf_counter()
            for run in runs:
                run()
            host = max(host, time.perf_counter() - begun)
            torch.cuda.synchronize()
        cycles.append(int(200_000 + max(2 * host * 2e9, 100_000 * len(runs))))  # at 2 GHz, more than any GPU so far
    found: list[list[float]] = [[] for _ in lists]
    for _ in range(rounds):
        for runs, wait, times in zip(lists, cycles, found, strict=True):
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            torch.cuda.synchronize()
            torch.cuda._sleep(wait)
            start.record()
            for run in runs:
                run()
            end.record()
            end.synchronize()
            times.append(start.elapsed_time(end) * 1e3 / len(runs))
    return [statistics.median(times) for times in found]


def spread(values: Sequence[float]) -> str:
    """Median, least and greatest."""
    return f"{statistics.median(values):8.2f}  ({min(values):.2f} to {max(values):.2f})"
