"""Shrink failing programs: remove calls while the failure persists."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

from taskfuse.errors import TaskfuseError
from taskfuse.testing.case import Case, program_case
from taskfuse.testing.checks import FULL, CheckError, check_case

T = TypeVar("T")


def minimize(items: tuple[T, ...], fails: Callable[[tuple[T, ...]], bool], budget: int = 400) -> tuple[T, ...]:
    """A short subsequence of ``items`` for which ``fails`` holds, as it does for ``items``.

    Halves, quarters, ... are left out while that still fails (the idea of Zeller and Hildebrandt, "Simplifying and Isolating Failure-Inducing
    Input", IEEE TSE 2002); at the end, no single item can be left out.

    Args:
        budget: most calls of ``fails``.
    """
    size = max(len(items) // 2, 1)
    while size >= 1 and budget > 0:
        shorter = None
        for candidate in _without(items, size):
            budget -= 1
            if fails(candidate):
                shorter = candidate
                break
            if budget <= 0:
                break
        if shorter is not None:
            items = shorter
            size = min(size, max(len(items) // 2, 1))
        elif size == 1:
            break
        else:
            size //= 2
    return items


def _without(items: tuple[T, ...], size: int) -> Iterator[tuple[T, ...]]:
    """``items`` without a run of ``size`` items; the last run first, because nothing depends on late items."""
    for end in range(len(items), 0, -size):
        start = max(end - size, 0)
        if end - start < len(items):
            yield items[:start] + items[end:]


def shortest(error: CheckError, budget: int = 400) -> CheckError:
    """The same failure on a case with fewer calls; ``error`` itself if there is no such case.

    Two failures are the same if they violate the same property and their root exceptions have the same type and the same message up to names and numbers.

    Args:
        budget: most programs to run.
    """
    case = error.case
    calls = len(case.math.lines)
    kind = _kind(error)
    best = error

    def fails(lines: tuple[tuple[int, str], ...]) -> bool:
        nonlocal best
        found = _failure(case, [line for _, line in lines], sum(k < calls for k, _ in lines))
        if found is None or _kind(found) != kind:
            return False
        best = found
        return True

    lines = tuple(enumerate(case.program.lines))
    if fails(lines):
        minimize(lines, fails, budget)
    return best


def _failure(case: Case, lines: list[str], calls: int) -> CheckError | None:
    """The failure of a program; ``None`` if it passes or builds no case."""
    try:
        check_case(program_case(case, lines, calls), FULL)
    except CheckError as error:
        return error
    except Exception:
        return None
    return None


def _kind(error: CheckError) -> tuple[object, ...]:
    root: BaseException = error
    while root.__cause__ is not None:
        root = root.__cause__
    said = root.message if isinstance(root, TaskfuseError) else ""
    return (error.prop, type(root), tuple(word for word in said.split() if word.isalpha()))
