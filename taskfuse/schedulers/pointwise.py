"""``tf.schedulers.pointwise``: elementwise functions of one shape, with broadcasts, views, slices, pads and concatenations of inputs.

    rows x columns of the outputs: [row block, column block, row, thread, row unrolled, column unrolled, vector]

Columns are the last axis, and those before it while they are short; threads of a warp are neighbors along it, each with a vector of up to 16
bytes. All loads of a thread are issued before the first is used: the copies of inputs share the loops over threads only, not the unrolled ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import ceil, prod
from typing import ClassVar

from taskfuse.ir.axes import iteration_symbol
from taskfuse.ir.expr import Assemble, FirstValid, Gather, Pointwise, Read, Reduction, View
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.identity import among
from taskfuse.ir.scalar import Const
from taskfuse.ir.storage import needed, storage_reads, table
from taskfuse.ir.tensor import TensorView
from taskfuse.ir.types import ParallelType as P
from taskfuse.schedule.copy import copy_fusion
from taskfuse.schedule.recompute import reduces_one
from taskfuse.schedulers.alike import once, once_per_vector
from taskfuse.schedulers.elementwise import (
    Leaf,
    OutputWork,
    align,
    ancestors,
    at_readers,
    bind_vectors,
    divides,
    follow,
    is_aligned,
    leaf_of,
    registers,
    vector_fits,
    widest,
    work,
)
from taskfuse.schedulers.instructions import cost, issued, slots
from taskfuse.schedulers.parameters import Parameters
from taskfuse.schedulers.schedule import Block, Chosen, Offer, Option, Sizes, check_call, refuse, tries_parameters
from taskfuse.schedulers.script import Script
from taskfuse.schedulers.stencils import Stencil, arrange, clamped, find, fits_if_clamped, lines, share, tile_of
from taskfuse.target import DEFAULT, MAX_THREADS, VECTOR_BYTES, WARP, Target

INDICES = (P.BIDx, P.TIDy, P.TIDx)
THREADS = 256
IN_FLIGHT = 64
"""Bytes that a thread should have in flight."""
MAX_UNROLL = 8
MAX_CODE = 256
"""Instructions of a thread, as costs count them, above which nothing is unrolled: long code misses the instruction cache."""
LEAST_BYTES, BUSY = 4, 1024
"""Where a thread would have more code than that, and a multiprocessor fewer threads than :data:`BUSY`, the chain of one thread decides: vectors are shorter,
down to :data:`LEAST_BYTES`, and there are fewer of them where those of functions in libraries are more."""
SHORT = 512
"""Columns of constant extent are merged with the axis before while there are no more than this."""


@dataclass(frozen=True, slots=True)
class PointwiseConfig(Parameters):
    """The parameters of a pointwise schedule.

    Attributes:
        vector: elements of a vector along the last axis, a power of two; tensors that cannot be copied so are copied element by element.
        columns: threads along the columns.
        rows: threads along the rows.
        unroll: vectors per thread along the columns.
        unroll_rows: vectors per thread along the rows.
        flat: all axes are merged into columns.
        tile: points of a thread along the axis along which loads are shifted (:mod:`taskfuse.schedulers.stencils`); 1: none are shared.
        lanes: threads along TIDx, a divisor of all of a block; 0: those along the columns.
    """

    vector: int
    columns: int
    rows: int
    unroll: int
    unroll_rows: int = 1
    flat: bool = False
    tile: int = 1
    lanes: int = 0

    LEAST: ClassVar[Mapping[str, int]] = {"lanes": 0}
    POWERS = frozenset(("vector",))

    def __post_init__(self) -> None:
        self.check_fields()
        threads = self.columns * self.rows
        self.check_threads(threads, f"{self.columns} x {self.rows} threads")
        if self.lanes and (threads % self.lanes or self.tile > 1):
            raise self.error(f"lanes is {self.lanes}", "use 0" if self.tile > 1 else f"use a divisor of {threads}, the threads of a block")

    @property
    def words(self) -> str:
        """The parameters as readable text."""
        return (
            f"{'all axes as one, ' * self.flat}{f'tiles of {self.tile} points, ' * (self.tile > 1)}vectors of {self.vector}, "
            f"blocks of {self.columns} x {self.rows} threads{f' in lines of {self.lanes}' if self.lanes else ''}, "
            f"{self.unroll * self.unroll_rows} vectors of each input in flight per thread"
        )

    @property
    def block(self) -> Block:
        """Threads of a block along x, y and z."""
        lanes = self.lanes or self.columns
        return lanes, self.columns * self.rows // lanes, 1

    def in_lines(self, lanes: int) -> PointwiseConfig | None:
        """The same parameters, with as many threads of a block along TIDx; ``None`` if they do not fill such lines."""
        lanes = min(lanes, self.columns * self.rows)
        fits = self.tile == 1 and self.columns * self.rows % lanes == 0
        return replace(self, lanes=0 if lanes == self.columns else lanes) if fits else None


@tries_parameters
def pointwise(
    fusion: Fusion, config: PointwiseConfig | None = None, *, sizes: Mapping[str, int] | None = None, target: Target = DEFAULT
) -> Chosen[PointwiseConfig]:
    """Schedule elementwise functions whose outputs have one shape: one pass over it, each input loaded once per element.

    Args:
        fusion: it is changed.
        config: the parameters; ``None``: by the extents and dtypes.
        sizes: values of the fusion's dimensions for the choice.

    Raises:
        UnsupportedError: the fusion has a schedule, a reduction, a matrix product, a concatenation in scatter form, or outputs of several shapes.
    """
    check_call(fusion, "pointwise", config, PointwiseConfig)
    extent = Sizes(fusion, sizes, target)
    check(fusion, "pointwise")
    return _scheduled(fusion, config, extent)


def _scheduled(fusion: Fusion, config: PointwiseConfig | None, extent: Sizes) -> Chosen[PointwiseConfig]:
    """:func:`pointwise` of a fusion that was checked, or a copy of one."""
    script = Script(fusion)
    leaves, chosen, us, moved, stencil = _planned(script, config, extent, work(fusion, extent))
    if chosen.tile > 1:
        _schedule_tiles(script, leaves, chosen, stencil)
    else:
        schedule(script, fusion.outputs, clamped(script, [leaf.tensor for leaf in leaves], chosen.vector), chosen)
    shape = " x ".join(str(extent(e)) for e in fusion.outputs[0].shape)
    others = [replace(chosen, tile=chosen.tile // 2)] if chosen.tile > 1 else []
    others += [
        replace(chosen, columns=columns, rows=rows, unroll=max(1, chosen.unroll * u // 2), lanes=0)
        for rows in (chosen.rows, 1)
        for columns in (max(WARP if rows == 1 else min(WARP, chosen.columns), chosen.columns * t // 2) for t in (2, 1, 4))
        if columns * rows <= MAX_THREADS
        for u in (2, 1, 4)
    ]
    options = tuple(Option(c, us, block=c.block) for c in dict.fromkeys((chosen, *others)))
    return Chosen("pointwise", shape or "scalar", options[0], options, config is not None, script.text, moved)


def offer(fusion: Fusion, *, sizes: Mapping[str, int] | None = None, target: Target = DEFAULT) -> Offer:
    """The offer of :func:`pointwise`.

    Raises:
        UnsupportedError: see :func:`pointwise`.
    """
    check_call(fusion, "pointwise", None, PointwiseConfig)
    check(fusion, "pointwise")
    extent = Sizes(fusion, sizes, target)
    _, _, us, _, _ = _planned(Script(copy_fusion(at_readers(fusion))[0]), None, extent, work(fusion, extent))
    return Offer(us, partial(_scheduled, config=None, extent=extent), lambda config: partial(_scheduled, config=config, extent=extent), is_exact=True)


def _planned(
    script: Script, config: PointwiseConfig | None, extent: Sizes, total: OutputWork
) -> tuple[tuple[Leaf, ...], PointwiseConfig, float, str, Stencil | None]:
    """What reads memory, the parameters, microseconds and bytes of a fusion, each of whose tensors is computed at the points of its readers from now on.

    Args:
        total: its work before that.
    """
    fusion = script.fusion
    script.comment("each tensor at its readers' points, inputs in registers")
    leaves, out = align(script, fusion), fusion.outputs[0]
    common = once(script, fusion)
    alike = once_per_vector(script, fusion)
    leaves = tuple(leaf_of(fusion, leaf.tensor) for leaf in leaves if leaf.tensor not in common and leaf.tensor not in alike)
    stencil = find(fusion, out, leaves)
    chosen = config or _with_tiles(choose(fusion, out, leaves, extent), stencil, leaves, out, extent)
    us = total.us(min(VECTOR_BYTES, chosen.vector * widest(fusion, leaves)))
    looked = lines(stencil, leaves, out, chosen.vector, chosen.tile, extent)
    target = extent.target
    issues = issued(fusion, chosen.vector, extent, is_sunk=True) + sum(common.values()) * extent.elements(out) / chosen.vector
    us = max(us, target.kernel_us(looked / target.cycles_per_us, target.issue_us(issues)))
    return leaves, chosen, us, f"{total.loaded / 1e6:.1f} MB loaded, {total.stored / 1e6:.1f} MB stored", stencil


def _with_tiles(config: PointwiseConfig, stencil: Stencil | None, leaves: Sequence[Leaf], out: TensorView, extent: Sizes) -> PointwiseConfig:
    """The parameters for tiles of neighbors that share loads, if there are any."""
    tile = 1 if stencil is None else tile_of(stencil, leaves, out, config.vector, extent)
    if stencil is None or tile == 1:
        return config
    columns = prod(extent(e) for e in out.shape[_first_column_after(out, stencil.axis) :])
    threads, _ = _along_columns(ceil(columns / config.vector), 1)
    rows = _beside(ceil(extent(out.shape[stencil.axis]) / tile), THREADS // threads)
    return PointwiseConfig(config.vector, threads, rows, 1, tile=tile)


def check(fusion: Fusion, kind: str) -> None:
    """Raises :class:`UnsupportedError` unless all code is elementwise, the outputs have one shape, and what they need is needed at few points."""
    for tv in dict.fromkeys((*fusion.outputs, *(e.output for e in needed(fusion)))):
        expr = fusion.definition(tv)
        if isinstance(expr, Reduction) and not reduces_one(fusion, expr):  # it stays one, at whatever points
            raise refuse(fusion, kind, f"{tv.name} is a reduction", "tf.schedulers.auto asks other schedulers")
    trial = at_readers(fusion)
    read = {r.tensor for e in needed(trial) for r in storage_reads(trial, e) if not r.tensor.is_input}
    for tv in dict.fromkeys((*trial.outputs, *(e.output for e in needed(trial)), *read)):
        expr = trial.definition(tv)
        if isinstance(expr, Gather) and (source := table(trial, expr)) is not None and not source.is_input:
            raise refuse(fusion, kind, f"{tv.name} reads {source.name} at computed indices", "tf.compile makes several kernels")
        if not isinstance(expr, Pointwise | FirstValid | View | Gather):
            what = "a reduction" if isinstance(expr, Reduction) else "a concatenation in scatter form" if isinstance(expr, Assemble) else "not elementwise"
            raise refuse(fusion, kind, f"{tv.name} is {what}", "tf.schedulers.auto asks other schedulers")
    for expr in needed(trial):
        for r in storage_reads(trial, expr):
            if isinstance(trial.definition(r.tensor), Gather) and not is_aligned(r, expr.output):
                reason = f"{expr.output.name} reads {r.tensor.name}, a gather, at points of which it lacks some"
                raise refuse(fusion, kind, reason, "tf.compile makes several kernels")
    first = fusion.outputs[0]
    for tv in fusion.outputs:
        if tv.ndim != first.ndim or any(a is not b for a, b in zip(tv.shape, first.shape, strict=True)):
            raise refuse(fusion, kind, f"the outputs {first!r} and {tv!r} differ in shape", "tf.compile makes a kernel for each shape")


def choose(fusion: Fusion, out: TensorView, leaves: Sequence[Leaf], extent: Sizes) -> PointwiseConfig:
    """Vectors as wide as the outputs and most inputs allow, and as many of them as keep :data:`IN_FLIGHT` bytes in flight.

    Where rows take no vectors, or short ones, and nothing is broadcast, the axes are merged: no row ends within a block, and since all tensors are read and
    stored in the order of their elements, the divisions that find a place cancel out of its address.

    Args:
        out: an output, or a tensor of its shape.
    """
    vector = VECTOR_BYTES // widest(fusion, leaves)
    facts = fusion.facts()
    while vector > 1 and not (out.ndim and divides(vector, out.shape[-1], facts)):
        vector //= 2
    is_short = vector == 1 or (vector * widest(fusion, leaves) < VECTOR_BYTES and all(isinstance(e, Const) for e in out.shape))
    figures = extent.target.elements
    if vector > figures.apart and _most_are_apart(fusion, leaves, vector):
        vector = figures.apart
    costs, points = sum(cost(e) for e in needed(fusion)), extent.elements(out)
    chain, busy = sum(max(cost(e), slots(e)) for e in needed(fusion)), BUSY * extent.target.sms
    while vector * widest(fusion, leaves) > LEAST_BYTES and vector * costs > MAX_CODE and points < busy * vector:
        vector //= 2
    flying = vector * sum(r.tensor.dtype.itemsize for leaf in leaves for r in leaf.reads if r.tensor.ndim >= out.ndim) or VECTOR_BYTES
    code = vector * costs
    unroll = 1 << max(1, min(MAX_UNROLL, IN_FLIGHT // flying, MAX_CODE // max(1, code))).bit_length() - 1
    while unroll > 1 and unroll * vector * chain > MAX_CODE and points < busy * vector * unroll:
        unroll //= 2
    flat = (vector == 1 or is_short) and out.ndim > 1 and all(_is_in_order(r, out) for leaf in leaves for r in leaf.reads)
    if flat:
        unroll = min(unroll, figures.flat)
    first = 0 if flat else first_column(out)
    columns = prod(extent(out.shape[d]) for d in range(first, out.ndim))
    rows = prod(extent(out.shape[d]) for d in range(first))
    vectors = -(-columns // vector)
    is_known = all(isinstance(e, Const) for e in out.shape)  # a schedule for many extents is none for one of them
    threads, along = _along_columns(vectors if is_known else 1 << (vectors - 1).bit_length(), unroll)
    beside = _beside(rows, THREADS // threads) if is_known else min(THREADS // threads, 1 << (rows - 1).bit_length())
    over = min(unroll // along, 1 << (-(-rows // beside) - 1).bit_length())
    if first > 1 and not (all(isinstance(e, Const) for e in out.shape[:first]) and rows % (over * beside) == 0):
        over = 1  # the rows of a merge are found by division: unrolled, they have registers of their own only if no tile of a known number overhangs
    return PointwiseConfig(vector, threads, beside, along, over, flat)


def _along_columns(vectors: int, unroll: int) -> tuple[int, int]:
    """The threads along the columns, and the vectors of each: those of which the fewest have no column, then the most threads."""
    if vectors <= THREADS:
        return max(vectors, 1), 1
    found: list[tuple[int, int, int]] = []
    for threads in range(THREADS // 2, THREADS + 1, WARP):
        along = min(unroll, 1 << (-(-vectors // threads) - 1).bit_length())
        found.append((-(-vectors // (threads * along)) * threads * along, -threads, along))
    _, threads, along = min(found)
    return -threads, along


def _beside(rows: int, most: int) -> int:
    """The rows of a block: as many as it has threads for, or a divisor of all rows that is at least half of that."""
    limit = min(most, 1 << (rows - 1).bit_length())
    return next((r for r in range(limit, limit // 2, -1) if rows % r == 0), limit)


def _most_are_apart(fusion: Fusion, leaves: Sequence[Leaf], vector: int) -> bool:
    """True if most loads of what changes along the last axis take it element by element, shifted or strided as in a stencil. Threads that each have a long
    vector of results then load from as many lines of memory as there are threads."""
    last = {leaf: iteration_symbol(len(leaf.tensor.root) - 1) for leaf in leaves if leaf.tensor.root}
    moving = [leaf for leaf, s in last.items() if any(s.free & e.free for r in leaf.reads for e in r.index)]
    return 2 * sum(vector_fits(fusion, leaf, vector) or fits_if_clamped(fusion, leaf, vector) for leaf in moving) < len(moving)


def _is_in_order(read: Read, out: TensorView) -> bool:
    """True if consecutive points of ``out`` read consecutive elements, or all one."""
    return not read.index or read.index == tuple(map(iteration_symbol, range(out.ndim)))


def schedule(script: Script, outputs: Sequence[TensorView], leaves: Sequence[Leaf], config: PointwiseConfig) -> None:
    """The calls, for tensors of one shape that are stored, and that :func:`align` brought into form."""
    fusion = script.fusion
    loads = dict.fromkeys(leaf.tensor for leaf in leaves)
    registers(script, outputs, list(loads), config.vector)
    script.comment("[row block, column block, row, thread, row unrolled, column unrolled, vector]")
    left = dict.fromkeys(tv for tv in _with_axes(fusion, outputs) if not among(tv, outputs))
    for out in outputs:
        _loops(script, out, config)
        mine = [tv for tv in ancestors(fusion, out) if tv in left]
        for tv in mine:
            left.pop(tv)
        follow(script, out, mine)
    threads = sum(outputs[0].schedule.ptype(a) in INDICES for a in outputs[0].loop)
    script.comment("vectors; loads before the first use, everything else inlined as deep as possible")
    if outputs[0].ndim:
        bind_vectors(script, leaves, outputs, config.vector)
    mine = {tv for out in outputs for tv in ancestors(fusion, out)}
    inner = [tv for tv in _with_axes(fusion, outputs) if tv in mine and tv not in loads and not among(tv, outputs)]
    if inner:
        script.inline_most(inner)
    script.inline_at(list(loads), threads)


def _schedule_tiles(script: Script, leaves: Sequence[Leaf], config: PointwiseConfig, stencil: Stencil | None) -> None:
    """The calls for tiles of neighbors that share what they load."""
    fusion, outputs = script.fusion, script.fusion.outputs
    if stencil is None:
        raise config.error("loads are not shifted along an axis", "use tile=1")
    script.comment("what a tile of neighbors reads, once; what they read alike, once for all of them")
    elements, others = share(script, stencil, leaves, config.tile)
    leaves = clamped(script, [*elements, *others], config.vector)
    whole = [*elements, *(leaf.tensor for leaf in leaves[: len(elements)] if not among(leaf.tensor, elements))]
    loads = dict.fromkeys([*whole, *(leaf.tensor for leaf in leaves)])
    registers(script, outputs, list(loads), config.vector)
    script.comment("[others, tile block, column block, tile, thread, point of a tile, vector]")
    axis, column = stencil.axis, _first_column_after(outputs[0], stencil.axis)
    alike = [leaf.tensor for leaf in leaves if len(leaf.tensor.root) < outputs[0].ndim]
    left = dict.fromkeys(tv for tv in _with_axes(fusion, outputs) if not among(tv, (*outputs, *whole, *alike)))
    for tv in (*outputs, *whole):
        arrange(script, tv, axis, column, (config.tile if among(tv, outputs) else 0, config.rows, config.columns, config.vector))
    for out in outputs:
        mine = [tv for tv in ancestors(fusion, out) if tv in left]
        for tv in mine:
            left.pop(tv)
        follow(script, out, mine)
    threads = len(outputs[0].loop) - 2
    if alike:
        script.on(outputs[0]).propagate(alike, threads)
        script.parallelize_like(outputs[0], alike)
    script.comment("vectors; loads before the first use, everything else inlined as deep as possible")
    bind_vectors(script, leaves, outputs, config.vector)
    inner = [tv for tv in _with_axes(fusion, outputs) if tv not in loads and not among(tv, outputs)]
    if inner:
        script.inline_most(inner)
    script.inline_at(list(loads), threads)


def _with_axes(fusion: Fusion, outputs: Sequence[TensorView]) -> list[TensorView]:
    """What runs in the loops of the outputs: all but what all of their elements have in common, which a thread computes before them."""
    return [e.output for e in needed(fusion) if e.output.root or not outputs[0].root]


def _first_column_after(out: TensorView, axis: int) -> int:
    """The first axis of the columns of an output that is tiled along an axis."""
    return max(first_column(out), axis + 1)


def first_column(tv: TensorView) -> int:
    """The first axis of those whose product is the columns."""
    position, columns = tv.ndim - 1, 1
    while position > 0:
        inner, before = tv.shape[position], tv.shape[position - 1]
        if not (isinstance(inner, Const) and isinstance(before, Const)):
            break
        columns *= inner.value
        if columns * before.value > SHORT:
            break
        position -= 1
    return max(position, 0)


def _loops(script: Script, out: TensorView, config: PointwiseConfig) -> None:
    call = script.on(out)
    first, ndim = 0 if config.flat else first_column(out), out.ndim
    if ndim == 0:
        return
    for _ in range(ndim - 1 - first):
        call.merge(first)
    for _ in range(first - 1):
        call.merge(0)
    has_rows = first > 0
    at = int(has_rows)
    call.split(at, config.vector).split(at, config.unroll * config.columns).split(at + 1, config.columns)
    # [rows, column block, column unrolled, thread, vector]
    if has_rows:
        call.split(0, config.unroll_rows * config.rows).split(1, config.rows).reorder([0, 3, 2, 5, 1, 4, 6])
        blocks, threads, unrolled = (P.BIDx, P.BIDx), (P.TIDy, P.TIDx), (P.Unroll, P.Unroll)
    else:
        call.reorder([0, 2, 1, 3])
        blocks, threads, unrolled = (P.BIDx,), (P.TIDx,), (P.Unroll,)
    if config.lanes:
        if has_rows:
            call.merge(len(blocks))
        threads = (P.TIDx,)
        if config.lanes < config.columns * config.rows:
            call.split(len(blocks), config.lanes)
            threads = (P.TIDy, P.TIDx)
    types = (*blocks, *threads, *unrolled)
    for axis, p in enumerate(types):
        call.bind(axis, p)
