"""``tf.schedulers.matmul``: a fusion with one matrix product, scheduled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from taskfuse.dtypes import DType, float32
from taskfuse.ir.fusion import Fusion
from taskfuse.kir.products import accumulator_dtype
from taskfuse.schedulers.config import MatmulConfig
from taskfuse.schedulers.contraction import Product, find, unsupported
from taskfuse.schedulers.cost import Estimate, Problem, estimate, rank
from taskfuse.schedulers.loads import told
from taskfuse.schedulers.machine import SMS
from taskfuse.schedulers.schedule import Sizes, check_call, tries_parameters
from taskfuse.schedulers.script import Script
from taskfuse.schedulers.warp_specialized import WarpSpecialized

EITHER_MAJOR_BYTES = 2
"""Bytes of the elements that ``wgmma`` takes with k or the other axis contiguous; of all others k must be (PTX ISA, "wgmma.mma_async")."""


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
            f"matmul {size}, operands of {p.itemsize} byte{'s' if p.itemsize > 1 else ''}: {'given' if self.given else 'chosen'}: "
            f"tiles of {c.tile_m} x {c.tile_n} x {c.tile_k}, {_warpgroups(c)}, {c.stages} stages, {c.in_flight} in flight, groups of {c.group}, "
            f"{c.blocks} blocks{f' in clusters of {c.cluster}' if c.cluster > 1 else ''}",
            f"{p.tiles(c)} tiles in {e.waves} wave{'s' if e.waves > 1 else ''}, {e.efficiency:.0%} full; a step of k waits for: {e.bound}; "
            f"{c.shared_bytes(p.itemsize, p.staged) // 1024} KiB of Shared memory; expected: {e.us:.1f} us",
            *self.notes,
            "",
            "     us  tile       kind         warpgroups  cluster  stages  waves   full  bound",
        ]
        for a in self.alternatives[:shown]:
            t = a.config
            shape = f"{t.tile_m:3} x {t.tile_n:<3}  {t.kind.value:11}  {t.warpgroups:10}  {t.cluster:7}  {t.stages:6}"
            lines.append(f"{a.us:7.1f}  {shape}  {a.waves:5}  {a.efficiency:5.0%}  {a.bound}")
        return "\n".join(lines)


def _warpgroups(config: MatmulConfig) -> str:
    if config.warpgroups == 1:
        return "1 warpgroup"
    return f"{config.warpgroups} warpgroups {'that take turns' if config.takes_turns else 'that share them'}"


@tries_parameters
def matmul(fusion: Fusion, config: MatmulConfig | None = None, *, sizes: Mapping[str, int] | None = None, sms: int = SMS, tf32: bool = False) -> MatmulSchedule:
    """Schedule a fusion with one matrix product and an elementwise epilogue: a persistent, warp-specialized kernel for Hopper (sm_90a).

    The product is any sum over one axis of products of two inputs; all further axes are batch axes. Operands of 16-bit floats have k or their
    other axis contiguous, those of 8-bit floats, 8-bit integers and float32 have k. Sums are float32, of integers int32. Products of 8-bit floats
    are added up in fewer bits than float32 has, as Hopper does it. The epilogue may read more inputs (bias, residual, scales) and have several
    outputs. Reductions of what it makes, over rows, columns or both, are outputs or the begin of more elementwise math: such a kernel ends with a
    barrier of the grid. Any extents will do; operands whose rows are provably multiples of 16 bytes are loaded by the copy engine, others by
    threads, which is slower: the schedule's ``explain`` says so.

    Args:
        fusion: it is changed: tensors, tasks and schedule are added.
        config: the parameters; ``None``: the fastest by the cost model.
        sizes: values of the fusion's dimensions for the cost model; 4096, within what is known, where there is none.
        sms: multiprocessors of the GPU.
        tf32: multiply float32 as tf32: tensor cores take sign, exponent and the first 10 bits of the fraction. Without it float32 is refused.

    Returns:
        The parameters, why they were chosen, and the schedule as code.

    Raises:
        UnsupportedError: the fusion or the parameters are not of that kind.
    """
    check_call(fusion, "matmul", config, MatmulConfig)
    product = find(fusion)
    _check_types(fusion, product, tf32)
    problem = _problem(fusion, product, sizes, sms)
    alternatives = tuple(rank(problem))
    chosen = alternatives[0].config if config is None else config
    chosen.check_fits(
        problem.itemsize,
        problem.staged,
        columns_contiguous=problem.columns_contiguous,
        columns_by_threads=problem.columns_by_threads,
        is_reduced=problem.is_reduced,
    )
    notes = [told(operand.tensor, fusion.facts()) for operand in (product.a, product.b)]
    if product.reductions:
        notes.append(f"{', '.join(r.tensor.name for r in product.reductions)}: parts of each tile in Global memory, added up behind a barrier of the grid")
    script = Script(fusion)
    WarpSpecialized(script, product, chosen).apply()
    return MatmulSchedule(chosen, problem, estimate(problem, chosen), alternatives, config is not None, script.text, tuple(filter(None, notes)))


def _check_types(fusion: Fusion, product: Product, tf32: bool) -> None:
    factor, result = product.a.tensor.dtype, product.result.dtype
    sums = accumulator_dtype(factor, product.b.tensor.dtype)
    if sums is not result:
        raise unsupported(fusion, f"products of {factor.name} in {result.name}", _what_there_is(sums))
    if factor is float32 and not tf32:
        help = "if 10 bits of the factors' fractions are enough: tf.schedulers.matmul(fusion, tf32=True)"
        raise unsupported(fusion, "products of float32: tensor cores read its upper 19 bits", help)
    for operand in (product.a, product.b):
        if not operand.is_k_major and factor.itemsize != EITHER_MAJOR_BYTES:
            raise unsupported(
                fusion,
                f"k is not the last axis of {operand.tensor!r}: tensor cores take elements of {factor.itemsize} byte{'s' if factor.itemsize > 1 else ''} "
                "with k contiguous only",
                f"pass {operand.tensor.name} transposed, as an array of its own",
            )


def _what_there_is(sums: DType | None) -> str:
    if sums is None:
        return "tensor cores multiply bfloat16, float16, 8-bit floats, 8-bit integers, and float32 as tf32"
    return f"sum them in {sums.name}: tf.matmul(a, b, dtype=tf.{sums.name})"


def _problem(fusion: Fusion, product: Product, sizes: Mapping[str, int] | None, sms: int) -> Problem:
    extent = Sizes(fusion, sizes)
    staged = sum(out.is_bulk for out in product.outputs)
    m, n, k = (extent(product.extent(p)) for p in (product.m, product.n, product.k))
    batch = prod(extent(product.extent(position)) for position in product.batch)
    direct = len(product.outputs) - staged
    access = (0 if product.a.is_bulk else product.a.size, 0 if product.b.is_bulk else product.b.size)
    columns = sum(product.m in r.over for r in product.reductions)
    rows = len(product.reductions) - columns
    itemsize = product.a.tensor.dtype.itemsize
    return Problem(m, n, k, batch, itemsize, staged, direct, sms, not product.b.is_k_major, access, rows, columns, len(product.sides))
