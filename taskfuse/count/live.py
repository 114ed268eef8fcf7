"""The registers of a thread: the most that it holds at once of the buffers that have no addresses.

Statements that follow one another reuse registers: a buffer takes them from its first access to its last, in the order of the text, or to the end of
a loop that it was accessed before. A thread takes one arm of a branch: what only the arms of one branch access is another buffer in each of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from taskfuse.kir.nodes import For, If, Stmt
from taskfuse.kir.walk import accesses, bodies, walk


def most_at_once(body: tuple[Stmt, ...], sizes: Mapping[str, int]) -> int:
    """The greatest sum of the sizes of buffers that are in use at once; ``sizes``: by name, of all that count."""
    total = _accessed(body, sizes)
    first: dict[tuple[str, int], int] = {}
    last: dict[tuple[str, int], int] = {}
    place = 0

    def visit(stmts: tuple[Stmt, ...], arms: Mapping[str, int]) -> None:
        nonlocal place
        for stmt in stmts:
            place += 1
            begun = place
            for side in accesses(stmt):
                for key in ((a.buffer, arms.get(a.buffer, 0)) for a in side if a.buffer in sizes):
                    first.setdefault(key, place)
                    last[key] = place
            own = {name for name, n in _accessed((stmt,), sizes).items() if n == total[name]} if isinstance(stmt, If) else ()
            for inner in bodies(stmt):
                visit(inner, {**arms, **dict.fromkeys(own, place)} if own else arms)
            if isinstance(stmt, For):
                for key, seen in last.items():
                    if seen > begun > first[key]:
                        last[key] = place

    visit(body, {})
    steps = [0] * (place + 2)
    for key, begun in first.items():
        steps[begun] += sizes[key[0]]
        steps[last[key] + 1] -= sizes[key[0]]
    most = held = 0
    for step in steps:
        held += step
        most = max(most, held)
    return most


def _accessed(body: tuple[Stmt, ...], sizes: Mapping[str, int]) -> Counter[str]:
    """How often statements access each buffer that counts."""
    return Counter(a.buffer for stmt in walk(body) for side in accesses(stmt) for a in side if a.buffer in sizes)
