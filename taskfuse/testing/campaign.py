"""Long runs: processes check numbered cases in parallel and log their results; a stopped run resumes from the log.

:func:`parser` has the common options of the tools; :func:`run` runs a tool that counts rows in a tally.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import asdict
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from taskfuse.ir.scalar import forget

CHUNK = 4
"""Cases per work item of a process, which then forgets the expressions of their kernels."""
AHEAD = 4
"""Work items queued per process."""
CHUNKS = 100
"""Work items after which a process is replaced, to bound its memory."""
FOREVER = 1e9


class Row(Protocol):
    """The result of a case: a frozen dataclass of numbers and strings."""

    __dataclass_fields__: ClassVar[dict[str, Any]]


R = TypeVar("R", bound=Row)
S = TypeVar("S", bound=Row, contravariant=True)
T = TypeVar("T")


class Tally(Protocol[S]):
    """Counts over rows; a run prints its text at the end."""

    rows: int

    def add(self, row: S) -> bool:
        """Count a row. False if an equal row was counted before."""
        ...


def parser(tool: str, description: str, *, cases: int, seed: int = 0, what: str = "kernel") -> argparse.ArgumentParser:
    """The options of a run: number of cases, first seed, seconds, processes, and log file.

    Args:
        tool: the module's name in ``taskfuse.testing``.
        cases, seed: defaults.
        what: the subject of one line of the log.
    """
    made = argparse.ArgumentParser(prog=f"python -m taskfuse.testing.{tool}", description=description)
    made.add_argument("--cases", type=int, default=cases, metavar="N", help=f"how many cases (default: {cases})")
    made.add_argument("--seed", type=int, default=seed, metavar="S", help=f"the first seed, or that of the run (default: {seed})")
    made.add_argument("--seconds", type=float, default=FOREVER, metavar="T", help="end a run after so long")
    made.add_argument("--jobs", type=int, default=1, metavar="J", help="processes (default: 1)")
    made.add_argument("--log", type=Path, metavar="FILE", help=f"a line per {what}, as JSON")
    made.add_argument("--resume", action="store_true", help="continue after the lines of the log")
    return made


def run(
    kind: type[R],
    tally: Tally[R],
    look: Callable[[int], Sequence[R]],
    numbers: Iterable[int],
    options: argparse.Namespace,
    *,
    done: Callable[[R], int | None],
    alarm: Callable[[R], str],
    most: float = FOREVER,
) -> None:
    """Check the cases that are not in the log, count and log their rows, and print the tally.

    Args:
        look: as for :func:`look_at`; no rows if the case does not exist.
        options: of :func:`parser`.
        done: the number of a row of the log, if it belongs to this run.
        alarm: text to print immediately for a row; empty: nothing.
        most: number of rows at which the run ends.
    """
    log = Log(kind, options.log, resume=options.resume)
    for row in log.kept:
        tally.add(row)
    known = {done(row) for row in log.kept}
    start, before, empty = time.monotonic(), tally.rows, 0
    for found in look_at(look, (n for n in numbers if n not in known), options.jobs, options.seconds) if before < most else ():
        empty += not found
        for row in found:
            if not tally.add(row):
                continue
            log.add(row)
            if said := alarm(row):
                print(said, flush=True)
        if tally.rows >= most:
            break
    print(tally)
    print(f"{empty} cases more made no kernel")
    if tally.rows > before:
        print(f"{1e3 * (time.monotonic() - start) / (tally.rows - before):.1f} ms per kernel")


class Log(Generic[R]):
    """Rows in a file, one JSON line each.

    Args:
        kind: the class of the rows.
        path: the file; its folder is created. ``None``: no file.
        resume: keep the file's rows, except an incomplete last line; otherwise overwrite it.

    Attributes:
        kept: the rows of the resumed run.
    """

    def __init__(self, kind: type[R], path: Path | None, *, resume: bool) -> None:
        self.path = path
        self.kept = [*rows(kind, path)] if path is not None and resume and path.exists() else []
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("".join(map(_line, self.kept)), encoding="utf-8")

    def add(self, row: R) -> None:
        """Write a row."""
        if self.path is not None:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(_line(row))


def _line(row: Row) -> str:
    return json.dumps(asdict(row)) + "\n"


def rows(kind: type[R], path: Path) -> Iterator[R]:
    """The rows of a log, without an incomplete last line."""
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            yield kind(**json.loads(line))
        except (json.JSONDecodeError, TypeError):
            return


def look_at(look: Callable[[int], T], numbers: Iterable[int], jobs: int = 1, seconds: float = FOREVER) -> Generator[T]:
    """Yield the results of ``look`` as they arrive; with one job, in the order of the numbers.

    Args:
        look: a function that can be pickled (``functools.partial`` of a module's function).
        numbers: case numbers; may be infinite.
        jobs: number of processes; 1: this process.
        seconds: end after this time; unfinished cases are dropped.
    """
    end = time.monotonic() + seconds
    if jobs > 1:
        yield from _side_by_side(look, iter(numbers), jobs, end)
        return
    for done, number in enumerate(numbers, 1):
        if time.monotonic() >= end:
            return
        yield look(number)
        if done % CHUNK == 0:
            forget()


def _side_by_side(look: Callable[[int], T], numbers: Iterator[int], jobs: int, end: float) -> Iterator[T]:
    done: SimpleQueue[list[T] | BaseException] = SimpleQueue()
    waiting = 0
    with get_context("spawn").Pool(jobs, maxtasksperchild=CHUNKS) as pool:
        while True:
            while waiting < AHEAD * jobs and (chunk := [*islice(numbers, CHUNK)]):
                pool.apply_async(_each, (look, chunk), callback=done.put, error_callback=done.put)
                waiting += 1
            left = end - time.monotonic()
            if not waiting or left <= 0:
                return
            try:
                found = done.get(timeout=left)
            except Empty:
                return
            waiting -= 1
            if isinstance(found, BaseException):
                raise found
            yield from found


def _each(look: Callable[[int], T], numbers: Sequence[int]) -> list[T]:
    found = [look(number) for number in numbers]
    forget()
    return found
