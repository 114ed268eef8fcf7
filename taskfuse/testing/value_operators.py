"""Fault operators on values: each plants one typical mistake in a loop, a guard, the order of statements, or a declaration.

They keep the witness of the right kernel. Not every mutant is wrong. :mod:`taskfuse.testing.value_faults` reports which are, and which check finds them.
:mod:`taskfuse.testing.operand_operators` has operators on indices, operands and functions, :mod:`taskfuse.testing.tile_operators` on instructions that copy or
multiply tiles, :mod:`taskfuse.testing.lie_operators` operators that change the witness.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import combinations

from taskfuse.ir.medium import MEDIA
from taskfuse.ir.scalar import Expr, const, eq, minimum, ne, not_, substitute, sym
from taskfuse.kir import Kernel, bodies, held, map_stmts, walk, with_bodies
from taskfuse.kir.nodes import Branch, Compute, For, If, Stmt
from taskfuse.kir.operands import Content
from taskfuse.kir.products import Shuffle
from taskfuse.testing.accumulator_operators import ACCUMULATOR_OPERATORS, RESCALE_OPERATORS
from taskfuse.testing.lie_operators import LIE_OPERATORS
from taskfuse.testing.mutations import Edit, Mutants, Operator, all_bodies, at, change, inner, with_body
from taskfuse.testing.operand_operators import OPERAND_OPERATORS
from taskfuse.testing.tile_operators import TILE_OPERATORS
from taskfuse.testing.value_edits import Writer, in_writers, moved_bounds, rewritten, similar, writers

AGAIN = "again"
"""A loop variable that no kernel of the corpus uses."""

# -- loops and guards -----------------------------------------------------------------------------------------------------------------


def _computes(s: Stmt) -> bool:
    return any(isinstance(t, Writer) for t in walk(s))


def _loop(new: Callable[[For], Stmt]) -> Edit:
    return change(For, lambda s: new(s) if isinstance(s, For) and _computes(s) else None)


def _longer(s: For) -> Stmt:
    """One more iteration, which repeats the last one."""
    clamped = minimum(sym(s.var), s.stop - 1)

    def other(t: Stmt) -> Stmt:
        return rewritten(t, lambda e: substitute(e, {s.var: clamped}) if s.var in e.free else e, lies=False)

    return replace(s, stop=s.stop + 1, body=map_stmts(s.body, other))


def _first_again(s: For) -> Stmt:
    """Every iteration does the work of the first."""

    def other(t: Stmt) -> Stmt:
        return rewritten(t, lambda e: substitute(e, {s.var: s.start}) if s.var in e.free else e, lies=False)

    return replace(s, body=map_stmts(s.body, other))


def _guards(new: Callable[[If], Stmt | tuple[Stmt, ...] | None]) -> Edit:
    """Another guard around a statement that computes."""

    def change_(s: Stmt) -> Stmt | tuple[Stmt, ...] | None:
        return new(s) if isinstance(s, If) and len(s.branches) == 1 and s.branches[0].label is None and _computes(s) else None

    return change(If, change_)


def _condition(new: Callable[[Expr], Expr]) -> Edit:
    return _guards(lambda s: replace(s, branches=(Branch(new(s.branches[0].cond), s.branches[0].body),)))


def _except(lane: Expr) -> Callable[[Kernel, Writer], Iterator[Stmt]]:
    """A statement that one thread, or one block, skips."""

    def apply(kernel: Kernel, s: Writer) -> Iterator[Stmt]:
        if not isinstance(s, Shuffle):
            yield If((Branch(lane, (s,)),))

    return apply


# -- statements -----------------------------------------------------------------------------------------------------------------------


def _dropped(kernel: Kernel) -> Mutants:
    for s in writers(kernel):
        yield at(kernel, s, ())


def _repeated(kernel: Kernel) -> Mutants:
    for s in writers(kernel):
        yield at(kernel, s, (s, replace(s)))


def _looped(kernel: Kernel) -> Mutants:
    """A statement inside a loop with an unused variable: in every iteration, or in one."""
    stops = (const(2), *(sym(e.name) for e in kernel.extents[:1]))
    for s in writers(kernel):
        for stop in stops:
            yield at(kernel, s, For(AGAIN, const(0), stop, const(1), False, (s,)))
            yield at(kernel, s, For(AGAIN, const(0), stop, const(1), False, (If((Branch(eq(sym(AGAIN), 1), (s,)),)),)))


def _copied_behind(kernel: Kernel) -> Mutants:
    """A statement repeated after a later one, by some threads or blocks."""
    for body in all_bodies(kernel):
        places = [k for k, s in enumerate(body) if isinstance(inner(s), Writer) and not isinstance(inner(s), Shuffle)]
        for first, later in combinations(places, 2):
            for lane in (eq(THREAD, 0), ne(THREAD, 0), eq(sym("blockIdx.x"), 0), ne(sym("blockIdx.x"), 0)):
                copy = If((Branch(lane, (replace(body[first]),)),))
                yield with_body(kernel, body, (*body[: later + 1], copy, *body[later + 1 :]))


def _neighbors(kernel: Kernel) -> Mutants:
    """Two statements that compute, exchanged."""
    for body in all_bodies(kernel):
        for k in range(len(body) - 1):
            if all(isinstance(inner(s), Writer) for s in body[k : k + 2]):
                yield with_body(kernel, body, (*body[:k], body[k + 1], body[k], *body[k + 2 :]))


def _hoisted(kernel: Kernel) -> Mutants:
    """The last statement of a loop moved after it, and the one before a loop moved inside it."""
    for body in all_bodies(kernel):
        for k, s in enumerate(body):
            if isinstance(s, For) and s.body and isinstance(inner(s.body[-1]), Writer) and len(s.body) > 1:
                last = at_start(s.body[-1], s)
                yield with_body(kernel, body, (*body[:k], replace(s, body=s.body[:-1]), last, *body[k + 1 :]))
            if k and isinstance(s, For) and isinstance(inner(body[k - 1]), Writer):
                yield with_body(kernel, body, (*body[: k - 1], replace(s, body=(body[k - 1], *s.body)), *body[k + 1 :]))


def at_start(s: Stmt, loop: For) -> Stmt:
    """A statement with the loop's variable at its start value."""
    (new,) = map_stmts((s,), lambda t: rewritten(t, lambda e: substitute(e, {loop.var: loop.start}) if loop.var in e.free else e, lies=False))
    return new


def _starts(new: Callable[[Compute], Stmt | tuple[Stmt, ...] | None]) -> Edit:
    def apply(s: Stmt) -> Stmt | tuple[Stmt, ...] | None:
        assert isinstance(s, Compute)
        holds = held(s)
        return new(s) if holds is not None and holds.content in (Content.START, Content.ZERO) else None

    return change(Compute, apply)


def _start_inside(kernel: Kernel) -> Mutants:
    """The initialization of a reduction or scan in every iteration of its loop."""
    starts = [s for s in writers(kernel) if isinstance(s, Compute) and s.holds is not None and s.holds.content is Content.START]
    for s in starts:
        for loop in walk(kernel):
            if isinstance(loop, For) and any(isinstance(t, Compute) and t.out == s.out and t is not s for b in bodies(loop) for t in b):
                moved = map_stmts(kernel.body, lambda t, s=s, v=loop.var: _first_inside(t, s, v))
                yield replace(kernel, body=moved)


def _first_inside(t: Stmt, start: Stmt, var: str) -> Stmt | tuple[Stmt, ...]:
    if t is start:
        return ()
    return with_bodies(t, ((start, *t.body),)) if isinstance(t, For) and t.var == var else t


# -- declarations ---------------------------------------------------------------------------------------------------------------------


def _storage_dtypes(kernel: Kernel) -> Mutants:
    """A buffer of elements of another kind of the same size or less."""
    for b in kernel.buffers:
        for d in similar(b.dtype):
            if d.itemsize <= b.dtype.itemsize:
                yield replace(kernel, buffers=tuple(replace(c, dtype=d) if c is b else c for c in kernel.buffers))


def _grids(kernel: Kernel) -> Mutants:
    for k, n in enumerate(kernel.grid):
        for other in (n - 1, n + 1):
            grid = [*kernel.grid]
            grid[k] = other
            yield replace(kernel, grid=(grid[0], grid[1], grid[2]))


def _shared_places(kernel: Kernel) -> Mutants:
    """A Shared buffer at the address of another one."""
    shared = [b for b in kernel.buffers if MEDIA[b.memory].is_placed and b.offset is not None]
    for i, a in enumerate(shared):
        for b in shared[i + 1 :]:
            yield replace(kernel, buffers=tuple(replace(c, offset=a.offset) if c is b else c for c in kernel.buffers))


THREAD = sym("threadIdx.x")

VALUE_OPERATORS: tuple[Operator, ...] = (
    *OPERAND_OPERATORS,
    Operator("loop starts one later", _loop(lambda s: replace(s, start=s.start + 1))),
    Operator("loop stops one earlier", _loop(lambda s: replace(s, stop=s.stop - 1))),
    Operator("step doubled", _loop(lambda s: replace(s, step=s.step * 2))),
    Operator("last trip twice", _loop(_longer)),
    Operator("first trip each time", _loop(_first_again)),
    Operator("guard dropped", _guards(lambda s: s.branches[0].body)),
    Operator("guard too tight", _condition(moved_bounds(-1))),
    Operator("guard too wide", _condition(moved_bounds(1))),
    Operator("guard inverted", _condition(not_)),
    Operator("not by thread 1", in_writers(_except(ne(THREAD, 1)))),
    Operator("not by the last block", in_writers(_except(ne(sym("blockIdx.x"), 1)))),
    Operator("by thread 0 alone", in_writers(_except(eq(THREAD, 0)))),
    Operator("statement dropped", _dropped),
    Operator("statement twice", _repeated),
    Operator("statement in a loop of its own", _looped),
    Operator("statement again behind a later one", _copied_behind),
    Operator("statements exchanged", _neighbors),
    Operator("statement across a loop's end", _hoisted),
    Operator("start dropped", _starts(lambda _: ())),
    Operator("start inside the loop", _start_inside),
    Operator("stored in another dtype", _storage_dtypes),
    Operator("one block more or less", _grids),
    Operator("buffers at one place", _shared_places),
    *ACCUMULATOR_OPERATORS,
    *TILE_OPERATORS,
    *RESCALE_OPERATORS,
    *LIE_OPERATORS,
)
"""Every operator, with the name that reports use."""
