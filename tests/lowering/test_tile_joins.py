"""Contractions of tensor cores whose reduced axis is spread over threads and blocks: the registers of their tiles are joined like all accumulators."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

import taskfuse as tf
from taskfuse import DType, Fusion, Kernel, MemoryType, Scheduler, TensorView, atoms
from taskfuse import ParallelType as P
from taskfuse.errors import LoweringError
from taskfuse.ir.scalar import TRUE, lt, sym
from taskfuse.kir import walk
from taskfuse.kir.nodes import Barrier, BarrierScope, Commit, Retire, Wgmma
from taskfuse.lowering.environments import Environment, Environments
from tests.lowering.running import numbers, refused
from tests.testing.ptx.compiled import compared

INDICES = (P.BIDx, P.BIDz, P.TIDx, P.TIDy, P.TIDz, P.CIDx)


@dataclass(frozen=True)
class Product:
    """``d = a @ b.T (+ bias)`` by an atom, with the tiles of k spread over an index.

    Attributes:
        along: the index; the tiles of k are split into [parts, rest] over it.
        parts: how many of its values get a part.
        tiles: of k.
        rows, columns: tiles of the result.
        n: columns of a tile.
        order: of [rows, part, step, columns], outermost first.
        rows_on: the index of the tiles of rows.
    """

    atom: str
    along: P
    parts: int = 2
    tiles: int = 0
    rows: int = 1
    columns: int = 1
    n: int = 16
    dtype: DType = tf.bfloat16
    bias: bool = False
    order: tuple[int, int, int, int] = (0, 1, 2, 3)
    rows_on: P = P.Serial
    inner: bool = False

    def fusion(self) -> Fusion:
        """The fusion with its schedule."""
        height, k = (64, 32 // self.dtype.itemsize) if self.atom == "wgmma" else (16, 32 // self.dtype.itemsize)
        depth = k if self.atom == "mma" else 4 * k
        tiles = self.tiles or self.parts
        wide = tf.float32 if self.dtype.is_float else tf.int32
        with Fusion("product") as fusion:
            a = tf.define_tensor([height * self.rows, depth * tiles], dtype=self.dtype, name="a")
            b = tf.define_tensor([self.n * self.columns, depth * tiles], dtype=self.dtype, name="b")
            acc = tf.matmul(a, b.T, dtype=wide)
            c = tf.define_tensor([self.n * self.columns], dtype=wide, name="c") if self.bias else None
            d = tf.copy(acc) if c is None else acc + tf.broadcast_to(tf.expand_dims(c, (0,)), acc.shape)
            fusion.add_output(d)
        n = self.n if self.atom == "wgmma" else 8
        acc.split(0, height).split(2, self.n).split(4, depth).split(4, self.parts, inner=self.inner)  # [rows, m, columns, n, part, step, k]
        part, step = (5, 4) if self.inner else (4, 5)
        if self.atom == "wgmma":
            acc.split(6, k).reorder([*((0, part, step, 2)[at] for at in self.order), 6, 1, 3, 7])
            acc.set_atom(atoms.wgmma(64, n, k), (-3, -2, -1))
        else:
            acc.split(3, n).reorder([*((0, part + 1, step + 1, 2)[at] for at in self.order), 3, 1, 4, 7])
            acc.set_atom(atoms.mma(16, n, k), (-3, -2, -1))
        acc.axis(4).parallelize(P.Unroll)
        for axis, p in ((self.order.index(1), self.along), (self.order.index(0), self.rows_on)):
            acc.axis(axis).parallelize(p)
        (self._by_warps if self.atom == "mma" else self._by_warpgroups)(a, b, k)
        d.split(0, height).split(2, self.n).reorder([0, 2, 1, 3]).fragment((2, 3))
        d.axis(0).parallelize(self.rows_on)
        return fusion

    def _by_warpgroups(self, a: TensorView, b: TensorView, k: int) -> None:
        for tile in (a.cache_after(), b.cache_after()):
            tile.set_memory_type(MemoryType.Shared)
            tile.split(1, 4 * k).reorder([1, 0, 2])
            tile.set_allocation_domain(tf.layouts.swizzled(128))
            tile.split(1, 16).axis(2).parallelize(P.TIDx)

    def _by_warps(self, a: TensorView, b: TensorView, k: int) -> None:
        step = P.Unroll
        for source, rows in ((a, self.rows_on), (b, P.Unroll)):
            tile = source.cache_after()
            tile.set_memory_type(MemoryType.Shared)
            tile.split(0, 16).axis(1).parallelize(P.TIDx)
            factor = tile.cache_after()
            factor.split(0, 16).split(2, k).split(2, self.parts, inner=self.inner)  # [rows, 16, part, step, k]
            part, rest = (3, 2) if self.inner else (2, 3)
            factor.reorder([part, 0, rest, 1, 4] if self.order.index(1) < self.order.index(0) else [0, part, rest, 1, 4])
            at = 0 if self.order.index(1) < self.order.index(0) else 1
            for axis, p in ((at, self.along), (1 - at, P.Unroll if rows is P.Serial else rows), (2, step)):
                factor.axis(axis).parallelize(p)
            factor.set_atom(atoms.LDMATRIX_X4, (-2, -1))
            if source is b:
                factor.set_allocation_domain(tf.layouts.fragment(halves_first=True))


def check(case: Product, scheduler: Scheduler = Scheduler.RANDOM) -> Kernel:
    """The kernel of a case, which is proved, and computes in the integer ring what NumPy does."""
    fusion = case.fusion()
    kernel = tf.lower(fusion)
    args = [numbers(*(int(str(e)) for e in tv.shape), dtype=tv.dtype.numpy, seed=k) for k, tv in enumerate(fusion.inputs)]
    (wanted,) = fusion.evaluate(*args, values=tf.RING)
    (found,) = kernel.simulate(*args, seed=3, scheduler=scheduler, values=tf.RING)
    assert (found == wanted).all()
    kernel.verify().require()
    return kernel


@pytest.mark.parametrize("along", INDICES, ids=lambda p: p.value)
@pytest.mark.parametrize("parts", [2, 3])
@pytest.mark.parametrize("atom", ["wgmma", "mma"])
def test_parts_of_k_are_joined(atom: str, parts: int, along: P) -> None:
    check(Product(atom, along, parts))


CASES = {
    "several tiles of a thread": Product("wgmma", P.BIDz, rows=2, columns=2, bias=True),
    "several tiles of a warp": Product("mma", P.TIDy, rows=2, columns=2, bias=True),
    "parts outside of the tiles": Product("wgmma", P.TIDy, rows=2, columns=2, order=(1, 0, 3, 2)),
    "more registers than have room at once": Product("wgmma", P.TIDy, n=64),
    "integers": Product("wgmma", P.TIDz, dtype=tf.int8, n=32, tiles=4),
    "integers of other blocks": Product("wgmma", P.CIDx, dtype=tf.int8, n=32, tiles=5, bias=True),
    "rows on blocks": Product("mma", P.BIDy, rows=3, rows_on=P.BIDx, tiles=4, inner=True),
    "rows on the same index, inside": Product("wgmma", P.TIDy, rows=2, rows_on=P.TIDy, order=(1, 0, 2, 3)),
    "rows on the same index, inside, of blocks": Product("wgmma", P.BIDx, rows=2, rows_on=P.BIDx, tiles=3, order=(1, 0, 2, 3)),
    "an uneven number of steps": Product("wgmma", P.BIDz, parts=3, tiles=5),
    "steps outside of the parts": Product("wgmma", P.TIDy, parts=2, tiles=5, order=(2, 1, 0, 3), inner=True),
    "parts without a step": Product("wgmma", P.BIDz, parts=4, tiles=5),
    "threads without a step": Product("wgmma", P.TIDy, parts=4, tiles=5),
    "warpgroups of one index": Product("wgmma", P.TIDx, parts=2, tiles=3),
    "warpgroups of one index without a step": Product("wgmma", P.TIDx, parts=4, tiles=5),
}
UNEVEN = ("steps outside of the parts", "threads without a step", "warpgroups of one index", "warpgroups of one index without a step")
"""Threads whose parts have other numbers of steps."""


@pytest.mark.parametrize("name", CASES)
def test_joins(name: str) -> None:
    check(CASES[name])


@pytest.mark.parametrize("scheduler", Scheduler)
def test_joins_hold_under_every_order(scheduler: Scheduler) -> None:
    check(CASES["more registers than have room at once"], scheduler)


def test_registers_share_barriers_as_far_as_their_parts_have_room() -> None:
    """64 x 64 float32 of two warpgroups are 32 KiB: two rounds of 16 registers each, where neighboring threads have neighboring places."""
    kernel = check(CASES["more registers than have room at once"])
    (part,) = (b for b in kernel.buffers if b.name.endswith(".part"))
    assert tuple(map(str, part.shape)) == ("2", "16", "128")
    assert sum(isinstance(s, Barrier) and s.scope is BarrierScope.BLOCK for s in walk(kernel)) == 3  # for operands, in a round, before the next


def test_what_is_issued_in_a_loop_is_committed_before_it_is_retired() -> None:
    """Operands that are copied before a loop over tiles: the batch is one iteration's, whose end waits for it."""
    kernel = check(Product("wgmma", P.Serial, rows=2))
    marks = [type(s) for s in walk(kernel) if isinstance(s, Commit | Retire)]
    assert marks == [Commit, Retire]


@pytest.mark.parametrize("name", CASES)
def test_accumulators_are_set_where_the_first_step_may_be_missing(name: str) -> None:
    kernel = tf.lower(CASES[name].fusion())
    products = [s for s in walk(kernel) if isinstance(s, Wgmma)]
    assert all((s.accumulate is TRUE) == name.endswith("without a step") for s in products)


REFUSED = {
    "rows between the parts and the lanes": (
        Product("wgmma", P.TIDx, rows=2, rows_on=P.TIDx),
        "cannot lower tv3: the atom accumulates in registers\nhelp: leave its memory type unset, and copy the result with cache_before()",
    ),
    "tiles that are not there": (
        Product("mma", P.BIDz, parts=3, tiles=4),
        "cannot lower tv8: its atom computes whole tiles, and may read tv7 past the end of its storage: 32*at.BIDz.t0 + 16*i23 + v1 is not provably below 64\n"
        "help: split by divisors, or split tv7 alike, so that its tiles are whole, too",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name: str) -> None:
    case, text = REFUSED[name]
    assert refused(lambda: tf.lower(case.fusion()), LoweringError) == text


@pytest.mark.filterwarnings("ignore:kernel 'product' for sm_90a. wgmma")
@pytest.mark.parametrize("name", ["several tiles of a thread", "several tiles of a warp", "more registers than have room at once", "integers"])
def test_the_cuda_text_compiles(name: str) -> None:
    """Around barriers of the grid the assembler waits for each multiplication of its own accord, and says so."""
    assert len(tf.lower(CASES[name].fusion()).cubin("sm_90a")) > 0


@pytest.mark.parametrize("name", UNEVEN)
def test_threads_with_other_numbers_of_steps_multiply_side_by_side(name: str) -> None:
    """Their warps branch around a multiplication, which must not make the assembler run all of them one by one: it would say so."""
    kernel = tf.lower(CASES[name].fusion())
    assert len(kernel.cubin("sm_90a")) > 0
    assert "if (wgmma_agreed(" in kernel.cuda_source()
    assert compared(kernel).difference is None


@pytest.mark.parametrize(
    ("part", "text"),
    [(128, None), (64, "the atom wgmma_m64n16k16 would run under the guard at.TIDx.t0//64 < 1, which splits its lanes\nhelp: split by divisors")],
)
def test_a_guard_selects_whole_warpgroups(part: int, text: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    reading = Environments.reading

    def guarded(environments: Environments, tv: TensorView) -> Environment:
        env = reading(environments, tv)
        return replace(env, guards=(*env.guards, lt(sym("at.TIDx.t0") // part, 1))) if tv.name == "tv3" else env

    monkeypatch.setattr(Environments, "reading", guarded)
    fusion = Product("wgmma", P.TIDx).fusion()
    if text is None:
        tf.lower(fusion)
    else:
        assert refused(lambda: tf.lower(fusion), LoweringError) == f"cannot lower tv3: {text}"
