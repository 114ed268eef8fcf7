"""Statements that copy elements without conversion: vectors, gathers, asynchronous copies of threads, bulk copies; and updates."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from taskfuse.cuda import combined_updates
from taskfuse.cuda import copy_instructions as ptx
from taskfuse.cuda.c_types import literal
from taskfuse.cuda.expressions import Level, once
from taskfuse.cuda.ranges import INT32, Range
from taskfuse.cuda.text import bare
from taskfuse.cuda.writer import TextScope, Writer
from taskfuse.dtypes import int64
from taskfuse.ir.scalar import TRUE, ZERO, Facts, is_multiple, sym
from taskfuse.ir.types import MemoryType
from taskfuse.kir.clusters import ranks
from taskfuse.kir.nodes import AsyncCopy, AtomicUpdate, GatherCopy, TmaLoad, TmaStore, VectorCopy
from taskfuse.kir.operands import Access
from taskfuse.kir.variant import ArgumentLayout

ELEMENT = "vector.element"  # the symbol of an element of a vector that is copied element by element


def vector_copy(w: Writer, stmt: VectorCopy, scope: TextScope) -> None:
    """One instruction; in a variant without whole vectors, one per element."""
    dtype = w.places[stmt.out.buffer].dtype
    if all(_whole_vectors(w, a, stmt.width, scope) for a in (stmt.out, stmt.source)):
        w.call(scope, ptx.copy_vector(stmt.width * dtype.itemsize), w.address(stmt.out, scope), w.address(stmt.source, scope))
        return
    _elements(w, stmt, scope, lambda out, source, inner: f"{w.element(out, inner)} = {w.element(source, inner)};")


def guarded_store(w: Writer, condition: str, stmt: VectorCopy, scope: TextScope, source: TextScope) -> bool:
    """A vector stored from registers to Global memory under a condition, by a predicated instruction; false if there is none for it.

    Args:
        scope: the scope in which the condition is evaluated.
        source: the scope in which it holds.
    """
    out, taken = w.places[stmt.out.buffer], w.places[stmt.source.buffer]
    size = stmt.width * out.dtype.itemsize
    if out.memory is not MemoryType.Global or taken.memory is not MemoryType.Local or size not in ptx.STORED:
        return False
    if not all(_whole_vectors(w, a, stmt.width, source) for a in (stmt.out, stmt.source)):
        return False
    w.call(scope, ptx.store_vector_if(size), condition, w.address(stmt.out, source), w.address(stmt.source, source))
    return True


def gather(w: Writer, stmt: GatherCopy, scope: TextScope) -> None:
    """The values; if all are inside their extents, the elements there, otherwise zeros."""
    inner = replace(scope, depth=scope.depth + 1)
    deep = replace(scope, depth=scope.depth + 2)
    w.line(scope, "{")
    w.line(inner, f"if ({_inside(w, stmt, inner)}) {{")
    found = _found(w, stmt, deep)
    dtype = w.places[stmt.out.buffer].dtype
    if stmt.width == 1:
        w.line(deep, f"{w.element(stmt.out, deep)} = {w.element(stmt.source, found)};")
    elif all(_whole_vectors(w, a, stmt.width, found) for a in (stmt.out, stmt.source)):
        w.call(deep, ptx.copy_vector(stmt.width * dtype.itemsize), w.address(stmt.out, deep), w.address(stmt.source, found))
    else:
        _elements(w, stmt, found, lambda out, source, each: f"{w.element(out, each)} = {w.element(source, each)};")
    w.line(inner, "} else {")
    zero = literal(False if dtype.is_bool else 0, dtype)
    if stmt.width == 1:
        w.line(deep, f"{w.element(stmt.out, deep)} = {zero};")
    else:
        _elements(w, stmt, deep, lambda out, source, each: f"{w.element(out, each)} = {zero};")
    w.line(inner, "}")
    w.line(scope, "}")


def update(w: Writer, stmt: AtomicUpdate, scope: TextScope, held: str | None) -> None:
    """The values; if all are inside their extents, the update. ``held``: the variable that holds what the thread combines first, if it does."""
    if not stmt.values:
        _update(w, stmt, scope, scope, held)
        return
    inner = replace(scope, depth=scope.depth + 1)
    deep = replace(scope, depth=scope.depth + 2)
    w.line(scope, "{")
    w.line(inner, f"if ({_inside(w, stmt, inner)}) {{")
    found = _found(w, stmt, deep)
    _update(w, stmt, deep, found, held)
    w.line(inner, "}")
    w.line(scope, "}")


def _update(w: Writer, stmt: AtomicUpdate, scope: TextScope, found: TextScope, held: str | None) -> None:
    """One instruction, with the target in the scope of the values; in a variant without whole vectors, one per element."""
    dtype = w.places[stmt.out.buffer].dtype
    if stmt.width == 1 or _whole_vectors(w, stmt.out, stmt.width, found):
        arguments = w.address(stmt.out, found), *(w.element(source, scope) for source in _neighbors(stmt.source, stmt.width))
        if held is not None:
            w.call(scope, combined_updates.hold(stmt.combine, dtype, stmt.width), held, *arguments)
        else:
            makes = combined_updates.send_together if stmt.values else ptx.update
            w.call(scope, makes(stmt.combine, dtype, stmt.width), *arguments)
        return
    helper = ptx.update(stmt.combine, dtype)
    w.helpers.add(helper)
    _elements(w, stmt, found, lambda out, source, inner: f"{helper.name}({w.address(out, inner)}, {w.element(source, inner)});")


def _neighbors(first: Access, width: int) -> tuple[Access, ...]:
    """The elements of a vector."""
    return (first,) if width == 1 else tuple(Access(first.buffer, (*first.index[:-1], first.index[-1] + k)) for k in range(width))


def _inside(w: Writer, stmt: GatherCopy | AtomicUpdate, scope: TextScope) -> str:
    """The condition that all values, which are read here, are inside their extents."""
    conditions: list[str] = []
    for v in stmt.values:
        at, end = w.names.alias(f"{v.symbol} value", f"{v.symbol}_value"), scope.indices.wide_text(v.extent, Level.SHIFT)
        w.line(scope, f"long long {at} = {bare(w.operand(v.source, int64, scope))};")
        w.line(scope, f"if ({at} < 0) {at} += {end};")
        conditions.append(f"{at} >= 0 && {at} < {end}")
    return " && ".join(conditions)


def _found(w: Writer, stmt: GatherCopy | AtomicUpdate, scope: TextScope) -> TextScope:
    """The scope in which the symbols of a statement have their values."""
    indices = scope.indices
    wide = {v.symbol for v in stmt.values if indices.wide and indices.ranges.of(v.extent)[1] > INT32[1]}
    for v in stmt.values:
        ctype = "long long" if v.symbol in wide else "int"
        at = w.names.alias(f"{v.symbol} value", f"{v.symbol}_value")
        w.line(scope, f"const {ctype} {w.names[v.symbol]} = {at if v.symbol in wide else f'(int){at}'};")
    outer = indices.facts

    def facts() -> Facts:
        known = outer()
        for v in stmt.values:
            known = known.with_range(v.symbol, 0, v.extent - 1)
        return known

    ranges = indices.ranges.child({v.symbol: indices.ranges.below(v.extent) for v in stmt.values})
    return replace(scope, indices=replace(indices, ranges=ranges, wide_symbols=indices.wide_symbols | wide, facts=once(facts)))


def async_copy(w: Writer, stmt: AsyncCopy, scope: TextScope) -> None:
    """One instruction; in a variant without whole vectors, one per element, or plain stores if elements are too small for it."""
    dtype = w.places[stmt.out.buffer].dtype
    whole = stmt.width == 1 or all(_whole_vectors(w, a, stmt.width, scope) for a in (stmt.out, stmt.source))
    size = dtype.itemsize * (stmt.width if whole else 1)
    valid = () if stmt.valid is TRUE else (scope.indices.text(stmt.valid),)
    if size < ptx.LEAST_ASYNC_COPY:
        zero = literal(0, dtype)

        def store(out: Access, source: Access, inner: TextScope) -> str:
            text = w.element(source, inner)
            return f"{w.element(out, inner)} = {f'{scope.indices.text(stmt.valid, Level.OR)} ? {text} : {zero}' if valid else text};"

        _elements(w, stmt, scope, store)
        w.line(scope, "__threadfence_block();  // the thread's next asynchronous arrival publishes these, too")
        return
    helper = ptx.async_copy(size, fills=bool(valid))
    if whole:
        w.call(scope, helper, w.address(stmt.out, scope), w.address(stmt.source, scope), *valid)
        return
    w.helpers.add(helper)
    _elements(w, stmt, scope, lambda out, source, inner: f"{helper.name}({', '.join((w.address(out, inner), w.address(source, inner), *valid))});")


def _elements(w: Writer, stmt: VectorCopy | AsyncCopy | GatherCopy | AtomicUpdate, scope: TextScope, line: Callable[[Access, Access, TextScope], str]) -> None:
    """A copy element by element: ``line`` gives the text of one."""
    var = w.names.alias(ELEMENT, "e")
    each: dict[str, Range] = {ELEMENT: (0, stmt.width - 1)}
    inner = replace(scope, indices=replace(scope.indices, ranges=scope.indices.ranges.child(each)), depth=scope.depth + 1)
    out, source = (Access(a.buffer, (*a.index[:-1], a.index[-1] + sym(ELEMENT))) for a in (stmt.out, stmt.source))
    w.unroll()
    w.line(scope, f"for (int {var} = 0; {var} < {stmt.width}; ++{var}) {{")
    w.line(inner, line(out, source, inner))
    w.line(scope, "}")


def _whole_vectors(w: Writer, access: Access, width: int, scope: TextScope) -> bool:
    """True if the vector at ``access`` is contiguous and aligned in this variant."""
    match w.places[access.buffer].form:
        case ArgumentLayout.DENSE:
            return True
        case ArgumentLayout.ROWS:
            return is_multiple(access.index[-1], width, scope.indices.facts())
        case ArgumentLayout.STRIDED:
            return False


def bulk_load(w: Writer, stmt: TmaLoad, scope: TextScope) -> None:
    """A box from Global to Shared memory: of this block, or of several in the cluster. Coordinates are innermost first."""
    inner = [scope.indices.text(c) for c in reversed(stmt.coords)]
    operands = [w.address(stmt.out, scope), f"&{w.names[stmt.map]}", w.slot(stmt.barrier, scope)]
    if stmt.across:
        w.call(scope, ptx.tma_multicast(len(inner)), *operands, _mask(w, stmt, scope), *inner)
    else:
        w.call(scope, ptx.tma_load(len(inner)), *operands, *inner)


def bulk_store(w: Writer, stmt: TmaStore, scope: TextScope) -> None:
    """A box from Shared to Global memory, or one that is combined with it."""
    inner = [scope.indices.text(c) for c in reversed(stmt.coords)]
    helper = ptx.tma_store(len(inner)) if stmt.combine is None else ptx.tma_update(stmt.combine, len(inner))
    w.call(scope, helper, f"&{w.names[stmt.map]}", w.address(stmt.source, scope), *inner)


def _mask(w: Writer, stmt: TmaLoad, scope: TextScope) -> str:
    """A bit for each block that a copy reaches."""
    first, others = ranks(w.kernel.cluster, stmt.across)
    bits = sum(1 << other for other in others)
    return f"{bits:#x}" if first is ZERO else f"{bits:#x} << {scope.indices.text(first, Level.SHIFT)}"
