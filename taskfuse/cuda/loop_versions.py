"""Unrolled loops with quotients and roots, in two versions: by the steps that are exact for most operands, and by those for all.

A division that rounds correctly is some multiplications and additions for most operands, and a function call for others: zeros, infinities, numbers whose
quotient is very large or small (:mod:`taskfuse.cuda.quotients`). The branch between the two, one for each element, keeps the assembler from computing
neighbors side by side. A loop whose operands are there before it asks once, about all of them. What computes operands becomes a loop of its own in front of
it (:func:`parted`), and what changes what it reads, as the sums of a reduction, one behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import frexp
from typing import NamedTuple

from taskfuse.cuda.hoisting import guard_around
from taskfuse.cuda.rounded import ShorterForms
from taskfuse.dtypes import float32
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.ir.medium import MEDIA
from taskfuse.ir.scalar import Const, Expr, const, substitute, sym
from taskfuse.ir.values import NATIVE
from taskfuse.kir import Kernel, accesses, bodies, map_stmts, walk, with_bodies
from taskfuse.kir.declarations import Buffer
from taskfuse.kir.nodes import Choose, Compute, For, Stmt
from taskfuse.kir.operands import Access, Immediate, IndexOf, Operand
from taskfuse.kir.products import Wgmma

Body = tuple[Stmt, ...]

MOST = 240
"""The most statements that are executed side by side."""


class _PartedBody(NamedTuple):
    """Statements of a loop whose iterations need nothing of each other, and those that follow them."""

    first: Body
    rest: Body


def parted(kernel: Kernel) -> Kernel:
    """A kernel of the same meaning in which quotients and roots of neighbors stand in loops that have two versions (:func:`has_versions`)."""
    if any(isinstance(s, Wgmma) for s in walk(kernel)):  # ptxas waits for each product where branches read accumulators
        return kernel
    made: list[Buffer] = []
    shorter = ShorterForms(kernel)
    taken = {b.name for b in kernel.buffers} | {p.name for p in kernel.params}
    buffers = {b.name: b for b in kernel.buffers}

    def kept(name: str, loop: For) -> str:
        """A buffer with an element of one for each iteration."""
        each = name
        while each in taken:
            each += "_each"
        taken.add(each)
        made.append(Buffer(each, buffers[name].dtype, buffers[name].memory, (loop.stop - loop.start,), buffers[name].dtype.itemsize))
        return each

    def part(loop: For) -> Stmt | Body:
        parts = _parts(loop, buffers)
        if not any(has_usual_form(s, shorter) for s in parts.first):
            return loop
        sections = _sections(parts.first, shorter)
        if not _are_apart(sections, loop, buffers):
            return loop
        bodies = _expanded([*sections, *([parts.rest] if parts.rest else [])], loop, buffers, kept)
        return tuple(replace(piece, body=body) for piece in _pieces(loop) for body in bodies)

    def at(stmt: Stmt) -> Stmt | Body:
        if not isinstance(stmt, For):
            return stmt
        guard = guard_around(stmt)  # as it is printed
        if guard is None:
            return part(stmt) if _is_copied(stmt) else stmt
        return with_bodies(guard, tuple(map_stmts(body, at) for body in bodies(guard)))

    body = map_stmts(kernel.body, at)
    return kernel if body is kernel.body else replace(kernel, body=body, buffers=(*kernel.buffers, *made))


def _sections(body: Body, shorter: ShorterForms) -> list[Body]:
    """Statements in parts, such that no quotient or root reads what its part writes."""
    found: list[list[Stmt]] = [[]]
    written = set[str]()
    for stmt in body:
        outs, ins = accesses(stmt)
        if has_usual_form(stmt, shorter) and not written.isdisjoint(a.buffer for a in ins):
            found.append([])
            written.clear()
        found[-1].append(stmt)
        written.update(a.buffer for a in outs)
    return [tuple(part) for part in found]


def _are_apart(sections: Sequence[Body], loop: For, buffers: Mapping[str, Buffer]) -> bool:
    """True if no iteration writes an element of an array that another one accesses: all iterations of a section may precede those of the next one."""
    if len(sections) == 1:
        return True
    all_of = [a for body in sections for s in body for accessed in accesses(s) for a in accessed]
    written = {a.buffer: a for body in sections for s in body for a in accesses(s)[0] if buffers[a.buffer].shape}
    if any(a != written[a.buffer] for a in all_of if a.buffer in written):
        return False
    return all(any(_is_injective(e, loop) for e in a.index) for a in written.values())


def _is_injective(e: Expr, loop: For) -> bool:
    """True if an index differs between all iterations."""
    assert isinstance(loop.start, Const)
    assert isinstance(loop.stop, Const)
    values = [substitute(e, {loop.var: const(k)}) - substitute(e, {loop.var: loop.start}) for k in range(loop.start.value, loop.stop.value)]
    return all(isinstance(v, Const) for v in values) and len(set(values)) == len(values)


def _expanded(sections: Sequence[Body], loop: For, buffers: Mapping[str, Buffer], kept: Callable[[str, For], str]) -> list[Body]:
    """Bodies of loops, one for each section: scalars that a section reads of one before are elements of arrays there (scalar expansion)."""
    place = (sym(loop.var) - loop.start,)
    found = list[Body]()
    arrays = dict[str, str]()
    for k, section in enumerate(sections):
        own = set[str]()
        body = list[Stmt]()
        for stmt in section:
            body.append(_reading(stmt, {name: Access(each, place) for name, each in arrays.items() if name not in own}))
            own.update(a.buffer for a in accesses(stmt)[0] if a.buffer in buffers and not buffers[a.buffer].shape)
        for name in dict.fromkeys(a.buffer for later in sections[k + 1 :] for s in later for a in accesses(s)[1] if a.buffer in own):
            arrays[name] = kept(name, loop)
            body.append(Compute(Access(arrays[name], place), ELEMENTWISE["copy"], (Access(name, ()),), buffers[name].dtype))
        found.append(tuple(body))
    return found


def _reading(stmt: Stmt, arrays: Mapping[str, Access]) -> Stmt:
    """A statement that reads elements of arrays instead of scalars."""

    def moved(operand: Operand) -> Operand:
        return arrays.get(operand.buffer, operand) if isinstance(operand, Access) else operand

    match stmt:
        case Compute(operands=operands):
            return replace(stmt, operands=tuple(map(moved, operands)))
        case Choose(cases=cases):
            return replace(stmt, cases=tuple(replace(c, operand=moved(c.operand)) for c in cases))
        case _:
            return stmt


def _pieces(loop: For) -> list[For]:
    """A loop as several, one after another, so that no more than :data:`MOST` statements are executed side by side: values of all of them are in registers."""
    assert isinstance(loop.start, Const)
    assert isinstance(loop.stop, Const)
    start, trips = loop.start.value, loop.stop.value - loop.start.value
    fits = [n for n in range(2, trips + 1) if trips % n == 0 and n * len(loop.body) <= MOST]
    each = max(fits, default=min(n for n in range(2, trips + 1) if trips % n == 0))
    return [replace(loop, start=const(k), stop=const(k + each)) for k in range(start, start + trips, each)]


def has_versions(loop: For, shorter: ShorterForms) -> bool:
    """True for a loop with quotients or roots (:func:`has_usual_form`) of operands that are there before it."""
    if not _is_copied(loop):
        return False
    written = {a.buffer for s in loop.body for a in accesses(s)[0]}
    found = [s for s in loop.body if has_usual_form(s, shorter)]
    return bool(found) and written.isdisjoint(a.buffer for s in found for a in accesses(s)[1])


def has_usual_form(stmt: Stmt, shorter: ShorterForms) -> bool:
    """True for a function of float32 that has steps which are exact for most operands, and nothing shorter: a quotient by a power of two is a product."""
    match stmt:
        case Compute(op=op, dtype=dtype) if op.cpp.usual is not None and dtype is float32:
            return not shorter.has(stmt) and not _is_product(stmt)
        case _:
            return False


def divisor_of(stmt: Compute) -> float | None:
    """The last operand of a function of float32, if that is a number."""
    match stmt.operands:
        case (*_, Immediate(value=value, dtype=dtype)) if stmt.dtype is float32:
            return float(NATIVE.literal(float(NATIVE.literal(value, dtype)), float32))
        case (*_, IndexOf(value=Const(value))) if stmt.dtype is float32:
            return float(NATIVE.literal(value, float32))
        case _:
            return None


def _is_product(stmt: Compute) -> bool:
    """True for a quotient by a constant whose reciprocal is a number of float32."""
    divisor = divisor_of(stmt) if len(stmt.operands) == 2 else None
    if divisor is None:
        return False
    mantissa, exponent = frexp(divisor)
    return abs(mantissa) == 0.5 and -125 <= exponent <= 126


def _is_copied(loop: For) -> bool:
    """True for a loop that is copied for each of several values, and has no others inside."""
    match loop:
        case For(unroll=True, start=Const(start), stop=Const(stop), step=Const(1), queue=None) if stop - start > 1:
            return all(isinstance(s, Compute | Choose) for s in loop.body)
        case _:
            return False


def _parts(loop: For, buffers: Mapping[str, Buffer]) -> _PartedBody:
    """The statements that write registers of which the loop reads nothing that it has not written in the same iteration; and the others."""
    written_somewhere = {a.buffer for s in loop.body for a in accesses(s)[0]}
    first, rest = list[Stmt](), list[Stmt]()
    written = set[Access]()
    changed, touched = set[str](), set[str]()
    for stmt in loop.body:
        outs, ins = accesses(stmt)
        stays = all(a.buffer in buffers and MEDIA[buffers[a.buffer].memory].is_private and a.buffer not in touched for a in outs)
        stays = stays and all(a in written or a.buffer not in written_somewhere for a in ins) and changed.isdisjoint(a.buffer for a in ins)
        if stays:
            first.append(stmt)
            written.update(outs)
        else:
            rest.append(stmt)
            changed.update(a.buffer for a in outs)
            touched.update(a.buffer for a in (*outs, *ins))
    return _PartedBody(tuple(first), tuple(rest))
