"""``tf.schedulers.scatter``: elementwise functions that are added to elements which data names (scatter form of ``tf.index_add`` and others).

    parts of the outputs: [block, trips of a block, thread, vector]

All elements are stored first; then, past a barrier of the grid, each thread updates elements in their place, one after the other, or neighbors by one
instruction: float32 along a last axis at whose elements no index points. Blocks are as many as are resident together, and take turns at the points.
What is updated more than a few times costs its turns, unless threads combine the updates before (:mod:`taskfuse.cuda.combined_updates`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from functools import partial
from math import lcm, prod

from taskfuse.count import IN_FLIGHT
from taskfuse.ir.axes import iteration_symbol
from taskfuse.ir.combine import vector_updates
from taskfuse.ir.expr import Assemble, FirstValid, Gather, Pointwise, Read, Update, View
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.identity import among
from taskfuse.ir.scalar import TRUE, Const
from taskfuse.ir.storage import has_code, needed, producers, storage_operands, storage_uses, table
from taskfuse.ir.tensor import TensorView
from taskfuse.ir.types import ParallelType as P
from taskfuse.schedulers.elementwise import (
    Leaf,
    align,
    ancestors,
    at_readers,
    bind_vectors,
    divides,
    follow,
    is_aligned,
    is_permuted,
    recompute_all,
    registers,
    stored,
    work,
)
from taskfuse.schedulers.fallback import separate
from taskfuse.schedulers.parameters import Parameters
from taskfuse.schedulers.schedule import Chosen, Option, Sizes, check_call, refuse, tries_parameters
from taskfuse.schedulers.script import Script
from taskfuse.target import DEFAULT, MAX_THREADS, SECTOR_BYTES, VECTOR_BYTES, WARP, Target

THREADS = 256
RESIDENT = 4
"""Blocks of a multiprocessor."""
UPDATED_TOGETHER = 1024
"""Bytes of memory in which updates take turns."""
AROUND = 3
"""The loops around what a thread has at once."""


@dataclass(frozen=True, slots=True)
class ScatterConfig(Parameters):
    """The parameters of a schedule with updates.

    Attributes:
        threads: of a block.
        blocks: of the grid.
        vector: neighbors that a thread stores, or updates, together, where it can.
    """

    threads: int
    blocks: int
    vector: int = 1

    POWERS = frozenset(("vector",))

    def __post_init__(self) -> None:
        self.check_fields()
        self.check_threads(self.threads, f"{self.threads} threads")

    @property
    def words(self) -> str:
        """The parameters as readable text."""
        vectors = f", {self.vector} neighbors together" if self.vector > 1 else ""
        return f"updates in place, {self.blocks} blocks of {self.threads} threads{vectors}"


@tries_parameters
def scatter(fusion: Fusion, config: ScatterConfig | None = None, *, sizes: Mapping[str, int] | None = None, target: Target = DEFAULT) -> Chosen[ScatterConfig]:
    """Schedule elementwise functions that are added to elements which data names. The order of sums is that of time: those of floats may differ in rounding.

    Args:
        fusion: it is changed.
        config: the parameters; ``None``: by the extents.
        sizes: values of the fusion's dimensions for the choice.

    Raises:
        UnsupportedError: the fusion has a schedule; an output is not in scatter form, or is read; what is sent or stored is not elementwise.
    """
    check_call(fusion, "scatter", config, ScatterConfig)
    extent = Sizes(fusion, sizes, target)
    _check(fusion)
    script = Script(fusion)
    script.comment("a separate nest for each part of an output and its inputs")
    vector = _vector(fusion, extent.target) if config is None else config.vector
    in_place = partial(_is_in_place, fusion, vector)
    recompute_all(script, fusion, in_place)
    roots = stored(fusion)
    points = {tv: prod(extent(a.extent) for a in tv.root) for tv in roots}
    chosen = config or _config(fusion, points, vector, extent.target)
    options = _options(fusion, chosen, points, extent)
    owner = separate(script, in_place)
    leaves: tuple[Leaf, ...] = ()
    if vector > 1:
        script.comment("inputs in registers")
        leaves = align(script, fusion, owner, in_place)
    widths = {root: vector if _fits(fusion, root, vector) else 1 for root in roots}
    registers(script, [r for r in roots if widths[r] > 1 and not isinstance(fusion.definition(r), Update)], [leaf.tensor for leaf in leaves], vector)
    script.comment("blocks and threads take turns at the points")
    script.resident_blocks(RESIDENT)
    early: list[TensorView] = []
    for root in roots:
        _loops(script, root, chosen, widths[root])
        apart = _indices(fusion, root) if widths[root] > 1 else []
        before = [tv for index in apart for tv in (index, *ancestors(fusion, index))]
        mine = [tv for tv in _computed_for(fusion, root, roots) if not among(tv, before)]
        follow(script, root, mine)
        if apart:
            script.on(root).propagate(apart, AROUND)
            script.parallelize_like(root, apart)
            for index in apart:
                follow(script, index, ancestors(fusion, index))
        loads = [leaf for leaf in leaves if among(leaf.tensor, mine)]
        bind_vectors(script, loads, [root], widths[root])
        early += [*before, *(leaf.tensor for leaf in loads)]
    if inner := [e.output for e in needed(fusion) if not among(e.output, (*roots, *early))]:
        script.inline_most(inner)
    if early:
        script.inline_at(early, AROUND)
    sent = sum(n for tv, n in points.items() if isinstance(fusion.definition(tv), Update))
    return Chosen("scatter", f"of {sent} updates", options[0], options, config is not None, script.text)


def _config(fusion: Fusion, points: Mapping[TensorView, int], vector: int, target: Target, threads: int = THREADS) -> ScatterConfig:
    """Blocks that are resident together, or fewer if there are fewer points; threads that stand on whole rows of vectors."""
    threads = _on_rows(threads, {extent.value // vector for tv in points if _fits(fusion, tv, vector) and isinstance(extent := tv.root[-1].extent, Const)})
    return ScatterConfig(threads, max(1, min(RESIDENT * target.sms, -(-max(points.values()) // (threads * vector)))), vector)


def _on_rows(threads: int, rows: AbstractSet[int]) -> int:
    """About as many threads that stand on whole rows of vectors, or on whole parts of one, so that each has its place in the rows of all trips: whole warps, if
    possible. As many as before, if none do."""
    row = lcm(*rows)
    if threads % row and row % threads:
        for step in (lcm(row, WARP), row):
            found = max(1, round(threads / step)) * step
            if found <= 2 * threads and found <= MAX_THREADS:
                return found
    return threads


def _options(fusion: Fusion, chosen: ScatterConfig, points: Mapping[TensorView, int], extent: Sizes) -> tuple[Option[ScatterConfig], ...]:
    """The parameters, and others: no vectors; more or fewer threads."""
    target = extent.target
    others = [replace(_config(fusion, points, chosen.vector, target, t), blocks=chosen.blocks) for t in (128, 256, 512)]
    others += [_config(fusion, points, 1, target)] if chosen.vector > 1 else []
    us = {v: _us(fusion, extent, points, replace(chosen, vector=v)) for v in {chosen.vector, 1}}
    return tuple(Option(c, us[c.vector], block=(c.threads, 1, 1), is_cooperative=True) for c in dict.fromkeys((chosen, *others)))


def _vector(fusion: Fusion, target: Target) -> int:
    """The most neighbors that one instruction updates; 1: no instruction updates several."""
    updates = [e.output for e in fusion.exprs() if isinstance(e, Update)]
    return next((v for v in (4, 2) if target.has(90) and any(_fits(fusion, root, v) for root in updates)), 1)


def _fits(fusion: Fusion, root: TensorView, vector: int) -> bool:
    """True if ``vector`` neighbors along the last axis of what is stored, or updated, are neighbors in its output, at integers that they have in common."""
    expr, last = fusion.definition(root), len(root.root) - 1
    if vector == 1 or last < 0 or not isinstance(n := root.root[last].extent, Const) or not divides(vector, n, fusion.facts()):
        return False
    if not isinstance(expr, Update):
        return vector * root.dtype.itemsize <= VECTOR_BYTES
    places = {part.tensor: place for e in fusion.exprs() if isinstance(e, Assemble) for part, place in zip(e.parts, e.places, strict=True)}
    source, *values = storage_operands(fusion, expr)[1:]
    are_apart = all(isinstance(v, Read) and _is_without_last(v, root) and not (isinstance(source, Read) and v.tensor is source.tensor) for v in values)
    return are_apart and vector in vector_updates(expr.combine, root.dtype) and places[root][-1] == iteration_symbol(last)


def _is_without_last(read: Read, reader: TensorView) -> bool:
    """True if a read is at axes of the reader, each of them once, without the last one."""
    return read.valid is TRUE and is_permuted(read, reader) and not any(iteration_symbol(len(reader.root) - 1).free & e.free for e in read.index)


def _is_in_place(fusion: Fusion, vector: int, read: Read, reader: TensorView) -> bool:
    """True if a read is at the reader's own point, or if it is an index of vectors, which all elements of a vector have in common."""
    return is_aligned(read, reader) or (_fits(fusion, reader, vector) and among(read.tensor, _indices(fusion, reader)))


def _indices(fusion: Fusion, root: TensorView) -> list[TensorView]:
    """What is computed of the integers that say where points are sent."""
    expr = fusion.definition(root)
    values = storage_operands(fusion, expr)[2:] if isinstance(expr, Update) else ()
    return list(dict.fromkeys(v.tensor for v in values if isinstance(v, Read) and not v.tensor.is_input))


def _computed_for(fusion: Fusion, root: TensorView, roots: Sequence[TensorView]) -> list[TensorView]:
    """What is computed for what is stored, or updated, but stored nowhere."""
    found: dict[TensorView, None] = {}
    stack = [root]
    while stack:
        new = [p for p in producers(fusion, stack.pop()) if not p.is_input and p not in found and not among(p, roots)]
        found.update(dict.fromkeys(new))
        stack += new
    return list(found)


def is_updated(fusion: Fusion, tv: TensorView) -> bool:
    """True if points are sent to a tensor."""
    expr = fusion.definition(tv)
    return isinstance(expr, Assemble) and any(isinstance(fusion.definition(p.tensor), Update) for p in expr.parts)


def _check(fusion: Fusion) -> None:
    if not any(isinstance(e, Update) for e in fusion.exprs()):
        raise refuse(fusion, "scatter", f"no update goes to {fusion.outputs[0].name}", "tf.compile makes several kernels")
    trial = at_readers(fusion)
    for out in trial.outputs:
        if not is_updated(trial, out):
            raise refuse(fusion, "scatter", f"no update goes to {out.name}", "tf.compile makes several kernels")
        if any(has_code(trial, use) for use in storage_uses(trial, out)):
            raise refuse(fusion, "scatter", f"{out.name} is read", "tf.compile makes several kernels")
    for expr in needed(trial):
        if not isinstance(expr, Pointwise | FirstValid | View | Gather | Update):
            raise refuse(fusion, "scatter", f"{expr.output.name} is not elementwise", "tf.compile makes several kernels")
        source = table(trial, expr)
        if isinstance(expr, Gather) and source is not None and not source.is_input:
            raise refuse(fusion, "scatter", f"{expr.output.name} reads {source.name} at computed indices", "tf.compile makes several kernels")


def _us(fusion: Fusion, extent: Sizes, points: Mapping[TensorView, int], config: ScatterConfig) -> float:
    """Microseconds: bytes and instructions, the updates' own, the barrier, and the turns of updates of neighbors. Or the loads and stores
    that the nests of the parts wait for, one nest after another."""
    total, target, vector = work(fusion, extent), extent.target, config.vector
    moved = turns = 0.0
    for out in fusion.outputs:
        expr = fusion.definition(out)
        assert isinstance(expr, Assemble)
        updates = [p.tensor for p in expr.parts if isinstance(fusion.definition(p.tensor), Update)]
        sent = sum(points[tv] for tv in updates)
        made = sum(points[tv] / (vector if _fits(fusion, tv, vector) else 1) for tv in updates)
        turns += made / max(1.0, extent.elements(out) * out.dtype.itemsize / UPDATED_TOGETHER)
        moved += min(2.0 * sent * out.dtype.itemsize, float(sent * SECTOR_BYTES))
    total = replace(total, stored=total.stored + moved, instructions=total.instructions / vector)
    trips = (max(1.0, n / (config.threads * config.blocks) / (vector if _fits(fusion, tv, vector) else 1)) for tv, n in points.items())
    waited = target.kernel_us(sum(2 * (1 + (t - 1) / IN_FLIGHT) for t in trips) * target.assumed.load_cycles / target.clock_mhz)
    barrier = 0.0 if all(_stays_in_block(fusion, out, config, extent) for out in fusion.outputs) else target.assumed.grid_us
    return max(total.us(4 * vector), waited) + barrier + turns * target.assumed.update_us


def _stays_in_block(fusion: Fusion, out: TensorView, config: ScatterConfig, extent: Sizes) -> bool:
    """True if the threads of a block store all that they update, whole rows, along whose axes, the last ones, indices point: they wait only for each other."""
    expr = fusion.definition(out)
    assert isinstance(expr, Assemble)
    for part, place in zip(expr.parts, expr.places, strict=True):
        whole, rows = part.tensor.shape, next((d for d, e in enumerate(place) if e is not iteration_symbol(d)), len(place))
        own, row = (prod(map(extent, shape[rows:])) for shape in (whole, out.shape))
        if own != row or (rows < len(place) and config.threads * config.vector % row):
            return False
    return True


def _loops(script: Script, root: TensorView, config: ScatterConfig, vector: int) -> None:
    """[blocks, trips, threads, vector]: points that a thread updates one after another lie near each other, as those of one element often do. Where an extent
    is a symbol, [trips, blocks, threads, vector]: of a number of trips that depends on it, little is proved."""
    call, is_known = script.on(root), all(isinstance(a.extent, Const) for a in root.root)
    if not root.root:
        return
    if vector > 1:
        call.split(len(root.root) - 1, vector)
    for _ in root.root[1:]:
        call.merge(0)
    call.split(0, config.threads)
    if is_known:
        call.split(0, config.blocks, False).bind(0, P.BIDx)
    else:
        call.split(0, config.blocks).bind(1, P.BIDx)
    call.bind(2, P.TIDx)
