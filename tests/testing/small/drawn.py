"""Kernels of one generator, and what is asked of them all."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from taskfuse.check import verify
from taskfuse.errors import TaskfuseError
from taskfuse.kir import Kernel, parse_kernel, to_text
from taskfuse.testing.chooser import Chooser, RandomChooser
from taskfuse.testing.machine import find_fault
from taskfuse.testing.refutation import look
from taskfuse.testing.small import Small
from taskfuse.testing.small.sides import Side

S = TypeVar("S", Small, Side)
STEPS = 30_000
"""Limit of loop iterations on the second machine."""


def drawn(make: Callable[[Chooser], S], count: int) -> list[S]:
    """What a generator makes of some seeds, without those that kernel IR refuses. A seed makes one kernel, and its text is that kernel."""
    found: list[S] = []
    for seed in range(count):
        try:
            one = make(RandomChooser(seed))
        except TaskfuseError:
            continue
        assert make(RandomChooser(seed)) == one
        assert parse_kernel(to_text(one.kernel)) == one.kernel
        assert all({e.name for e in one.kernel.extents} == set(sizes) for sizes in one.extents)
        found.append(one)
    assert found
    return found


def lacks(kernels: Sequence[Small | Side], *words: str) -> list[str]:
    """The words that none of the kernels has."""
    texts = [to_text(k.kernel) for k in kernels]
    return [w for w in words if not any(w in text for text in texts)]


def misjudged(sides: Sequence[Side]) -> list[str]:
    """Kernels that are proved and have a fault on the second machine, or are said to be right and have one, or to be wrong and are proved."""
    rows = [(look(0, k, side, 1), side) for k, side in enumerate(sides)]
    return [str(s.kernel) for r, s in rows if r.false_accept or (s.right is True and r.fault) or (s.right is False and r.proved)]


def without(kernel: Kernel, word: str) -> Kernel | None:
    """A kernel without its first statement that begins so; ``None`` if it has none, or is not a kernel without it."""
    lines = to_text(kernel).split("\n")
    at = next((k for k, line in enumerate(lines) if line.strip().startswith(word)), None)
    if at is None:
        return None
    head = lines[at][: len(lines[at]) - len(lines[at].lstrip())]
    try:
        return parse_kernel("\n".join([*lines[:at], head + "PASS", *lines[at + 1 :]]))
    except TaskfuseError:
        return None


def proved(kernels: Sequence[Small], count: int) -> list[Small]:
    """The first proved kernels."""
    found: list[Small] = []
    for k in kernels:
        if len(found) < count and verify(k.kernel).is_proved:
            found.append(k)
    assert found
    return found


def needless(kernels: Sequence[Small], word: str, count: int = 6) -> tuple[int, list[str]]:
    """Of the first proved kernels without their first statement that begins so: how many are not proved, and those that are, and have a fault."""
    refused, wrong = 0, list[str]()
    for k in proved(kernels, count):
        mutant = without(k.kernel, word)
        if mutant is not None and not verify(mutant).is_proved:
            refused += 1
        elif mutant is not None and find_fault(mutant, [k.extents[-1]], 2, STEPS) is not None:
            wrong.append(str(mutant))
    return refused, wrong
