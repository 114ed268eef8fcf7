"""Definitions are meaningful: at every point they read elements that exist, and an assembly has one part for each element.

If a definition read outside its operands, or assigned no part or two parts to an element, it would not determine that element, and a proof would mean
nothing. Where this is not known for all extents, the parts are counted point by point at constant extents.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod

import numpy as np
from numpy.typing import NDArray

from taskfuse.check.constraints import Constraints
from taskfuse.check.ranges import without_floor
from taskfuse.check.row_tiles import tiles_of
from taskfuse.check.statement_tree import StatementTree
from taskfuse.check.values.questions import equal, inside, proves
from taskfuse.ir.axes import iteration_point
from taskfuse.ir.scalar import FALSE, TRUE, Const, Expr, conjuncts, const, evaluate, ge, not_, substitute, sym
from taskfuse.kir import Kernel
from taskfuse.kir.operands import Access, Operand
from taskfuse.kir.witness import Accumulate, Apply, Definition, Find, Iterate, Pick, Reduce, Send, Whole
from taskfuse.reports.certificate import Layer, Obligation, Verdict

Shape = tuple[Expr, ...]
Shapes = Mapping[str, Shape]
Ints = NDArray[np.int64]
Reads = Iterator[tuple[Shape, Shape, Shape]]
"""An index, the shape that it indexes, and the conditions of the read."""
POINTS = 1 << 22
"""The most points of one definition that are counted."""


def meaningless(tree: StatementTree) -> Iterator[Obligation]:
    """Unproved demands of a kernel's definitions; none if every definition is meaningful."""
    kernel = tree.kernel
    shapes: dict[str, Shape] = {p.name: p.shape for p in kernel.inputs}
    root = tree.declared.constraints
    sent: dict[str, Definition] = {}
    for d in kernel.definitions:
        if isinstance(d.rule, Whole):
            reason = _sent(d, d.rule, sent, root) or _parts(d, _without(d.rule, sent), shapes, kernel, root)
        else:
            reason = _reads(d, kernel, shapes, root)
        if isinstance(d.rule, Send):
            sent[d.tensor] = d
        if reason:
            yield Obligation(Layer.VALUES, f"definition of {d.tensor}", Verdict.OUTSIDE, reason)
        shapes[d.tensor] = d.shape


def _point(space: Shape) -> Shape:
    """The conditions that a point exists: of one below ``max(n, 0)``, that it is below ``n``."""
    return inside(iteration_point(len(space)), tuple(map(without_floor, space)))


# -- what is read ------------------------------------------------------------------------------------------------------------------------


def _reads(d: Definition, kernel: Kernel, shapes: Shapes, root: Constraints) -> str:
    """The elements that may be read outside a tensor, as text; empty if there are none."""
    if _is_empty(d.space):
        return ""
    axes = dict(zip(iteration_point(len(d.space)), d.space, strict=True))
    for index, shape, conditions in _accesses(d, shapes):
        if all([axes.get(e) is n for e, n in zip(index, shape, strict=True)]) or any(c is FALSE for c in conditions):  # along axes of the same extents
            continue
        known = root.given(*_point(d.space), *conditions)
        wrong = [c for c in inside(index, shape) if not proves(known, c)]
        if wrong and not _counted(d, kernel, conditions, inside(index, shape)):
            return f"it is not known that {wrong[0]} at every point"
    return ""


def _is_empty(space: Shape) -> bool:
    """True for a space that has no points: an extent is constant, and not positive."""
    return any(isinstance(n, Const) and n.value <= 0 for n in space)


def _accesses(d: Definition, shapes: Shapes) -> Reads:
    match d.rule:
        case Apply(operands=operands):
            yield from _each(operands, shapes, ())
        case Reduce(operands=operands) | Iterate(operands=operands):
            yield from _each(operands, shapes, ())
            yield d.place, d.shape, ()
        case Accumulate(operand=operand):
            yield from _each((operand,), shapes, ())
        case Pick(cases=cases):
            before: Shape = ()
            for case in cases:
                yield from _each((case.operand,), shapes, (*before, *conjuncts(case.cond)))
                before = (*before, not_(case.cond))
        case Find(source=source, values=values, extents=extents):
            yield from _each(values, shapes, ())
            if not _is_empty(extents):
                yield from _each((source,), shapes, inside(tuple(sym(f"v{k}") for k in range(len(extents))), extents))
        case Send(operand=operand, values=values):
            yield from _each((operand, *values), shapes, ())
        case Whole():
            pass


def _each(operands: tuple[Operand, ...], shapes: Shapes, conditions: Shape) -> Reads:
    for o in operands:
        if isinstance(o, Access):
            yield o.index, shapes[o.buffer], conditions


def _counted(d: Definition, kernel: Kernel, conditions: Shape, wanted: Shape) -> bool:
    """True only if conditions hold at every point, by enumeration."""
    space = _numbers(d.space, kernel)
    symbols = {s for c in (*conditions, *wanted) for s in c.free}
    if space is None or not symbols <= {f"i{k}" for k in range(len(space))}:
        return False
    env = _points(space)
    chosen = np.ones(prod(space), np.bool_)
    try:
        for c in conditions:
            chosen &= np.broadcast_to(np.asarray(evaluate(c, env), np.bool_), chosen.shape)
        env = {name: values[chosen] for name, values in env.items()}
        return all(bool(np.all(evaluate(c, env))) for c in wanted)
    except (ZeroDivisionError, IndexError):
        return False


def _numbers(shape: Shape, kernel: Kernel) -> tuple[int, ...] | None:
    """A shape of constants, whose points are enumerated; ``None`` for any other shape."""
    numbers = tuple(e.value for e in shape if isinstance(e, Const))
    return numbers if not kernel.extents and len(numbers) == len(shape) and prod(numbers) <= POINTS else None


def _points(space: tuple[int, ...]) -> dict[str, Ints]:
    return {f"i{k}": axis.reshape(-1) for k, axis in enumerate(np.indices(space, np.int64))}


# -- what is sent -------------------------------------------------------------------------------------------------------------------------


def _sent(d: Definition, rule: Whole, sent: dict[str, Definition], root: Constraints) -> str:
    """Why the parts that are sent to a tensor may mean nothing; empty if they mean something."""
    combines: set[str] = set()
    for part, place, condition in zip(rule.parts, rule.places, rule.conditions, strict=True):
        own = sent.get(part)
        if own is None or not isinstance(own.rule, Send):
            if combines:
                return f"{part} stands behind what is sent to it, which is combined with its elements"
            continue
        if own.dtype is not d.dtype:
            return f"{part} has elements of {own.dtype}, and is sent to elements of {d.dtype}"
        combines.add(own.rule.combine.name)
        names = tuple(sym(f"v{k}") for k in range(len(own.rule.values)))
        if not condition.free.isdisjoint(e.name for e in names):
            return f"data says which points of {part} are sent: {condition}"
        values = inside(names, own.rule.extents)
        known = root.given(*_point(own.shape), *values, *conjuncts(condition))
        wrong = next((c for c in inside(place, d.shape) if not proves(known, c)), None)
        if wrong is not None:
            return f"{part} may be sent outside: it is not known that {wrong}"
    if len(combines) > 1:
        return f"its elements are combined by {' and by '.join(sorted(combines))}, in no order"
    return ""


def _without(rule: Whole, sent: Mapping[str, Definition]) -> Whole:
    """The parts that are not sent."""
    kept = [found for found in zip(rule.parts, rule.places, rule.conditions, strict=True) if found[0] not in sent]
    return Whole(tuple(part for part, _, _ in kept), tuple(place for _, place, _ in kept), tuple(condition for _, _, condition in kept))


# -- what is made of parts ---------------------------------------------------------------------------------------------------------------


def _parts(d: Definition, rule: Whole, shapes: Shapes, kernel: Kernel, root: Constraints) -> str:
    """Why an element may have no part, or several; empty if each has one."""
    if any(c is not TRUE for c in rule.conditions):
        return "" if tiles_of(kernel, d, kernel.definitions) is not None else "it is not known that each element belongs to one part"
    boxes = [_box(place, shapes[part], root) for part, place in zip(rule.parts, rule.places, strict=True)]
    if None not in boxes and _tile([b for b in boxes if b is not None], d.shape, root):
        return ""
    sizes = [_whole_numbers(shapes[part]) for part in rule.parts]
    shape = _whole_numbers(d.shape)
    names = {name for place in rule.places for e in place for name in e.free}
    if shape is None or prod(shape) > POINTS or None in sizes or not names <= {f"i{k}" for part in rule.parts for k in range(len(shapes[part]))}:
        return "it is not known that each element belongs to one part"
    times = np.zeros(shape, np.int64)
    for size, place in zip(sizes, rule.places, strict=True):
        assert size is not None
        env = _points(size)
        at = tuple(np.broadcast_to(np.asarray(evaluate(e, env), np.int64), (prod(size),)) for e in place)
        if any(a.size and (a.min() < 0 or a.max() >= n) for a, n in zip(at, shape, strict=True)):
            return "a part lies outside"
        np.add.at(times, at, 1)
    if (times == 1).all():
        return ""
    wrong = tuple(int(i) for i in np.argwhere(times != 1)[0])
    return f"element {list(wrong)} belongs to {int(times[wrong])} parts"


def _whole_numbers(shape: Shape) -> tuple[int, ...] | None:
    numbers = tuple(e.value for e in shape if isinstance(e, Const))
    return numbers if len(numbers) == len(shape) else None


def _box(place: Shape, shape: Shape, root: Constraints) -> list[tuple[Expr, Expr]] | None:
    """Where a part begins and ends along each axis, if it lies as it is: each of its axes along one, in order or not; ``None`` if it does not."""
    found: list[tuple[Expr, Expr]] = []
    own = {f"i{k}": n for k, n in enumerate(shape)}
    left = dict(own)
    for e in place:
        mine = [name for name in e.free if name in own]
        if not mine:
            found.append((e, e + 1))
            continue
        start = substitute(e, {mine[0]: const(0)})
        if len(mine) > 1 or mine[0] not in left or e - sym(mine[0]) is not start:
            return None
        found.append((start, start + left.pop(mine[0])))
    return found if all(n is const(1) or equal(root, n, const(1)) for n in left.values()) else None


def _tile(boxes: list[list[tuple[Expr, Expr]]], shape: Shape, root: Constraints) -> bool:
    """True only if boxes follow each other along one axis, from its start to its end, and are as long as the whole along all others."""
    for axis in range(len(shape)):
        others = [k for k in range(len(shape)) if k != axis]
        if not all(equal(root, box[k][0], const(0)) and equal(root, box[k][1], shape[k]) for box in boxes for k in others):
            continue
        left, end = list(boxes), const(0)
        while left:
            following = next((b for b in left if equal(root, b[axis][0], end)), None)
            if following is None or not proves(root, ge(following[axis][1], end)):
                break
            left.remove(following)
            end = following[axis][1]
        if not left and equal(root, end, shape[axis]):
            return True
    return False
