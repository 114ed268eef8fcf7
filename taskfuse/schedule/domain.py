"""Transforms of a domain, a list of axes, with the checks that loop and allocation domains share.

Each function edits ``domain`` in place and returns the transform that it made; on error ``domain`` is unchanged. Positions are nonnegative.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import SupportsIndex

import numpy as np

from taskfuse.errors import shown
from taskfuse.ir.axes import CLAIMED, WORK, Axis, AxisKind, Merge, Rasterize, Split, Swizzle, axis, claimed_index, joint_kind, merge_axes, split_axes
from taskfuse.ir.dims import Dim, nearest
from taskfuse.ir.scalar import Const, Expr, IntLike, const, evaluate, free_symbols, ge, prove
from taskfuse.ir.scalar.memory import remembered
from taskfuse.schedule.call import Call, constant, described, is_power_of_two

# A bijection over at most so many work items is checked point by point.
CHECKED_POINTS = 1 << 16
# Where extents are symbolic, for so many combinations of dimensions up to 2**MAX_MAGNITUDE.
SAMPLES = 24
MAX_MAGNITUDE = 13


def split(call: Call, domain: list[Axis], position: int, factor: IntLike, inner: bool) -> Split:
    """Replace an axis by the two of its split."""
    f = _integer(call, "factor", factor)
    if isinstance(f, Const) and f.value < 1:
        raise call.error(f"the factor is {f}", "a factor is at least 1")
    if not isinstance(f, Const):
        _check_known(call, "the factor", f)
        if not prove(ge(f, 1), call.tv.fusion.facts()):
            raise call.error(f"the factor {f} may be 0 or less", "declare facts about its dimensions: tf.dim(name, min=...)")
    made = split_axes(domain[position], f, inner)
    domain[position : position + 1] = made.outputs
    return made


def merge(call: Call, domain: list[Axis], outer: int, inner: int) -> Merge:
    """Replace two axes by their product, at the lower of the two positions."""
    if outer == inner:
        raise call.error(f"{described(outer, domain[outer])} is given twice")
    a, b = domain[outer], domain[inner]
    _check_kinds(call, domain, (outer, inner))
    made = merge_axes(a, b)
    first, second = sorted((outer, inner))
    del domain[second]
    domain[first] = made.result
    return made


def swizzle(call: Call, domain: list[Axis], x: int, y: int) -> Swizzle:
    """Replace two axes by their XOR swizzle, in place."""
    if x == y:
        raise call.error(f"{described(x, domain[x])} is given twice")
    for k in (x, y):
        if domain[k].kind is not AxisKind.ITERATION:
            what = "a reduction" if domain[k].is_reduction else "a foreign"
            raise call.error(f"{described(k, domain[k])} is {what} axis", "swizzle iteration axes")
    size = constant(domain[x])
    if size is None or size != constant(domain[y]) or not is_power_of_two(size):
        raise call.error(
            f"{described(x, domain[x])} and {described(y, domain[y])} do not have one constant power-of-two extent", "split them to equal extents such as 8"
        )
    made = Swizzle(domain[x], domain[y], axis(size), axis(size))
    domain[x], domain[y] = made.outputs
    return made


def permutation(call: Call, domain: list[Axis], order: dict[int, int] | Sequence[int], kind: str = "loop") -> list[int]:
    """The old positions in their new order, from ``{old: new}`` or from the full list of old positions."""
    n = len(domain)
    if not isinstance(order, dict):
        found = [call.position(a, domain, kind) for a in call.several(order, "axes")]
        if sorted(found) != list(range(n)):
            raise call.error(f"{found} is not a permutation of the {n} axes", "give each axis once, or {old: new} for those that move")
        return found
    at: dict[int, int] = {}
    for old, new in order.items():
        source, target = call.position(old, domain, kind), call.position(new, domain, kind)
        if target in at or source in at.values():
            raise call.error(f"{order} moves two axes to one place, or one to two", "give each old and each new position once")
        at[target] = source
    rest = iter(k for k in range(n) if k not in at.values())
    return [at[k] if k in at else next(rest) for k in range(n)]


def rasterize(call: Call, domain: list[Axis], positions: Sequence[int], maps: Sequence[IntLike], extent: IntLike | None) -> Rasterize:
    """Replace axes by one work axis at the lowest of their positions."""
    if not positions or len(set(positions)) != len(positions):
        raise call.error(f"axes {list(positions)} are not a set of one or more axes")
    if len(maps) != len(positions):
        raise call.error(f"there are {len(positions)} axes but {len(maps)} maps", 'give each axis one expression over tf.scalar.sym("i0")')
    sources = tuple(domain[k] for k in positions)
    _check_kinds(call, domain, positions)
    maps = [_integer(call, "map", m) for m in maps]
    for m in maps:
        _check_known(call, "the map", m, WORK, CLAIMED)
    kind = sources[0].kind
    work: Expr = const(1)
    for s in sources:
        kind = joint_kind(s, axis(1, kind))
        work = work * s.extent
    if extent is not None:
        work = _integer(call, "extent", extent)
        _check_known(call, "the extent", work)
    _check_claims(call, sources, maps)
    _check_bijection(call, sources, maps, work)
    made = Rasterize(sources, axis(work, kind), tuple(maps))
    first = min(positions)
    domain[:] = [made.result if k == first else a for k, a in enumerate(domain) if k == first or k not in positions]
    return made


def _check_claims(call: Call, sources: tuple[Axis, ...], maps: Sequence[Expr]) -> None:
    """Blocks claim the indices of one axis as they are."""
    if any(CLAIMED in m.free for m in maps) and (len(sources) != 1 or maps[0] is not claimed_index(sources[0].extent)):
        raise call.error(f"the map {maps[0]} makes something of claimed indices", "use tf.tiles.dynamic() for the axis of blocks alone")


def _integer(call: Call, what: str, value: object) -> Expr:
    """An integer or an expression as an expression."""
    match value:
        case Expr():
            return value
        case int() | SupportsIndex():  # the second alone looks at methods by name
            return const(value.__index__())
        case _:
            raise call.error(
                f"{shown(value)} is not {'an' if what[0] in 'aeiou' else 'a'} {what}", 'use an integer, or an expression such as 4*tf.scalar.sym("S")'
            )


def _check_kinds(call: Call, domain: list[Axis], positions: Sequence[int]) -> None:
    reduced = [k for k in positions if domain[k].is_reduction]
    others = [k for k in positions if domain[k].kind is AxisKind.ITERATION]
    if reduced and others:
        raise call.error(f"{described(reduced[0], domain[reduced[0]])} is a reduction axis and {described(others[0], domain[others[0]])} is not")


def _check_known(call: Call, what: str, e: Expr, *extra: str) -> None:
    fusion = call.tv.fusion
    known = set(fusion.dims) | {s for tv in fusion.inputs for x in tv.shape for s in free_symbols(x)} | set(extra)
    strange = sorted(free_symbols(e) - known)
    if strange:
        listed = ", ".join(sorted(known - {CLAIMED})) or "none"
        raise call.error(f"{what} {e} uses '{strange[0]}', which is not a dimension of the fusion", f"known are: {listed}")


def _check_bijection(call: Call, sources: tuple[Axis, ...], maps: Sequence[Expr], extent: Expr) -> None:
    """Every tile once, for sample values of the dimensions; work items other than tiles must lie beyond an extent, where a predicate stops them."""
    used = sorted({s for e in (extent, *maps, *(s.extent for s in sources)) for s in free_symbols(e)} - {WORK})
    wrong = _fault(tuple(maps), tuple(s.extent for s in sources), extent, tuple(call.tv.fusion.dims.get(name, Dim(name)) for name in used))
    if wrong is not None:
        raise call.error(*wrong)


@remembered(256)
def _fault(maps: tuple[Expr, ...], extents: tuple[Expr, ...], extent: Expr, dims: tuple[Dim, ...]) -> tuple[str, str | None] | None:
    """What is wrong with a map from work items to tiles, and perhaps what to do; ``None`` if nothing is. A search makes many schedules with the same map."""
    for values in _samples(dims):
        shape = [int(evaluate(n, values)) for n in extents]
        items = int(evaluate(extent, values))
        if max(items, int(np.prod(shape))) <= CHECKED_POINTS and (wrong := _fault_of_visits(maps, shape, items, values)) is not None:
            return wrong
    return None


def _samples(dims: Sequence[Dim]) -> Iterator[dict[str, int]]:
    """Values of the dimensions: each from a spread of magnitudes, in combinations that a fixed seed picks."""
    rng = np.random.default_rng(0)
    for _ in range(SAMPLES if dims else 1):
        found = nearest(dims, {d.name: int(2 ** rng.uniform(0, MAX_MAGNITUDE)) for d in dims})
        if found is not None:
            yield found


def _fault_of_visits(maps: Sequence[Expr], shape: Sequence[int], items: int, values: dict[str, int]) -> tuple[str, str | None] | None:
    w = np.arange(items, dtype=np.int64)
    at = f" for {', '.join(f'{name} = {value}' for name, value in values.items())}" if values else ""
    points = [np.broadcast_to(np.asarray(evaluate(m, {WORK: w, **values}), np.int64), w.shape) for m in maps]
    inside = np.ones(w.shape, bool)
    for p, n in zip(points, shape, strict=True):
        if (p < 0).any():
            return f"work item {int(w[p < 0][0])} has the index {int(p[p < 0][0])}{at}", "a tile index is at least 0"
        inside &= p < n
    linear = np.zeros(w.shape, np.int64)
    for p, n in zip(points, shape, strict=True):
        linear = linear * n + p
    visits = np.bincount(linear[inside], minlength=int(np.prod(shape)))
    if (visits != 1).any():
        tile = int(np.flatnonzero(visits != 1)[0])
        index = tuple(int(k) for k in np.unravel_index(tile, shape))
        return f"the maps are not a bijection: tile {index} is visited {int(visits[tile])} times{at}", None
    return None
