"""Edits of kernel IR that make up fault operators: a statement dropped, repeated, changed or moved.

Each gives a function from a kernel to all kernels with the edit in one place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from taskfuse.kir import Kernel, bodies, map_stmts, walk, with_bodies
from taskfuse.kir.nodes import If, Stmt

Body = tuple[Stmt, ...]
Mutants = Iterator[Kernel]
Edit = Callable[[Kernel], Mutants]


@dataclass(frozen=True, slots=True)
class Operator:
    """A kind of mistake.

    Attributes:
        apply: yields the kernels that have the mistake in one place.
    """

    name: str
    apply: Edit


def at(kernel: Kernel, target: Stmt, new: Stmt | Body) -> Kernel:
    """The kernel with one statement, found by identity, replaced."""
    return replace(kernel, body=map_stmts(kernel.body, lambda s: new if s is target else s))


def drop(*kinds: type, where: Callable[[Stmt], bool] = lambda _: True) -> Edit:
    """A statement left out."""

    def apply(kernel: Kernel) -> Mutants:
        for s in walk(kernel):
            if isinstance(s, kinds) and where(s):
                yield at(kernel, s, ())

    return apply


def repeat(*kinds: type) -> Edit:
    """A statement twice."""

    def apply(kernel: Kernel) -> Mutants:
        for s in walk(kernel):
            if isinstance(s, kinds):
                yield at(kernel, s, (s, replace(s)))

    return apply


def change(kind: type | tuple[type, ...], new: Callable[[Stmt], Stmt | Body | None]) -> Edit:
    """One or more statements in place of one; ``None`` keeps it."""

    def apply(kernel: Kernel) -> Mutants:
        for s in walk(kernel):
            if isinstance(s, kind):
                made = new(s)
                if made is not None and made is not s:
                    yield at(kernel, s, made)

    return apply


def moved(first: type | tuple[type, ...], distance: int) -> Edit:
    """A statement moved past its neighbors in its block."""

    def apply(kernel: Kernel) -> Mutants:
        for body in all_bodies(kernel):
            for k, s in enumerate(body):
                j = k + distance
                if isinstance(inner(s), first) and 0 <= j < len(body):
                    rest = [*body[:k], *body[k + 1 :]]
                    yield with_body(kernel, body, tuple([*rest[:j], s, *rest[j:]]))

    return apply


def inner(s: Stmt) -> Stmt:
    """The statement inside a guard around a single statement."""
    while isinstance(s, If) and len(s.branches) == 1 and len(s.branches[0].body) == 1:
        s = s.branches[0].body[0]
    return s


def all_bodies(kernel: Kernel) -> Iterator[Body]:
    """The kernel's body and those of all statements in it."""
    yield kernel.body
    for s in walk(kernel):
        yield from bodies(s)


def with_body(kernel: Kernel, old: Body, new: Body) -> Kernel:
    """The kernel with one body, found by identity, replaced."""
    if kernel.body is old:
        return replace(kernel, body=new)

    def visit(body: Body) -> Body:
        if body is old:
            return new
        return tuple(with_bodies(s, tuple(visit(b) for b in inner)) if (inner := bodies(s)) else s for s in body)

    return replace(kernel, body=visit(kernel.body))
