"""``tf.schedulers.matmul``: a fusion with one matrix product, scheduled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from taskfuse.dtypes import bfloat16, float16, float32
from taskfuse.ir.fusion import Fusion
from taskfuse.schedulers.config import MatmulConfig
from taskfuse.schedulers.contraction import Product, find, unsupported
from taskfuse.schedulers.cost import Estimate, Problem, estimate, rank
from taskfuse.schedulers.loads import told
from taskfuse.schedulers.machine import SMS
from taskfuse.schedulers.schedule import Sizes
from taskfuse.schedulers.script import Script
from taskfuse.schedulers.warp_specialized import WarpSpecialized

OPERANDS = (bfloat16, float16)
"""Dtypes of operands; sums are float32."""


@dataclass(frozen=True, slots=True)
class MatmulSchedule:
    """What :func:`matmul` did.

    Attributes:
        config: the parameters.
        problem: the extents that the cost model took.
        estimate: what it says of ``config``.
        alternatives: all that it chose from, the fastest first.
        given: true if the caller gave the parameters.
        code: the scheduling calls, as Python that takes the unscheduled fusion as ``fusion``.
        notes: what the schedule does beside a plain product, and what would make it faster.
        scheduler: its name.
    """

    config: MatmulConfig
    problem: Problem
    estimate: Estimate
    alternatives: tuple[Estimate, ...]
    given: bool
    code: str
    notes: tuple[str, ...] = ()
    scheduler: str = "matmul"

    @property
    def us(self) -> float:
        """Microseconds that the cost model expects."""
        return self.estimate.us

    def explain(self, shown: int = 5) -> str:
        """Why this schedule: the problem, the choice, and the ``shown`` fastest candidates by the cost model."""
        p, c, e = self.problem, self.config, self.estimate
        size = " x ".join(map(str, ([p.batch] if p.batch > 1 else []) + [p.m, p.n, p.k]))
        lines = [
            f"matmul {size}, operands of {p.itemsize} bytes: {'given' if self.given else 'chosen'}: tiles of {c.tile_m} x {c.tile_n} x {c.tile_k}, "
            f"{c.warpgroups} warpgroup{'s' if c.warpgroups > 1 else ''}, {c.stages} stages, {c.in_flight} in flight, groups of {c.group}, {c.blocks} blocks",
            f"{p.tiles(c)} tiles in {e.waves} wave{'s' if e.waves > 1 else ''}, {e.efficiency:.0%} full; a step of k waits for: {e.bound}; "
            f"{c.shared_bytes(p.itemsize, p.staged) // 1024} KiB of Shared memory; expected: {e.us:.1f} us",
            *self.notes,
            "",
            "     us  tile       warpgroups  stages  waves   full  bound",
        ]
        for a in self.alternatives[:shown]:
            t = a.config
            lines.append(f"{a.us:7.1f}  {t.tile_m:3} x {t.tile_n:<3}  {t.warpgroups:10}  {t.stages:6}  {a.waves:5}  {a.efficiency:5.0%}  {a.bound}")
        return "\n".join(lines)


def matmul(fusion: Fusion, config: MatmulConfig | None = None, *, sizes: Mapping[str, int] | None = None, sms: int = SMS) -> MatmulSchedule:
    """Schedule a fusion with one matrix product and an elementwise epilogue: a persistent, warp-specialized kernel for Hopper (sm_90a).

    The product is any sum over one axis of products of two inputs, each with k or its other axis contiguous; all further axes are batch
    axes. The epilogue may read more inputs (bias, residual, scales) and have several outputs. Reductions of what it makes, over rows, columns
    or both, are outputs or the begin of more elementwise math: such a kernel ends with a barrier of the grid. Any extents will do; operands whose rows are
    provably multiples of 16 bytes are loaded by the copy engine, others by threads, which is slower: the schedule's ``explain`` says so.

    Args:
        fusion: it is changed: tensors, tasks and schedule are added.
        config: the parameters; ``None``: the fastest by the cost model.
        sizes: values of the fusion's dimensions for the cost model; 4096, within what is known, where there is none.
        sms: multiprocessors of the GPU.

    Returns:
        The parameters, why they were chosen, and the schedule as code.

    Raises:
        UnsupportedError: the fusion or the parameters are not of that kind.
    """
    product = find(fusion)
    if product.a.tensor.dtype not in OPERANDS or product.result.dtype is not float32:
        kind = f"products of {product.a.tensor.dtype.name} in {product.result.dtype.name}"
        raise unsupported(fusion, kind, f"multiply {' or '.join(d.name for d in OPERANDS)} in float32: tf.matmul(a, b, dtype=tf.float32)")
    problem = _problem(fusion, product, sizes, sms)
    alternatives = tuple(rank(problem))
    chosen = alternatives[0].config if config is None else config
    chosen.check_fits(problem.itemsize, problem.staged)
    notes = [told(operand.tensor, fusion.facts()) for operand in (product.a, product.b)]
    if product.reductions:
        notes.append(f"{', '.join(r.tensor.name for r in product.reductions)}: parts of each tile in Global memory, added up behind a barrier of the grid")
    script = Script(fusion)
    WarpSpecialized(script, product, chosen).apply()
    return MatmulSchedule(chosen, problem, estimate(problem, chosen), alternatives, config is not None, script.text, tuple(filter(None, notes)))


def _problem(fusion: Fusion, product: Product, sizes: Mapping[str, int] | None, sms: int) -> Problem:
    extent = Sizes(fusion, sizes)
    staged = sum(out.is_bulk for out in product.outputs)
    m, n, k = (extent(product.extent(p)) for p in (product.m, product.n, product.k))
    batch = prod(extent(product.extent(position)) for position in product.batch)
    access = (0 if product.a.is_bulk else product.a.size, 0 if product.b.is_bulk else product.b.size)
    columns = sum(product.m in r.over for r in product.reductions)
    rows = len(product.reductions) - columns
    return Problem(m, n, k, batch, product.a.tensor.dtype.itemsize, staged, len(product.outputs) - staged, sms, access, rows, columns)
