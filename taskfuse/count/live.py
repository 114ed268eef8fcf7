"""The registers of a thread: the most that it holds at once of the buffers that have no addresses.

Statements that follow one another reuse registers: a buffer takes them from its first access to its last, in the order of the text, or to the end of
a loop that it was accessed before. The arms of a branch follow one another in the text, so a thread has registers of the one that needs most.
"""

from __future__ import annotations

from collections.abc import Mapping

from taskfuse.kir.nodes import For, Stmt
from taskfuse.kir.walk import accesses, bodies


def most_at_once(body: tuple[Stmt, ...], sizes: Mapping[str, int]) -> int:
    """The greatest sum of the sizes of buffers that are in use at once; ``sizes``: by name, of all that count."""
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    place = 0

    def visit(stmts: tuple[Stmt, ...]) -> None:
        nonlocal place
        for stmt in stmts:
            place += 1
            begun = place
            for side in accesses(stmt):
                for name in (a.buffer for a in side if a.buffer in sizes):
                    first.setdefault(name, place)
                    last[name] = place
            for inner in bodies(stmt):
                visit(inner)
            if isinstance(stmt, For):
                for name, seen in last.items():
                    if seen > begun > first[name]:
                        last[name] = place

    visit(body)
    steps = [0] * (place + 2)
    for name, begun in first.items():
        steps[begun] += sizes[name]
        steps[last[name] + 1] -= sizes[name]
    most = held = 0
    for step in steps:
        held += step
        most = max(most, held)
    return most
