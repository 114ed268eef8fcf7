"""Basic blocks of a function, and the blocks that depend on a branch: those up to where both paths rejoin."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from taskfuse.testing.ptx.nodes import PtxError, PtxFunction, PtxInstruction, Symbol

ENDS = {"ret", "exit", "trap"}


@dataclass(frozen=True, slots=True)
class BasicBlock:
    """Instructions from ``first`` up to ``last``, exclusive, that are executed together.

    Attributes:
        after: the possible successors. For a conditional branch, its target comes first.
    """

    first: int
    last: int
    after: tuple[int, ...]


def blocks(function: PtxFunction) -> tuple[BasicBlock, ...]:
    """The basic blocks in the order of the text; a block past the last one stands for the end."""
    code = function.code
    starts = {0, *function.labels.values()}
    starts |= {k + 1 for k, i in enumerate(code) if i.opcode[0] == "bra" or i.opcode[0] in ENDS}
    order = sorted(s for s in starts if s < len(code))
    number = {start: k for k, start in enumerate(order)}
    end = len(order)
    found: list[BasicBlock] = []
    for k, first in enumerate(order):
        last = order[k + 1] if k + 1 < len(order) else len(code)
        i = code[last - 1]
        following = k + 1
        if i.opcode[0] == "bra":
            after = (number.get(function.labels[target(i)], end), following) if i.guard else (number.get(function.labels[target(i)], end),)
        elif i.opcode[0] in ENDS:
            after = (end, following) if i.guard else (end,)
        else:
            after = (following,)
        found.append(BasicBlock(first, last, after))
    return tuple(found)


def target(i: PtxInstruction) -> str:
    """The label that a branch jumps to."""
    match i.operands:
        case (Symbol(name),):
            return name
        case _:
            raise PtxError(i.line, "the target of a branch is not a label")


def joins(found: Sequence[BasicBlock]) -> tuple[int, ...]:
    """For each block, the nearest one on every path from it to the end; the end itself is ``len(found)``."""
    end = len(found)
    everything = (1 << end + 1) - 1
    passed = [everything] * end + [1 << end]  # of each block a bit for each that every way from it passes
    changed = True
    while changed:
        changed = False
        for k in reversed(range(end)):
            new = everything
            for n in found[k].after:
                new &= passed[n]
            new |= 1 << k
            if new != passed[k]:
                passed[k], changed = new, True
    # all others that are passed are passed from the nearest one, too
    return tuple(next((n for n in range(end + 1) if n != k and passed[n] == passed[k] & ~(1 << k)), end) for k in range(end))


def between(found: Sequence[BasicBlock], start: int, join: int) -> frozenset[int]:
    """The blocks after the branch of ``start`` and before ``join``; ``start`` itself, if a loop leads back to it."""
    seen: set[int] = set()
    stack = [n for n in found[start].after if n != join]
    while stack:
        k = stack.pop()
        if k in seen or k == len(found):
            continue
        seen.add(k)
        stack += [n for n in found[k].after if n != join]
    return frozenset(seen)
