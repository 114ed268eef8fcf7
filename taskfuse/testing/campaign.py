"""Long runs: numbered cases that processes look at side by side, and a log of what they find, behind which a run that was stopped goes on."""

from __future__ import annotations

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
T = TypeVar("T")


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
