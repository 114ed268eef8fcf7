"""``tf.schedulers.windows``: reductions over overlapping windows: depthwise convolutions and pooling of tensors whose last axis has no windows.

    result    [others, row block, tile block, lane block: blocks | row, lane: threads | rest of a window, serial | windows of a tile, places: unrolled]
    elements  [the same blocks and threads | rest of a window | elements of the tile's windows, unrolled]: in registers, each element once
    factors   [the same blocks | elements over all threads]: what all rows and tiles read alike, such as weights, in Shared memory

Lanes are neighbors along the last axis. A thread computes a tile of windows along another axis, which overlap: it loads their elements once
(:meth:`~taskfuse.ir.tensor.TensorView.tile_windows`). Rows of a block, along an axis of windows too or along the tiles, share what they read through the cache.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import ceil, prod
from typing import ClassVar

from taskfuse.errors import UnsupportedError
from taskfuse.ir.axes import Axis, iteration_position, iteration_symbol
from taskfuse.ir.expr import FirstValid, Pointwise, Read, Reduction, View, is_copy
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.identity import among
from taskfuse.ir.scalar import ONE, TRUE, Const, Expr, ge, prove
from taskfuse.ir.storage import needed, producers, resolve, storage_reads, storage_uses
from taskfuse.ir.tensor import TensorView
from taskfuse.ir.types import MemoryType
from taskfuse.ir.types import ParallelType as P
from taskfuse.schedule import layouts
from taskfuse.schedule.copy import copy_fusion
from taskfuse.schedule.drop_axes import free_axes
from taskfuse.schedule.keys import Keys
from taskfuse.schedule.tile_windows import windowed_read, windows_of
from taskfuse.schedulers.elementwise import Leaf, is_permuted, recompute_all, reduce_where_read, stored, vector_fits
from taskfuse.schedulers.instructions import cost
from taskfuse.schedulers.parameters import Parameters
from taskfuse.schedulers.schedule import Chosen, Offer, Option, Sizes, check_call, refuse, tries_parameters
from taskfuse.schedulers.script import Script, Spelled
from taskfuse.target import DEFAULT, VECTOR_BYTES, WARP, Target

THREADS = 256
MOST_CODE = 512
"""Most terms of a thread that are unrolled: longer code misses the instruction cache."""
MOST_PLACES = 256
"""Most places of a window."""
MOST_SHARED = 24 << 10
"""Most bytes of a factor that a block has in Shared memory: several blocks share a multiprocessor."""
ELEMENT = 4.5
"""Instructions for an element of a tile: whether it is padding, the load, the choice, its conversion (counted in the machine code)."""
VECTOR, OF_VECTOR = 2.5, 1.5
"""Instructions for a vector of a tile: whether it is padding, the load; and for each of its elements: the choice, its conversion."""
MOST_REGISTERS = 56
"""The most registers for the elements of a tile, as vectors are loaded, and its results: each element is there again as it is multiplied."""
FACTOR = 2.0
"""Instructions for an element of a factor: the load and its conversion."""


@dataclass(frozen=True, slots=True)
class WindowsConfig(Parameters):
    """The parameters of a reduction over windows.

    Attributes:
        tile: windows of a thread.
        lanes: threads along the last axis.
        rows: threads along the axis of rows.
        vector: elements along the channels of a window that a thread loads at once.
    """

    LEAST: ClassVar[Mapping[str, int]] = {"tile": 2}
    POWERS: ClassVar[frozenset[str]] = frozenset(("vector",))

    tile: int
    lanes: int = WARP
    rows: int = 8
    vector: int = 1

    def __post_init__(self) -> None:
        self.check_fields()
        self.check_threads(self.lanes * self.rows, f"{self.lanes} x {self.rows} threads")

    @property
    def words(self) -> str:
        """The parameters as readable text."""
        vectors = f", vectors of {self.vector} channels" if self.vector > 1 else ""
        return f"tiles of {self.tile} windows for each thread{vectors}, blocks of {self.lanes} x {self.rows} threads"


@dataclass(frozen=True, slots=True, eq=False)
class _Problem:
    """A reduction over windows, all of whose reads are at its own axes. Axes have the numbers of the outputs' axes; then come those that are reduced.

    Attributes:
        result: the reduction.
        windows: the tensor of windows that it reads.
        extents: of all axes.
        places_of: by the axes of ``windows``, what these are.
        axis: the axis of windows that is tiled.
        places: the axis of their places.
        stride, span: elements from one window to the next, and from the first to the last one of a window.
        rows: the axis of the rows of a block: one with windows of its own, or else that before ``axis``, or ``axis`` itself.
        kept: how many axes are not reduced.
        channel: the axis of the channels of a window, if neighbors along it are neighbors in memory; ``None``: windows have none.
        vector: the most channels that are one access.
        columns: the first of those that lanes share: the last one, with those before it while they are short, such as channels of a group and groups.
        factors: inputs of which all windows of a tile read the same, and nothing but the reduction; and whether a block takes them from Shared memory.
    """

    result: TensorView
    windows: TensorView
    extents: tuple[Expr, ...]
    places_of: tuple[int, ...]
    axis: int
    places: int
    stride: int
    span: int
    rows: int
    kept: int
    columns: int
    channel: int | None
    vector: int
    factors: Mapping[TensorView, bool]

    @property
    def loops(self) -> int:
        """Loops over blocks: those of all axes before the columns, and of these together."""
        return self.columns + 1


@tries_parameters
def windows(fusion: Fusion, config: WindowsConfig | None = None, *, sizes: Mapping[str, int] | None = None, target: Target = DEFAULT) -> Chosen[WindowsConfig]:
    """Schedule one reduction over overlapping windows of an input, and elementwise functions of it.

    Args:
        fusion: it is changed.
        config: the parameters; ``None``: the fastest by the cost model.
        sizes: values of the fusion's dimensions for the cost model.

    Raises:
        UnsupportedError: the fusion is not of that kind, or has a schedule.
    """
    check_call(fusion, "windows", config, WindowsConfig)
    extent = Sizes(fusion, sizes, target)
    trial = copy_fusion(fusion)[0]
    _settle(Script(trial), extent)
    _find(trial)
    script = Script(fusion)
    script.comment("each tensor at the points of what reads it")
    _settle(script, extent)
    problem = _find(fusion)
    options = _options(problem, extent)
    chosen = options[0] if config is None else _option(problem, config, extent)
    if (terms := chosen.config.tile * extent(problem.extents[problem.places])) > MOST_CODE:
        raise chosen.config.error(f"tiles of {chosen.config.tile} windows have {terms} terms to unroll", f"use tiles of up to {MOST_CODE} terms")
    size = " x ".join(str(extent(e)) for e in problem.extents)
    _schedule(script, problem, chosen.config)
    return Chosen("windows", f"of {size}", chosen, tuple(options), config is not None, script.text)


def offer(fusion: Fusion, *, sizes: Mapping[str, int] | None = None, target: Target = DEFAULT) -> Offer:
    """The offer of :func:`windows`.

    Raises:
        UnsupportedError: see :func:`windows`.
    """
    check_call(fusion, "windows", None, WindowsConfig)
    reductions = [e for e in needed(fusion) if isinstance(e, Reduction)]
    if not any(windowed_read(fusion.definition(tv)) for tv in fusion.tensors()) and not (len(reductions) == 1 and _overlapping(fusion, reductions[0])):
        raise _refused(fusion, "it has no windows")
    lasting = [e for e in reductions if any(a.is_reduction and a.extent is not ONE for a in e.output.root)]  # the others may become elementwise
    if not reductions or len(lasting) > 1:
        raise _refused(fusion, f"it has {len(lasting)} reductions, not one")
    trial = copy_fusion(fusion)[0]
    extent = Sizes(fusion, sizes, target)
    _settle(Script(trial), extent)
    return Offer(_options(_find(trial), extent)[0].us, partial(windows, sizes=sizes, target=target))


# -- the problem ------------------------------------------------------------------------------------------------------------------------


def _settle(script: Script, extent: Sizes) -> None:
    """Have everything read at the reader's own points: a reduction, too, if that takes no more points, as where groups of channels become one axis; and what
    it reads, windows with all of its axes, even if these have the same elements for several channels of a group, and copies of inputs."""
    fusion = script.fusion
    recompute_all(script, fusion, is_permuted)
    if reduce_where_read(script, extent):
        recompute_all(script, fusion, is_permuted)
    reductions = [e for e in needed(fusion) if isinstance(e, Reduction)]
    windows = [r for e in reductions for r in storage_reads(fusion, e) if windows_of(fusion, r.tensor)]
    if len(reductions) == 1 and not windows:
        for read in _overlapping(fusion, reductions[0]):
            script.recompute(read.tensor, [reductions[0].output])
        return
    if len(reductions) != 1 or len(windows) != 1 or len(windows[0].index) == len(reductions[0].output.root):
        return
    (expr,), tv = reductions, reductions[0].output
    for read in storage_reads(fusion, expr):
        if read.tensor is windows[0].tensor:
            script.recompute(read.tensor, [tv])
        elif read.tensor.is_input and not is_permuted(read, tv):
            (copy,) = script.recompute(read.tensor, [tv])
            definition = fusion.definition(copy)
            if definition is not None and free_axes(fusion, definition):
                script.new(copy, "drop_axes")


def _overlapping(fusion: Fusion, expr: Reduction) -> list[Read]:
    """The inputs of which a reduction reads elements of windows where they lie, without a view between: an index has a kept axis and a reduced one."""
    symbols = [(iteration_symbol(k).free, a.is_reduction) for k, a in enumerate(expr.output.root)]

    def is_windows(index: Expr) -> bool:
        return {is_reduced for names, is_reduced in symbols if names & index.free} == {True, False}

    return [r for r in storage_reads(fusion, expr) if r.tensor.is_input and any(map(is_windows, r.index))]


def _find(fusion: Fusion) -> _Problem:
    """The problem of a fusion in which everything is read at the reader's own points. Raises :class:`UnsupportedError`."""
    reductions = [e for e in needed(fusion) if isinstance(e, Reduction)]
    if len(reductions) != 1:
        raise _refused(fusion, f"it has {len(reductions)} reductions, not one")
    (expr,) = reductions
    tv = expr.output
    kept = [a for a in tv.root if not a.is_reduction]
    summed = [a.extent for a in tv.root if a.is_reduction]
    if expr.rescaled is not None or not expr.is_whole or list(tv.root[: len(kept)]) != kept or len(kept) < 2:
        raise _refused(fusion, f"{tv.name} does not keep its first axes, two or more")
    if not all(isinstance(e, Const) for e in summed) or prod(int(e) for e in summed) > MOST_PLACES:
        raise _refused(fusion, f"{tv.name} sums over more than {MOST_PLACES} elements, or over how many is not known")
    for e in needed(fusion):
        if e is not expr and not isinstance(e, Pointwise | FirstValid | View):
            raise _refused(fusion, f"{e.output.name} is not elementwise")
    for use in storage_uses(fusion, tv):
        if not all(is_permuted(r, use.output) for r in storage_reads(fusion, use) if r.tensor is tv):
            raise _refused(fusion, f"{use.output.name} reads {tv.name} at other points")
    keys = Keys(fusion)
    orders = {tuple(_place(keys, a, out) for a in kept) for out in stored(fusion)}
    order = next(iter(orders))
    if len(orders) > 1 or sorted(order) != list(range(len(kept))) or any(out.ndim != len(kept) for out in stored(fusion)):
        raise _refused(fusion, f"the outputs have not the axes of {tv.name}, in one order")
    problem = _problem(fusion, expr, order)
    lacking = [*problem.factors, *(e.output for e in needed(fusion) if isinstance(e, Pointwise) and e.output.ndim < len(kept))]
    empty = next((e for e in problem.extents[: len(kept)] if not prove(ge(e, 1), fusion.facts())), None)
    if lacking and empty is not None:
        reason = f"{lacking[0].name} would be read in loops over all axes of {tv.name}, of which one may have no elements: {empty} may be 0"
        raise refuse(fusion, "windows", reason, "declare the extent with tf.dim(..., min=1)")
    return problem


def _place(keys: Keys, a: Axis, out: TensorView) -> int:
    """The axis of an output that an axis of the reduction becomes; -1: none, or it is not clear which."""
    found = [k for k, own in enumerate(out.root) if keys.equal(a, own)]
    return found[0] if len(found) == 1 else -1


def _problem(fusion: Fusion, expr: Reduction, order: tuple[int, ...]) -> _Problem:
    tv, kept = expr.output, len(order)
    place = [*order, *range(kept, len(tv.root))]
    for operand in expr.operands:
        if not isinstance(operand, Read):
            continue
        own = operand.tensor
        read = windowed_read(fusion.definition(own))
        places_of = tuple(place[p] for e in operand.index if (p := iteration_position(e)) is not None)
        if read is None or operand.valid is not TRUE or len(storage_uses(fusion, own)) > 1 or sorted(places_of) != list(range(len(tv.root))):
            continue
        found = {places_of[w.windows]: w for w in windows_of(fusion, own) if places_of[w.windows] < kept - 1 and places_of[w.places] >= kept}
        if not found:
            continue
        if not all(_is_given(fusion, resolve(fusion, o).tensor) for o in (read, *expr.operands) if isinstance(o, Read) and o is not operand):
            raise _refused(fusion, f"{tv.name} reads what is computed")
        overlapping = {k: w for k, w in found.items() if (w.length - 1) * w.step + 1 > w.stride}
        if not overlapping:
            raise _refused(fusion, f"the windows of {own.name} do not overlap")
        axis = max(overlapping)
        w = overlapping[axis]
        span = (w.length - 1) * w.step + 1
        rows = max((k for k in found if k < axis), default=max(axis - 1, 0))
        free = {place[p]: iteration_symbol(p).free if tv.root[p].extent is not ONE else frozenset[str]() for p in range(kept)}
        shape = {place[p]: a.extent for p, a in enumerate(tv.root)}
        extents = tuple(shape[p] for p in range(len(tv.root)))
        columns = _first_column(extents[:kept], axis)
        factors = _factors(fusion, expr, operand, free, axis, columns)
        return _Problem(
            tv, own, extents, places_of, axis, places_of[w.places], w.stride, span, rows, kept, columns, *_channels(fusion, own, places_of, kept), factors
        )
    raise _refused(fusion, f"{tv.name} reads no windows of an input along another axis than the last one of the outputs")


def _is_given(fusion: Fusion, tv: TensorView) -> bool:
    """Whether a tensor is an input, or a copy of elements of one."""
    expr = fusion.definition(tv)
    return expr is None or (is_copy(expr) and all(producer.is_input for producer in producers(fusion, tv)))


def _channels(fusion: Fusion, windows: TensorView, places_of: Sequence[int], kept: int) -> tuple[int | None, int]:
    """The axis of the channels of windows, and how many are one access."""
    read = windowed_read(fusion.definition(windows))
    assert read is not None
    for k, a in enumerate(windows.root):
        if places_of[k] >= kept and isinstance(a.extent, Const) and read.index and iteration_symbol(k).free & read.index[-1].free:
            leaf, width = Leaf(windows, (read,), True), VECTOR_BYTES // windows.dtype.itemsize
            while width > 1 and not (a.extent.value % width == 0 and vector_fits(fusion, leaf, width, k)):
                width //= 2
            return places_of[k], width
    return None, 1


def _first_column(extents: Sequence[Expr], axis: int) -> int:
    """The first of the axes that lanes share, after the axis of windows."""
    position, columns = len(extents) - 1, extents[-1]
    while position - 1 > axis and isinstance(columns, Const) and columns.value < WARP and isinstance(extents[position - 1], Const):
        position -= 1
        columns = extents[position] * columns
    return position


def _factors(fusion: Fusion, expr: Reduction, windows: Read, own: Mapping[int, frozenset[str]], axis: int, columns: int) -> dict[TensorView, bool]:
    """The inputs that only the reduction reads, and no window of a tile for itself; and whether all rows and tiles, but not all lanes, read the same of them.

    Args:
        own: the symbols of the axes of the outputs.
    """
    found: dict[TensorView, bool] = {}
    for operand in expr.operands:
        if not isinstance(operand, Read) or operand is windows:
            continue
        read = resolve(fusion, operand)
        free = frozenset[str]().union(*(e.free for e in read.index))
        if read.valid is not TRUE or len(storage_uses(fusion, read.tensor)) > 1 or own[axis] & free:
            continue
        size = WARP * prod(int(a.extent) for a in expr.output.root if a.is_reduction) * read.tensor.dtype.itemsize
        is_alike = not any(own[k] & free for k in range(columns))
        found[read.tensor] = size <= MOST_SHARED and is_alike and any(own[k] & free for k in range(columns, len(own)))
    return found


def _refused(fusion: Fusion, reason: str) -> UnsupportedError:
    return refuse(fusion, "windows", reason, "tf.schedulers.auto asks other schedulers")


# -- the parameters ---------------------------------------------------------------------------------------------------------------------


def _options(p: _Problem, extent: Sizes) -> list[Option[WindowsConfig]]:
    """All parameters with their estimates, the fastest first."""
    shape = [extent(e) for e in p.extents]
    last, length = prod(shape[p.columns : p.kept]), shape[p.places]
    even = max((n for n in range(1, 2 * WARP + 1) if last % n == 0), default=WARP)  # no lane is idle, whichever rows a warp has
    found: list[Option[WindowsConfig]] = []
    for tile in range(2, max(2, min(shape[p.axis], MOST_CODE // length, 32)) + 1):
        if tile > 2 and ceil(shape[p.axis] / tile) == ceil(shape[p.axis] / (tile - 1)):
            continue  # as many tiles as with shorter ones
        many = ceil(shape[p.axis] / tile) if p.rows == p.axis else shape[p.rows]
        for lanes in (WARP, even) if even != WARP and (2 * even > WARP or even == last) else (WARP,):
            rows = min(THREADS // lanes, many)
            rows = max((r for r in range(1, rows + 1) if 2 * r >= rows and many % r == 0), default=rows)
            for vector in (1 << k for k in range(p.vector.bit_length())):
                if vector == 1 or (tile * length * vector <= MOST_CODE and _registers(p, tile, vector) <= MOST_REGISTERS):
                    found.append(_option(p, WindowsConfig(tile, lanes, rows, vector), extent))
    return sorted(found, key=lambda option: option.us)


def _registers(p: _Problem, tile: int, vector: int) -> int:
    """Registers for the elements of a tile, as they are loaded, and for its results."""
    reach = (tile - 1) * p.stride + p.span
    return reach * ceil(vector * p.windows.dtype.itemsize / 4) + tile


def _option(p: _Problem, c: WindowsConfig, extent: Sizes) -> Option[WindowsConfig]:
    fusion, target = p.result.fusion, extent.target
    shape = [extent(e) for e in p.extents]
    tiles = ceil(shape[p.axis] / c.tile)
    expr = fusion.definition(p.result)
    assert isinstance(expr, Reduction)
    threads = prod(shape[k] for k in range(p.columns) if k != p.axis) * tiles * ceil(prod(shape[p.columns : p.kept]) / c.lanes) * c.lanes
    steps = prod(shape[p.kept :]) // shape[p.places] // c.vector
    terms = c.tile * shape[p.places]
    reach = (c.tile - 1) * p.stride + p.span
    loads = reach * (ELEMENT if c.vector == 1 else VECTOR + OF_VECTOR * c.vector)
    each = terms * max(1, len(expr.operands) - 1) * c.vector + loads + FACTOR * shape[p.places] * c.vector * len(p.factors)
    others = sum(cost(e) for e in needed(fusion) if e is not expr and isinstance(e, Pointwise) and e.output not in p.factors)
    busy = target.issue_us(threads * (steps * each + c.tile * others))
    moved = sum(extent.elements(tv) * tv.dtype.itemsize for tv in (*fusion.inputs, *stored(fusion)))
    return Option(c, target.kernel_us(busy, target.dram_us(float(moved))), block=(c.lanes, c.rows, 1))


# -- the schedule -----------------------------------------------------------------------------------------------------------------------


def _schedule(script: Script, p: _Problem, c: WindowsConfig) -> None:
    fusion, kept = script.fusion, p.loops
    script.comment("the elements of a tile's windows once, in registers; what all tiles read alike in Shared memory")
    elements = script.new(p.windows, "tile_windows", p.places_of.index(p.axis), c.tile)
    result = p.result
    acc = script.new(result, "cache_fork" if result.uses else "cache_before") if result.is_output else result
    shared = [script.new(tv, "cache_after") if tv.is_input else tv for tv, is_shared in p.factors.items() if is_shared]
    direct = [tv for tv, is_shared in p.factors.items() if not is_shared]
    outputs = stored(fusion)
    script.comment("[others, row block, tile block, lane block: blocks | row, lane: threads | rest of the window | windows of a tile, places]")
    between = _between(fusion, acc, [elements, *shared, *direct])
    for out in outputs:
        _loops(script, out, p, c)
        _propagate(script, out, [tv for tv in (acc, *between) if not among(tv, outputs)], p)
    inner = [k for k in range(p.kept, len(acc.root)) if k != p.places]
    vectors = p.channel is not None and c.vector > 1
    place = {k: k + kept + 3 - p.kept + (vectors and p.channel is not None and k > p.channel) for k in range(p.kept, len(acc.root))}
    if vectors and p.channel is not None:
        script.on(acc).split(place[p.channel], c.vector)
    last = [place[p.channel] + 1] if vectors and p.channel is not None else []
    script.on(acc).reorder([*range(kept + 2), *(place[k] for k in inner), kept + 2, place[p.places], *last])
    if shared:
        script.on(acc).propagate(shared, kept)
    copies = [script.new(tv, "cache_after") if tv.is_input or among(tv, shared) else tv for tv in (*shared, *direct)]  # once for a tile
    if copies:
        script.on(acc).propagate(copies, kept + 2 + len(inner))
    for tv in shared:
        _factor(script, tv, p, c)
    loads = [elements]
    if vectors and isinstance(fusion.definition(elements), FirstValid):
        loads.append(script.new(elements, "clamp_read"))
    for tv in loads:
        _elements(script, tv, p, c)
    for out in outputs:
        call = script.on(out)
        for axis in range(kept):
            call.bind(axis, P.BIDx)
        call.bind(kept, P.TIDy).bind(kept + 1, P.TIDx)
    script.parallelize_like(outputs[0], [*(tv for tv in (acc, *between) if not among(tv, outputs)), *loads, *shared, *copies])
    for tv in shared:
        script.on(tv).bind(kept + 1, P.TIDy).bind(kept + 2, P.TIDx).inline_at(kept)
    script.comment("a tile is unrolled")
    for tv in between:
        if len(tv.loop) > kept + 2:
            script.on(tv).bind(-1, P.Unroll)
    for axis in range(kept + 2 + len(inner), len(acc.loop)):
        script.on(acc).bind(axis, P.Unroll)
    for tv in (*loads, *copies):
        is_vector = vectors and tv is loads[-1]
        for axis in range(kept + 2 + len(inner), len(tv.loop)):
            script.on(tv).bind(axis, P.Vectorize if is_vector and axis == len(tv.loop) - 1 else P.Unroll)
        script.on(tv).inline_at(kept + 2 + len(inner))
    if rest := [tv for tv in between if not among(tv, outputs)]:
        script.inline_most(rest)
    script.on(acc).inline_at(kept + 2)


def _between(fusion: Fusion, acc: TensorView, others: Sequence[TensorView]) -> list[TensorView]:
    """The elementwise tensors with code that follow the reduction, the outputs included."""
    return [e.output for e in needed(fusion) if e.output is not acc and not among(e.output, others)]


def _propagate(script: Script, out: TensorView, tensors: Sequence[TensorView], p: _Problem) -> None:
    """Give what an output is computed of its loops, each from what reads it; of what is no different for each window of a tile, those outside of the tile."""
    left, stack, keys = dict.fromkeys(tensors), [out], Keys(script.fusion)
    while stack:
        tv = stack.pop()
        found = [x for x in producers(script.fusion, tv) if x in left and x.loop == x.root]
        for x in found:
            if len(x.root) < p.kept:
                script.on(tv).propagate([x], p.loops + 2)
            else:
                script.propagate(tv, [x], keys)
            del left[x]
        stack += found


def _loops(script: Script, out: TensorView, p: _Problem, c: WindowsConfig) -> None:
    """[others, row block, tile block, lane block | row, lane | windows of a tile]."""
    call, last = script.on(out), p.columns
    for _ in range(p.kept - p.loops):
        call.merge(last)
    call.split(last, c.lanes).split(p.axis, c.tile).split(p.rows, c.rows)
    threads = [p.rows + 1, last + 3]
    tile = p.axis + 2
    call.reorder([*(k for k in range(p.loops + 3) if k not in (*threads, tile)), *threads, tile])


def _elements(script: Script, elements: TensorView, p: _Problem, c: WindowsConfig) -> None:
    """[others, row block, tile block, lane block | row, lane | rest of the window | elements of a tile]."""
    call, last = script.on(elements), p.columns
    order = sorted(range(len(p.places_of)), key=lambda k: (p.places_of[k] == p.places, p.places_of[k]))
    if order != sorted(order):
        call.reorder(order)
    for _ in range(p.kept - p.loops):
        call.merge(last)
    if p.channel is not None and c.vector > 1:
        at = order.index(p.places_of.index(p.channel)) - (p.kept - p.loops)
        call.split(at, c.vector).reorder({at + 1: -1})
    call.split(last, c.lanes).split(p.rows, c.rows)
    threads = [p.rows + 1, last + 2]
    call.reorder([*(k for k in range(p.loops + 2) if k not in threads), *threads, *range(p.loops + 2, len(elements.loop))])


def _factor(script: Script, tv: TensorView, p: _Problem, c: WindowsConfig) -> None:
    """[blocks | elements, row, lane]: all threads bring what a block reads."""
    call, kept = script.on(tv), p.loops
    is_odd = prod(int(e) for e in p.extents[p.kept :]) % 2  # lanes find their elements in different banks then, if one after another
    lanes = p.kept - len(p.extents) - 1
    layout = Spelled(layouts.padded(0), "tf.layouts.padded(0)") if is_odd else Spelled(layouts.turned(lanes), f"tf.layouts.turned({lanes})")
    call.set_memory_type(MemoryType.Shared).set_allocation_domain(layout)
    for _ in range(len(tv.loop) - kept - 1):
        call.merge(kept)
    call.split(kept, c.lanes).split(kept, c.rows)
