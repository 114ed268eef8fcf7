"""Kernels that other processes schedule, prove and compile before anything runs on the GPU: what they find stays on disk, for the scripts that time many.

A script adds builders of fusions and runs ``tf.compile`` of the same fusions with the same options later, which then takes milliseconds. The processes are
forks, so this module must be used before torch touches the GPU.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any

import torch
from reporting import parser, publish

import taskfuse as tf
from taskfuse.cuda.present import present
from taskfuse.errors import TaskfuseError
from taskfuse.reports.certificate import Verdict


@dataclass(frozen=True)
class Job:
    """A fusion to compile: ``build(*arguments)``, named for lists, with the options of ``tf.compile``; by default it is for the backend ``"cuda"``."""

    name: str
    build: Callable[..., tf.Fusion]
    arguments: tuple[Any, ...] = ()
    options: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True)
class Ready:
    """What became of a job: its kernels, how many are proved for all extents, the expected time, the schedulers, and the seconds that it took."""

    kernels: int = 0
    proved: int = 0
    us: float = 0.0
    words: str = ""
    seconds: float = 0.0
    error: str = ""

    def __str__(self) -> str:
        if self.error:
            return f"{self.seconds:5.1f} s  {self.error}"
        return f"{self.seconds:5.1f} s  {self.kernels} kernels, {self.proved} proved, expected {self.us:8.1f} us  {self.words}"


def words_of(schedule: Any) -> str:
    """The schedulers of a choice, or its parameters."""
    steps = getattr(schedule, "steps", ())
    named = " + ".join(part.schedule.scheduler for step in steps for part in step.parts)
    return named or getattr(getattr(schedule, "config", None), "words", "") or getattr(schedule, "scheduler", "")


def ready(job: Job) -> Ready:
    """Compile a job as ``tf.compile`` does. An error is a result, too."""
    start = time.monotonic()
    try:
        options: dict[str, Any] = {"backend": "cuda", **dict(job.options)}
        run = tf.compile(job.build(*job.arguments), **options)
        for kernel in run.kernels:
            kernel.cubin()
    except TaskfuseError as error:
        return Ready(seconds=time.monotonic() - start, error=f"{type(error).__name__}: {str(error).splitlines()[0]}")
    proved = sum(kernel.verify().verdict is Verdict.PROVED for kernel in run.kernels)
    us = getattr(run.schedule, "us", 0.0)
    return Ready(len(run.kernels), proved, us, words_of(run.schedule), time.monotonic() - start)


class Ahead:
    """Jobs that are compiled side by side.

    Args:
        jobs: in the order in which they are needed.
        processes: how many; by default one for each processor.
    """

    def __init__(self, jobs: Iterable[Job], processes: int | None = None) -> None:
        present()  # once, for all processes
        self.pool = ProcessPoolExecutor(processes or os.cpu_count(), mp_context=multiprocessing.get_context("fork"))
        self.found: list[tuple[Job, Future[Ready]]] = [(job, self.pool.submit(ready, job)) for job in jobs]

    def wait(self) -> list[str]:
        """Lines: what became of each job."""
        lines = [f"{job.name:46} {found.result()}" for job, found in self.found]
        self.pool.shutdown()
        return lines


def part_parser(description: str | None) -> argparse.ArgumentParser:
    """The arguments of a script that measures in parts, for :func:`publish_parts`."""
    found = parser(description)
    found.add_argument("parts", nargs="*", metavar="PART", help="what to measure (default: all)")
    found.add_argument("--seconds", type=float, default=230, help="begin no part after so many")
    found.add_argument("--check", action="store_true", help="schedule, prove and compile all kernels; no GPU")
    return found


def publish_parts(
    name: str,
    parts: Mapping[str, Callable[[], list[str]]],
    jobs: Callable[[list[str]], Iterable[Job]],
    arguments: argparse.ArgumentParser,
    options: argparse.Namespace,
) -> None:
    """Compile the jobs of the parts that are asked for, measure these in turn until the time is over, print the lines and, if asked, store them.

    Args:
        name: of the script.
        parts: what measures each; its lines.
        jobs: the fusions of some parts.
        arguments: of :func:`part_parser`.
    """
    start = time.monotonic()
    asked: list[str] = options.parts or list(parts)
    if unknown := [part for part in asked if part not in parts]:
        arguments.error(f"no part {', '.join(unknown)}: the parts are {', '.join(parts)}")
    made = Ahead(jobs(asked)).wait()
    print("\n".join(line for line in made if options.check or "Error" in line), flush=True)
    print(f"{len(made)} fusions compiled in {time.monotonic() - start:.0f} s", flush=True)
    if options.check:
        return
    lines: list[str] = []
    for part in asked:
        begun = time.monotonic()
        if begun > start + options.seconds:
            lines.append(f"{part}: the time is over")
            continue
        lines += [*([""] if lines else []), *parts[part](), f"  ({part}: {time.monotonic() - begun:.0f} s)"]
        torch.cuda.empty_cache()
    publish(name, lines, options)
