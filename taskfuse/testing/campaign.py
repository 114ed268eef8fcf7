"""Long runs: numbered cases that processes look at side by side, and a log of what they find, after which a stopped run continues.

:func:`parser` has the options that the tools share, and :func:`run` is the run of those that count rows in a tally.
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

CHUNK = 4
"""Cases that a process is given together."""
AHEAD = 4
"""Chunks per process that are given out before they are looked at."""
CHUNKS = 100
"""Chunks after which a process is replaced, so that what it keeps in memory stays small."""
FOREVER = 1e9


class Row(Protocol):
    """A frozen dataclass of numbers and texts: what was found about a case."""

    __dataclass_fields__: ClassVar[dict[str, Any]]


R = TypeVar("R", bound=Row)
S = TypeVar("S", bound=Row, contravariant=True)
T = TypeVar("T")


class Tally(Protocol[S]):
    """Counts over rows; its text is what a run prints at its end."""

    rows: int

    def add(self, row: S) -> bool:
        """Count a row. False if it was counted before, as another case."""
        ...


def parser(tool: str, description: str, *, cases: int, seed: int = 0, what: str = "kernel") -> argparse.ArgumentParser:
    """The command line of a run: how many cases, from which seed, for how long, in how many processes, and its log.

    Args:
        tool: the module's name in ``taskfuse.testing``.
        cases, seed: defaults.
        what: a line of the log is about.
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
    """Look at cases that the log does not have, count and log their rows, and print the tally.

    Args:
        look: as for :func:`look_at`; no rows if there is no such case.
        options: of :func:`parser`.
        done: the number of a row of the log, if it is of this run.
        alarm: what is printed at once of a row; empty: nothing.
        most: rows at which the run ends.
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
    """Rows in a file, a line of JSON each.

    Args:
        kind: the class of the rows.
        path: the file, whose folder is made; ``None``: rows are kept nowhere.
        resume: keep what the file has, but for a last line cut short; otherwise it is written anew.

    Attributes:
        kept: the rows of the run that goes on.
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
    """The rows of a log; a last line cut short is left out."""
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            yield kind(**json.loads(line))
        except (json.JSONDecodeError, TypeError):
            return


def look_at(look: Callable[[int], T], numbers: Iterable[int], jobs: int = 1, seconds: float = FOREVER) -> Generator[T]:
    """What ``look`` finds about cases, as it comes: with one job in the order of the numbers.

    Args:
        look: a function that processes can be given (``functools.partial`` of one of a module).
        numbers: they may go on forever.
        jobs: processes; with 1 it is this one.
        seconds: end after so long. What is not done by then is left out.
    """
    end = time.monotonic() + seconds
    if jobs > 1:
        yield from _side_by_side(look, iter(numbers), jobs, end)
        return
    for number in numbers:
        if time.monotonic() >= end:
            return
        yield look(number)


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
    return [look(number) for number in numbers]
