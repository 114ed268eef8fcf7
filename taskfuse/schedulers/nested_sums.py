"""``tf.schedulers.nested_sums``: a reduction whose terms are computed from short reductions, such as a product with weights of 4 bits and scales of groups.

    outer  [rows: blocks | warps | groups, one after another | groups of a warp]
    inner  [the same | lanes of a group | elements of a lane]
    loads  [the same, with further axes of their own]: vectors

A warp computes a row, or several, which share the loads of what does not depend on the row. Its lanes are digits of the groups and of the elements of a group,
so that neighbors read neighbors; shuffles join the lanes of a group, then those of the groups. All that the reductions are computed of stays in registers. A
view with further axes than the terms have is loaded whole: pairs of a vector's elements, of which one is multiplied by the low bits of a byte and the other
by the high bits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from math import ceil, prod

from taskfuse.ir.axes import iteration_symbol
from taskfuse.ir.expr import Pointwise, Read, Reduction, View
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.identity import among
from taskfuse.ir.scalar import Const, Expr, const, is_multiple, simplify, substitute, sym
from taskfuse.ir.storage import needed, producers, resolve, storage_reads
from taskfuse.ir.tensor import TensorView
from taskfuse.ir.types import MemoryType
from taskfuse.ir.types import ParallelType as P
from taskfuse.schedule.copy import copy_fusion
from taskfuse.schedulers.elementwise import ancestors
from taskfuse.schedulers.instructions import cost
from taskfuse.schedulers.parameters import Parameters
from taskfuse.schedulers.schedule import Chosen, Offer, Option, Sizes, check_call, refuse, tries_parameters
from taskfuse.schedulers.script import Script
from taskfuse.target import DEFAULT, REGISTERS, VECTOR_BYTES, WARP, Target

NAME = "nested_sums"
VECTORS = (16, 8, 4)
"""Elements of an inner sum that a lane takes together."""
ROWS = (4, 8)
"""Rows of a block: its warps."""
REUSED = ((1, 4), (2, 2), (4, 2))
"""Rows of a warp, and steps in registers."""
REGISTERS_LEAST, REGISTERS_OF_ROW = 48, 16
"""Registers of a thread: without those of a row, and those of one. 62, 72 and 109 for 4-bit weights with one, two and four rows."""
LOOKUP_FACTOR = 4
"""Cycles of the first-level cache for what all rows read, whose vectors are several apart in neighboring lanes, relative to neighbors."""
INSIDE, VECTOR = sym("vector.inner"), sym("vector.outer")


@dataclass(frozen=True, slots=True)
class NestedSumConfig(Parameters):
    """The parameters of nested reductions.

    Attributes:
        vector: consecutive elements of a short reduction that a lane takes: as many lanes as that leaves share one.
        rows: warps of a block, each with a row or several.
        stages: steps of groups in registers: those of the next steps are loaded while one is computed.
        each: rows of a warp, which share what does not depend on the row.
    """

    vector: int = 16
    rows: int = 4
    stages: int = 4
    each: int = 1

    def __post_init__(self) -> None:
        self.check_fields()
        self.check_threads(WARP * self.rows, f"{self.rows} warps")

    @property
    def words(self) -> str:
        """The parameters as readable text."""
        return f"{self.vector} elements of a short sum in a lane, {self.rows} warps with {self.each} rows, {self.stages} steps in registers"


@dataclass(frozen=True, slots=True, eq=False)
class NestedSums:
    """The problem.

    Attributes:
        outer, inner: the two reductions, of terms that are computed from the other one's results.
        length: terms of an inner reduction.
        terms: what is computed, element by element, between the inputs and the inner reduction.
        between: between the inner reduction and the outer one.
        behind: from the results.
    """

    outer: TensorView
    inner: TensorView
    length: int
    terms: tuple[TensorView, ...]
    between: tuple[TensorView, ...]
    behind: tuple[TensorView, ...]


@tries_parameters
def nested_sums(
    fusion: Fusion, config: NestedSumConfig | None = None, *, sizes: Mapping[str, int] | None = None, target: Target = DEFAULT
) -> Chosen[NestedSumConfig]:
    """Schedule a reduction along the last axis of a matrix whose elements are computed, element by element, from reductions along a further, short axis.

    Args:
        fusion: it is changed.
        config: the parameters; ``None``: the fastest by the cost model.
        sizes: values of the fusion's dimensions for the cost model.
        target: the GPU.

    Raises:
        UnsupportedError: there are not two such reductions with elementwise math around them, lanes of a warp do not divide the short one, or inputs are read
            in several ways.
    """
    check_call(fusion, NAME, config, NestedSumConfig)
    extent = Sizes(fusion, sizes, target)
    problem = _find(fusion)
    _schedule(Script(copy_fusion(fusion)[0]), config or NestedSumConfig(VECTORS[-1]))
    options = _options(fusion, problem, extent)
    chosen = options[0] if config is None else _option(fusion, problem, config, extent)
    rows, groups = (extent(a.extent) for a in problem.inner.root[:2])
    script = Script(fusion)
    _schedule(script, chosen.config)
    return Chosen(NAME, f"{rows} rows of {groups} sums of {problem.length} elements", chosen, options, config is not None, script.text)


def offer(fusion: Fusion, *, sizes: Mapping[str, int] | None = None, target: Target = DEFAULT) -> Offer:
    """The offer of :func:`nested_sums`.

    Raises:
        UnsupportedError: see :func:`nested_sums`; what the scheduling calls refuse is found when the offer is taken.
    """
    check_call(fusion, NAME, None, NestedSumConfig)
    best = _options(fusion, _find(fusion), Sizes(fusion, sizes, target))[0]
    return Offer(best.us, partial(nested_sums, sizes=sizes, target=target))


def _options(fusion: Fusion, problem: NestedSums, extent: Sizes) -> tuple[Option[NestedSumConfig], ...]:
    """All parameters with their estimates, the fastest first."""
    configs = (NestedSumConfig(vector, rows, stages, each) for vector in VECTORS for rows in ROWS for each, stages in REUSED if _divides(problem, vector))
    return tuple(sorted((_option(fusion, problem, config, extent) for config in configs), key=lambda option: option.us))


def _divides(problem: NestedSums, vector: int) -> bool:
    """Whether lanes of a warp, each with so many elements, make up an inner sum."""
    return problem.length % vector == 0 and WARP % (problem.length // vector) == 0


def _find(fusion: Fusion) -> NestedSums:
    """The problem. Raises :class:`UnsupportedError` if the fusion is another one."""
    exprs = needed(fusion)
    reductions = [e for e in exprs if isinstance(e, Reduction)]
    if len(reductions) != 2:
        raise refuse(fusion, NAME, f"the number of reductions is {len(reductions)}, not 2")
    other = next((e for e in exprs if not isinstance(e, Pointwise | Reduction | View)), None)
    if other is not None:
        raise refuse(fusion, NAME, f"{other.output.name} is not computed element by element")
    inner, outer = (e.output for e in reductions)
    if not among(inner, ancestors(fusion, outer)):
        raise refuse(fusion, NAME, f"{outer.name} does not reduce what is computed from {inner.name}")
    kinds = [[a.is_reduction for a in tv.root] for tv in (outer, inner)]
    if kinds != [[False, True], [False, False, True]] or any(not e.is_whole or e.rescaled is not None for e in reductions):
        raise refuse(fusion, NAME, f"{inner.name} and {outer.name} do not reduce the last of three axes, and then of two, whole")
    length = inner.root[2].extent
    if not isinstance(length, Const) or not length.value or length.value % VECTORS[-1] or WARP % (length.value // VECTORS[-1]):
        raise refuse(fusion, NAME, f"lanes of a warp with {VECTORS[-1]} elements each do not divide the {length} of {inner.name}")
    code = [e.output for e in exprs if isinstance(e, Pointwise)]
    terms = [tv for tv in ancestors(fusion, inner) if among(tv, code)]
    between = [tv for tv in ancestors(fusion, outer) if among(tv, code) and not among(tv, terms)]
    behind = [tv for tv in code if not among(tv, terms) and not among(tv, between)]
    if any(among(inner, ancestors(fusion, tv)) and not among(outer, ancestors(fusion, tv)) for tv in behind):
        raise refuse(fusion, NAME, f"more is computed from {inner.name} than terms of {outer.name}")
    shared = next((p for tv in (*between, *behind, outer) for p in producers(fusion, tv) if among(p, terms)), None)
    if shared is not None:
        raise refuse(fusion, NAME, f"{shared.name} is read for {inner.name} and elsewhere")
    stages = ((*terms, inner), (*between, outer), behind)
    inputs = [{r.tensor for tv in stage if (e := fusion.definition(tv)) is not None for r in storage_reads(fusion, e) if r.tensor.is_input} for stage in stages]
    twice = next((tv for k, some in enumerate(inputs) for more in inputs[k + 1 :] for tv in some & more), None)
    if twice is not None:
        raise refuse(fusion, NAME, f"{twice.name} is read before one of the reductions and after it")
    early = next((tv for tv in (inner, *([outer] if behind else []), *terms, *between) if tv.is_output), None)
    if early is not None:
        raise refuse(fusion, NAME, f"{early.name} is an output before the last reduction")
    return NestedSums(outer, inner, length.value, tuple(terms), tuple(between), tuple(behind))


def _option(fusion: Fusion, problem: NestedSums, config: NestedSumConfig, extent: Sizes) -> Option[NestedSumConfig]:
    """The option with its time: the bytes of inputs and outputs, or the instructions, whichever takes longer."""
    target = extent.target
    read = {r.tensor for e in needed(fusion) for r in storage_reads(fusion, e) if r.tensor.is_input}
    moved = sum(extent.elements(tv) * tv.dtype.itemsize for tv in (*read, *fusion.outputs))
    each = prod(extent(a.extent) for a in problem.inner.root)
    work = 1 + sum(cost(e) for tv in problem.terms if (e := fusion.definition(tv)) is not None)
    joined = 4 * WARP.bit_length() / config.vector  # shuffles, sums and loads of scales, for each element
    rows, groups = (extent(a.extent) for a in problem.inner.root[:2])
    own = {
        r.tensor for tv in (*problem.terms, problem.inner) if (e := fusion.definition(tv)) is not None for r in storage_reads(fusion, e) if r.tensor.is_input
    }
    common = sum(extent.elements(tv) * tv.dtype.itemsize for tv in own if extent.elements(tv) < each)
    looked_up = rows / config.each * common * LOOKUP_FACTOR / (target.sms * target.shared_bytes_per_cycle * target.clock_mhz)
    threads = min(ceil(rows / config.each) * WARP, target.sms * REGISTERS // (REGISTERS_LEAST + REGISTERS_OF_ROW * config.each))
    steps = min(config.stages, ceil(groups * (problem.length // config.vector) / WARP))
    share = target.fill(threads * steps * config.each * config.vector / VECTOR_BYTES)
    few = min(1.0, rows / config.each / target.sms)
    busy = target.issue_us(each * (work + joined)) / few
    return Option(config, target.kernel_us(target.dram_us(moved, share), busy, looked_up / few))


def _schedule(script: Script, config: NestedSumConfig) -> None:
    """The calls."""
    fusion = script.fusion
    _casts_behind_views(script)
    problem = _find(fusion)
    if not _divides(problem, config.vector):
        raise refuse(fusion, NAME, f"lanes of a warp with {config.vector} elements each do not divide the {problem.length} of {problem.inner.name}")
    script.comment("loads into registers, at the axes of the terms")
    loads = _loads(script, (*problem.terms, problem.inner))
    early, late = _loads(script, (*problem.between, problem.outer)), _loads(script, problem.behind)
    lanes = problem.length // config.vector
    script.comment("[rows: blocks, warps | groups one after another, of a warp | lanes of a group, elements of a lane]")
    outer, inner = script.on(problem.outer), script.on(problem.inner)
    outer.split(1, WARP // lanes).split(0, config.each).split(0, config.rows).reorder({2: 4})
    outer.propagate([*problem.between, *early, problem.inner], 5)
    if problem.behind or late:
        outer.propagate([*problem.behind, *late], 2)
    inner.split(5, config.vector).reorder({5: 4})
    of_rows, common = ([tv for tv in loads if _has_rows(problem, tv) is has] for has in (True, False))
    inner.propagate([*problem.terms, *of_rows], 7)
    if common:
        inner.propagate(common, 5)
    outer.bind(0, P.BIDx).bind(1, P.TIDz).bind(3, P.TIDy)
    inner.bind(4, P.TIDx)
    script.parallelize_like(problem.outer, [*problem.between, *early, *late, problem.inner, *problem.terms, *loads, *problem.behind])
    script.parallelize_like(problem.inner, [*problem.terms, *loads])
    for tv in (problem.outer, *problem.between, *early):
        script.on(tv).bind(4, P.Unroll)
    for tv in (*problem.behind, *late):
        script.on(tv).bind(2, P.Unroll)
    for tv in (problem.inner, *of_rows):
        script.on(tv).bind(5, P.Unroll)
    inner.bind(6, P.Unroll)
    for tv in loads:
        _vectors(script, tv, config.vector, 6 if among(tv, of_rows) else 5)
        if config.stages > 1 and among(tv, of_rows):
            script.on(tv).circular_buffer(config.stages)
    script.comment("shared loops")
    script.inline_at(list(problem.terms), 7)
    script.inline_at([*loads, *problem.between], 5)
    script.inline_at([*early, problem.inner], 4)
    script.inline_at([*late, *(tv for tv in (*problem.behind, problem.outer) if not tv.is_output)], 2)


def _has_rows(problem: NestedSums, tv: TensorView) -> bool:
    """Whether a tensor of the terms has the axes of these, not those of a group alone."""
    return len(tv.root) >= len(problem.inner.root) and tv.root[0].extent is problem.inner.root[0].extent


def _casts_behind_views(script: Script) -> None:
    """Let views read inputs: what is computed element by element before one is computed after it."""
    fusion = script.fusion
    for expr in list(fusion.exprs()):
        view = expr.output
        if not isinstance(expr, View) or fusion.definition(view) is not expr:
            continue
        source = resolve(fusion, expr.operand).tensor
        if fusion.is_view(expr.operand.tensor) or not isinstance(fusion.definition(source), Pointwise):
            continue
        own = script.new(view, "cache_after")
        for made in script.recompute(source, [own]):
            definition = fusion.definition(made)
            reads = [] if definition is None else [k for k, o in enumerate(definition.operands) if isinstance(o, Read) and o.tensor.is_input]
            for k in reads:
                script.through_view(made, k)


def _loads(script: Script, readers: tuple[TensorView, ...]) -> list[TensorView]:
    """Copies in registers of what some tensors read of inputs: the views of these nearest to memory, or the inputs themselves."""
    fusion = script.fusion
    found: dict[TensorView, None] = {}
    for tv in readers:
        definition = fusion.definition(tv)
        for operand in () if definition is None else definition.operands:
            if not isinstance(operand, Read) or not resolve(fusion, operand).tensor.is_input:
                continue
            read = operand
            while fusion.is_view(read.tensor) and (view := fusion.definition(read.tensor)) is not None and isinstance(view, View):
                if view.operand.tensor.is_input:
                    break
                read = view.operand
            found[read.tensor] = None
    loads: list[TensorView] = []
    for source in found:
        if source.is_input:
            loads.append(script.new(source, "cache_after"))
        else:
            script.on(source).set_memory_type(MemoryType.Local)
            loads.append(source)
    return loads


def _vectors(script: Script, tv: TensorView, vector: int, at: int) -> None:
    """Let a lane load its elements of a tensor, at its axes from ``at`` on, in the widest vectors of neighbors in memory."""
    call, fusion = script.on(tv), script.fusion
    own = tv.root[-1].extent if len(tv.loop) > at + 1 else const(1)
    for _ in range(len(tv.loop) - at - 1):
        call.merge(at)
    elements = vector * (own.value if isinstance(own, Const) else 1)
    width = next(w for w in (16, 8, 4, 2, 1) if w * tv.dtype.itemsize <= VECTOR_BYTES and elements % w == 0 and _is_contiguous(fusion, tv, w, own))
    call.split(at, width).bind(at + 1, P.Vectorize if width > 1 else P.Unroll).bind(at, P.Unroll)


def _is_contiguous(fusion: Fusion, tv: TensorView, width: int, own: Expr) -> bool:
    """Whether ``width`` elements of a lane are neighbors in memory, from a multiple of ``width`` on."""
    definition = fusion.definition(tv)
    if width == 1 or definition is None or not isinstance(own, Const):
        return width == 1
    read = definition.operands[0]
    assert isinstance(read, Read)
    place = VECTOR * width + INSIDE
    symbols = [iteration_symbol(k) for k in range(len(tv.root))]
    along = symbols[-2:] if own.value > 1 else symbols[-1:]
    at = dict(zip(map(str, along), (place // own.value, place % own.value) if own.value > 1 else (place,), strict=True))
    facts = fusion.facts().with_range(str(INSIDE), 0, width - 1).with_range(str(VECTOR), 0, None)
    for symbol, a in zip(symbols, tv.root, strict=True):
        facts = facts.with_range(str(symbol), 0, a.extent - 1)
    *heads, last = (simplify(substitute(e, at), facts) for e in read.index)
    offset = simplify(last - INSIDE, facts)
    if any(str(INSIDE) in {str(f) for f in e.free} for e in (*heads, offset)) or not is_multiple(offset, width, facts):
        return False
    return len(read.index) == 1 or is_multiple(read.tensor.shape[-1], width, facts)
