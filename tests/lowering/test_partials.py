"""Contractions of tensor cores whose reduced axis is spread over threads and blocks: the registers of their tiles are joined like all accumulators."""

from __future__ import annotations

from dataclasses import replace

import pytest

import taskfuse as tf
from taskfuse import Interleaving, Kernel, TensorView
from taskfuse import ParallelType as P
from taskfuse.errors import LoweringError
from taskfuse.ir.scalar import TRUE, lt, sym
from taskfuse.kir import walk
from taskfuse.kir.products import Wgmma
from taskfuse.kir.synchronization import Barrier, BarrierScope, Commit, WaitGroup
from taskfuse.lowering.index_maps import IndexMap, IndexMaps
from tests.lowering.joined import CASES, INDICES, UNEVEN, Product
from tests.lowering.running import numbers, refused
from tests.testing.ptx.compiled import compared
from tests.thinning import pairs


def check(case: Product, interleaving: Interleaving = Interleaving.RANDOM) -> Kernel:
    """The kernel of a case, which is proved, and computes in modular values what NumPy does."""
    fusion = case.fusion()
    kernel = tf.lower(fusion)
    args = [numbers(*(int(str(e)) for e in tv.shape), dtype=tv.dtype.numpy, seed=k) for k, tv in enumerate(fusion.inputs)]
    (wanted,) = fusion.evaluate(*args, values=tf.MODULAR)
    (found,) = kernel.simulate(*args, seed=3, interleaving=interleaving, values=tf.MODULAR)
    assert (found == wanted).all()
    kernel.verify().require()
    return kernel


@pytest.mark.parametrize(("atom", "parts", "along"), pairs(("wgmma", "mma"), (2, 3), INDICES))
def test_parts_of_k_are_joined(atom: str, parts: int, along: P) -> None:
    check(Product(atom, along, parts))


@pytest.mark.parametrize("name", CASES)
def test_joins(name: str) -> None:
    check(CASES[name])


@pytest.mark.parametrize("interleaving", Interleaving)
def test_joins_hold_under_every_order(interleaving: Interleaving) -> None:
    check(CASES["more registers than have room at once"], interleaving)


def test_registers_share_barriers_as_far_as_their_parts_have_room() -> None:
    """64 x 64 float32 of two warpgroups are 32 KiB: two rounds of 16 registers each, where neighboring threads have neighboring places."""
    kernel = check(CASES["more registers than have room at once"])
    (part,) = (b for b in kernel.buffers if b.name.endswith(".part"))
    assert tuple(map(str, part.shape)) == ("2", "16", "128")
    assert sum(isinstance(s, Barrier) and s.scope is BarrierScope.BLOCK for s in walk(kernel)) == 3  # for operands, in a round, before the next


def test_what_is_issued_in_a_loop_is_committed_before_it_is_retired() -> None:
    """Operands that are copied before a loop over tiles: the batch is one iteration's, whose end waits for it."""
    kernel = check(Product("wgmma", P.Serial, rows=2))
    marks = [type(s) for s in walk(kernel) if isinstance(s, Commit | WaitGroup)]
    assert marks == [Commit, WaitGroup]


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
    reading = IndexMaps.reading

    def guarded(maps: IndexMaps, tv: TensorView) -> IndexMap:
        found = reading(maps, tv)
        return replace(found, guards=(*found.guards, lt(sym("at.TIDx.t0") // part, 1))) if tv.name == "tv3" else found

    monkeypatch.setattr(IndexMaps, "reading", guarded)
    fusion = Product("wgmma", P.TIDx).fusion()
    if text is None:
        tf.lower(fusion)
    else:
        assert refused(lambda: tf.lower(fusion), LoweringError) == f"cannot lower tv3: {text}"
