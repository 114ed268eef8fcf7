"""Fault operators on accumulators, which keep the witness.

Accumulators that several statements read are reset, or receive terms a second time, before one of their readers, or behind it, where a loop around the
reader comes back to it. For rescaled ones, a factor is omitted, applied twice, late, or by some threads only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.ir.scalar import Expr, eq, ge, sym
from taskfuse.kir import Kernel, bodies, held, walk
from taskfuse.kir.nodes import Branch, Compute, For, If, Stmt
from taskfuse.kir.operands import Access, Content
from taskfuse.testing.mutations import Body, Edit, Mutants, Operator, at, change, with_body
from taskfuse.testing.value_edits import Writer, writers


def _holders(kernel: Kernel, content: Content) -> Iterator[Compute]:
    """The statements that leave such a content in an accumulator."""
    for s in writers(kernel):
        holds = held(s)
        if isinstance(s, Compute) and holds is not None and holds.content is content:
            yield s


def _readers(kernel: Kernel, buffer: str) -> Iterator[Stmt]:
    """The statements that read an accumulator into something else."""
    for s in writers(kernel):
        if isinstance(s, Compute) and s.out.buffer != buffer and any(isinstance(o, Access) and o.buffer == buffer for o in s.operands):
            yield s


Beside = Callable[[Stmt, Stmt], Body]
"""The statements in a reader's place: the reader and a change of its accumulator, in their order."""


def _before(reader: Stmt, change: Stmt) -> Body:
    return change, reader


def _behind(reader: Stmt, change: Stmt) -> Body:
    return reader, change


def _set_anew(beside: Beside) -> Edit:
    def apply(kernel: Kernel) -> Mutants:
        for start in _holders(kernel, Content.START):
            for reader in _readers(kernel, start.out.buffer):
                yield at(kernel, reader, beside(reader, start))

    return apply


def _taken_again(beside: Beside) -> Edit:
    """The innermost loop that takes terms, again."""

    def apply(kernel: Kernel) -> Mutants:
        for term in _holders(kernel, Content.TERM):
            loop = next((s for s in walk(kernel) if isinstance(s, For) and any(t is term for b in bodies(s) for t in b)), term)
            for reader in _readers(kernel, term.out.buffer):
                yield at(kernel, reader, beside(reader, loop))

    return apply


def _value_behind(kernel: Kernel) -> Mutants:
    """A register gets another tensor's element behind a reader."""
    for value in _holders(kernel, Content.VALUE):
        for reader in (s for s in _holders(kernel, Content.VALUE) if s.out.buffer != value.out.buffer):
            for o in reader.operands:
                if isinstance(o, Access) and o.buffer != value.out.buffer and any(w.out.buffer == o.buffer for w in _holders(kernel, Content.VALUE)):
                    yield at(kernel, reader, _behind(reader, replace(value, out=o)))


ACCUMULATOR_OPERATORS = (
    Operator("accumulator set anew before a reader", _set_anew(_before)),
    Operator("terms taken again before a reader", _taken_again(_before)),
    Operator("accumulator set anew behind a reader", _set_anew(_behind)),
    Operator("terms taken again behind a reader", _taken_again(_behind)),
    Operator("another element behind a reader", _value_behind),
)
"""Every operator on accumulators."""


def _rescales(s: Stmt) -> bool:
    """True for statements that rescale, and loops and guards around nothing else."""
    made = [held(t) for t in walk(s) if isinstance(t, Writer)]
    return bool(made) and all(h is not None and h.content is Content.RESCALED for h in made)


def _bodies(new: Callable[[For, Body, int], Body]) -> Edit:
    """Another body of a loop of which some statement rescales; ``new`` takes the loop, its body and the statement's place."""

    def apply(kernel: Kernel) -> Mutants:
        for s in walk(kernel):
            if isinstance(s, For):
                for k, inside in enumerate(s.body):
                    if _rescales(inside):
                        yield with_body(kernel, s.body, new(s, s.body, k))

    return apply


def _under(condition: Callable[[For], Expr]) -> Edit:
    return _bodies(lambda loop, body, k: (*body[:k], If((Branch(condition(loop), (body[k],)),)), *body[k + 1 :]))


def _divided(s: Stmt) -> Stmt | None:
    holds = held(s)
    return replace(s, op=ELEMENTWISE["div"]) if isinstance(s, Compute) and holds is not None and holds.content is Content.RESCALED else None


def _of_terms(kernel: Kernel) -> Mutants:
    """A term is taken in the place of what was summed up, and multiplied."""
    factors = [s for s in writers(kernel) if isinstance(s, Compute) and s.holds is not None and s.holds.content is Content.RESCALED]
    for s in factors:
        for k, o in enumerate(s.operands):
            if o != s.out:
                yield at(kernel, s, replace(s, operands=(*s.operands[:k], s.out, *s.operands[k + 1 :])))


RESCALE_OPERATORS: tuple[Operator, ...] = (
    Operator("rescale dropped", _bodies(lambda _, body, k: (*body[:k], *body[k + 1 :]))),
    Operator("rescale twice", _bodies(lambda _, body, k: (*body[: k + 1], replace(body[k]), *body[k + 1 :]))),
    Operator("rescale at the end of the iteration", _bodies(lambda _, body, k: (*body[:k], *body[k + 1 :], body[k]))),
    Operator("rescale but for the first iteration", _under(lambda loop: ge(sym(loop.var), 1))),
    Operator("rescale in every other iteration", _under(lambda loop: eq(sym(loop.var) % 2, 0))),
    Operator("rescale by thread 0 alone", _under(lambda _: eq(sym("threadIdx.x"), 0))),
    Operator("rescale by the reciprocal", change(Compute, _divided)),
    Operator("rescale by the sum itself", _of_terms),
)
"""Every operator, with the name that reports use."""
