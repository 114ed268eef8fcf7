"""Unrolled loops with quotients and roots, computed by the steps that are exact for nearly all operands, and again by the others where one was not.

A division that rounds correctly is some multiplications and additions for most operands, and a function call for others: zeros, infinities, numbers whose
quotient is very large or small (:mod:`taskfuse.cuda.functions`). The branch between the two, one for each element, keeps the assembler from computing
neighbors side by side. A loop that can be repeated asks once for all of its elements. Where a loop also changes what it reads, as the sums of a reduction,
that part becomes a loop of its own (:func:`parted`).
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace
from math import frexp
from typing import NamedTuple

from taskfuse.cuda.hoisting import guard_around
from taskfuse.cuda.rounded import narrow_registers
from taskfuse.dtypes import float32
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.ir.medium import MEDIA
from taskfuse.ir.scalar import Const, const, sym
from taskfuse.ir.values import NATIVE
from taskfuse.kir import Kernel, accesses, bodies, map_stmts, walk, with_bodies
from taskfuse.kir.declarations import Buffer
from taskfuse.kir.nodes import Choose, Compute, For, Stmt
from taskfuse.kir.operands import Access, Immediate, IndexOf
from taskfuse.kir.products import Wgmma

Body = tuple[Stmt, ...]

MOST = 240
"""The most statements that are executed side by side."""


class _PartedBody(NamedTuple):
    """Statements of a loop that can be repeated, and those that follow them."""

    first: Body
    rest: Body


def parted(kernel: Kernel) -> Kernel:
    """A kernel of the same meaning in which what :func:`is_repeatable` finds in a loop stands in a loop of its own, before the rest of it."""
    if any(isinstance(s, Wgmma) for s in walk(kernel)):  # ptxas waits for each product where branches read accumulators
        return kernel
    made: list[Buffer] = []
    narrow = narrow_registers(kernel)
    taken = {b.name for b in kernel.buffers} | {p.name for p in kernel.params}
    buffers = {b.name: b for b in kernel.buffers}

    def part(loop: For) -> Stmt | Body:
        parts = _parts(loop, buffers)
        if not any(is_speculated(s, narrow) for s in parts.first):
            return loop
        if not parts.rest:
            return tuple(_pieces(loop))
        written = {a.buffer for s in parts.first for a in accesses(s)[0] if not buffers[a.buffer].shape}
        needed = dict.fromkeys(a.buffer for s in parts.rest for a in accesses(s)[1] if a.buffer in written)
        place = (sym(loop.var) - loop.start,)
        saves, loads = list[Stmt](), list[Stmt]()
        for name in needed:
            dtype, each = buffers[name].dtype, name
            while each in taken:
                each += "_each"
            taken.add(each)
            made.append(Buffer(each, dtype, buffers[name].memory, (loop.stop - loop.start,), dtype.itemsize))
            saves.append(Compute(Access(each, place), ELEMENTWISE["copy"], (Access(name, ()),), dtype))
            loads.append(Compute(Access(name, ()), ELEMENTWISE["copy"], (Access(each, place),), dtype))
        first, rest = (*parts.first, *saves), (*loads, *parts.rest)
        return tuple(replace(piece, body=body) for piece in _pieces(loop) for body in (first, rest))

    def at(stmt: Stmt) -> Stmt | Body:
        if not isinstance(stmt, For):
            return stmt
        guard = guard_around(stmt)  # as it is printed
        if guard is None:
            return part(stmt) if _is_copied(stmt) else stmt
        return with_bodies(guard, tuple(map_stmts(body, at) for body in bodies(guard)))

    body = map_stmts(kernel.body, at)
    return kernel if body is kernel.body else replace(kernel, body=body, buffers=(*kernel.buffers, *made))


def _pieces(loop: For) -> list[For]:
    """A loop as several, one after another, so that no more than :data:`MOST` statements are executed side by side: values of all of them are in registers."""
    assert isinstance(loop.start, Const)
    assert isinstance(loop.stop, Const)
    start, trips = loop.start.value, loop.stop.value - loop.start.value
    fits = [n for n in range(2, trips + 1) if trips % n == 0 and n * len(loop.body) <= MOST]
    each = max(fits, default=min(n for n in range(2, trips + 1) if trips % n == 0))
    return [replace(loop, start=const(k), stop=const(k + each)) for k in range(start, start + trips, each)]


def is_repeatable(loop: For, kernel: Kernel, narrow: AbstractSet[str]) -> bool:
    """True for a loop with quotients or roots (:func:`is_speculated`) whose iterations can be executed twice: they change nothing that they read."""
    if not _is_copied(loop) or not any(is_speculated(s, narrow) for s in loop.body):
        return False
    return not _parts(loop, {b.name: b for b in kernel.buffers}).rest


def is_speculated(stmt: Stmt, narrow: AbstractSet[str]) -> bool:
    """True for a function of float32 that has steps which are exact for nearly all operands, and nothing shorter: a quotient by a power of two is a product.

    Args:
        narrow: the registers of which only short numbers are made (:func:`~taskfuse.cuda.rounded.narrow_registers`).
    """
    match stmt:
        case Compute(op=op, dtype=dtype, out=out) if op.cpp.speculated is not None and dtype is float32:
            return out.buffer not in narrow and not _is_product(stmt)
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
