"""``tf.schedulers.scatter``: elementwise functions that are added to elements which data names (scatter form of ``tf.index_add`` and others).

    parts of the outputs: [trips of a block, block, thread]

All elements are stored first; then, past a barrier of the grid, each thread updates elements in their place, one after the other. Blocks are as many as
are resident together, and take turns at the points. What is updated more than a few times costs its turns: there, threads wait for each other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod

from taskfuse.ir.expr import Assemble, FirstValid, Gather, Pointwise, Update, View
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.identity import among
from taskfuse.ir.storage import has_code, needed, storage_uses, table
from taskfuse.ir.tensor import TensorView
from taskfuse.ir.types import ParallelType as P
from taskfuse.schedulers.elementwise import at_readers, follow, recompute_all, stored, work
from taskfuse.schedulers.fallback import separate
from taskfuse.schedulers.parameters import Parameters
from taskfuse.schedulers.schedule import Chosen, Option, Sizes, check_call, refuse, tries_parameters
from taskfuse.schedulers.script import Script
from taskfuse.target import DEFAULT, SECTOR_BYTES, Target

THREADS = 256
RESIDENT = 4
"""Blocks of a multiprocessor."""


@dataclass(frozen=True, slots=True)
class ScatterConfig(Parameters):
    """The parameters of a schedule with updates.

    Attributes:
        threads: of a block.
        blocks: of the grid.
    """

    threads: int
    blocks: int

    def __post_init__(self) -> None:
        self.check_fields()
        self.check_threads(self.threads, f"{self.threads} threads")

    @property
    def words(self) -> str:
        """The parameters as readable text."""
        return f"updates in place, {self.blocks} blocks of {self.threads} threads"


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
    recompute_all(script, fusion)
    roots = stored(fusion)
    points = {tv: prod(extent(a.extent) for a in tv.root) for tv in roots}
    most = RESIDENT * extent.target.sms
    chosen = config or ScatterConfig(THREADS, max(1, min(most, -(-max(points.values()) // THREADS))))
    us = _us(fusion, extent, points)
    owner = separate(script)
    script.comment("blocks and threads take turns at the points")
    script.resident_blocks(RESIDENT)
    for root in roots:
        _loops(script, root, chosen)
        follow(script, root, [tv for tv, r in owner.items() if r is root and tv is not root])
    if inner := [e.output for e in needed(fusion) if not among(e.output, roots)]:
        script.inline_most(inner)
    others = (chosen, *(replace(chosen, threads=t) for t in (128, 256, 512)))
    options = tuple(Option(c, us, block=(c.threads, 1, 1), is_cooperative=True) for c in dict.fromkeys(others))
    sent = sum(n for tv, n in points.items() if isinstance(fusion.definition(tv), Update))
    return Chosen("scatter", f"of {sent} updates", options[0], options, config is not None, script.text)


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


def _us(fusion: Fusion, extent: Sizes, points: Mapping[TensorView, int]) -> float:
    """Microseconds: bytes and instructions, the updates' own, the barrier, and the turns at one element."""
    total = work(fusion, extent)
    moved = turns = 0.0
    for out in fusion.outputs:
        expr = fusion.definition(out)
        assert isinstance(expr, Assemble)
        sent = sum(points[p.tensor] for p in expr.parts if isinstance(fusion.definition(p.tensor), Update))
        turns += sent / extent.elements(out)
        moved += min(2.0 * sent * out.dtype.itemsize, float(sent * SECTOR_BYTES))
    return replace(total, stored=total.stored + moved).us(4) + total.target.assumed.grid_us + turns * total.target.assumed.update_us


def _loops(script: Script, root: TensorView, config: ScatterConfig) -> None:
    """[trips, blocks, threads]."""
    call = script.on(root)
    if not root.root:
        return
    for _ in root.root[1:]:
        call.merge(0)
    call.split(0, config.threads)
    call.split(0, config.blocks)
    call.bind(1, P.BIDx).bind(2, P.TIDx)
