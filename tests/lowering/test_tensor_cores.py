"""Tensor cores in schedules: wgmma and mma.sync with their operands, fragments and batches, from public calls."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import taskfuse as tf
from taskfuse import Fusion, TensorView, atoms
from taskfuse import ParallelType as P
from taskfuse.errors import LoweringError, ScheduleError
from taskfuse.kir.products import LdMatrix, Mma, StMatrix, Wgmma
from taskfuse.kir.synchronization import WaitGroup
from taskfuse.kir.walk import walk
from taskfuse.lowering.plan import PStmt
from taskfuse.lowering.statements import Statements
from taskfuse.schedulers.config import MatmulConfig
from tests.lowering.contracted import BF16, CASES, F32, SHARED, Array, by_tiles, by_warps, factors, lowered, padded_remainder, product
from tests.lowering.running import refused


def product_of(fusion: Fusion, arrays: list[Array]) -> Array:
    """The result in float64."""
    (ref,) = fusion.evaluate(*arrays)
    return np.asarray(ref, np.float64)


@pytest.mark.parametrize("name", CASES)
def test_products_are_exact(name: str) -> None:
    fusion, kernel = lowered(name)
    for seed in range(2):
        arrays = factors(fusion, seed)
        (out,) = kernel.simulate(*arrays, seed=seed)
        assert np.array_equal(np.asarray(out, np.float64), product_of(fusion, arrays))


@pytest.mark.parametrize("name", CASES)
def test_every_kernel_is_proved(name: str) -> None:
    lowered(name)[1].verify().require()


@pytest.mark.parametrize("interleaving", tf.Interleaving)
def test_late_releases_hold_under_other_orders(interleaving: tf.Interleaving) -> None:
    fusion, kernel = lowered("wgmma late 2 of 4")
    arrays = factors(fusion, 5)
    (out,) = kernel.simulate(*arrays, seed=5, interleaving=interleaving)
    assert np.array_equal(np.asarray(out, np.float64), product_of(fusion, arrays))


def test_accumulators_are_set_by_the_first_step() -> None:
    (step,) = (s for s in walk(lowered("wgmma bfloat16")[1]) if isinstance(s, Wgmma))
    assert len(step.accumulate.free) == 2
    assert str(step.accumulate).endswith(" >= 1")


def test_a_late_release_leaves_batches_in_flight() -> None:
    waits = [s.pending for s in walk(lowered("wgmma late 2 of 4")[1]) if isinstance(s, WaitGroup)]
    assert waits == [2, 0]


def test_warps_use_their_instructions() -> None:
    found = {type(s) for s in walk(lowered("mma.sync")[1])}
    assert {Mma, LdMatrix} <= found
    assert not found & {Wgmma, StMatrix}


def test_registers_that_are_computed_without_a_guard_are_not_named_by_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads beyond the end of the result compute, too: what a statement is simplified by holds for them."""
    dropped = 0
    plain = Statements.plain

    def checked(self: Statements, tv: TensorView) -> list[PStmt]:
        nonlocal dropped
        made, guards = plain(self, tv), set(self.indexer.index_maps.of(tv).guards)
        for s in made:
            dropped += len(guards - set(s.guards))
            assert not (guards - set(s.guards)) & s.facts.known
        return made

    monkeypatch.setattr(Statements, "plain", checked)
    with Fusion("rounded") as fusion:
        k, n = tf.dim("K", multiple_of=8), tf.dim("N", multiple_of=8)
        a, b = tf.define_tensor(["M", k], dtype=BF16, name="a"), tf.define_tensor([n, k], dtype=BF16, name="b")
        fusion.add_output(tf.cast(tf.matmul(a, b.T, dtype=F32), BF16))
    tf.schedulers.matmul(fusion, MatmulConfig(128, 64, 64, warpgroups=2, stages=2))
    tf.lower(fusion)
    assert dropped


def too_late() -> Fusion:
    return by_tiles(BF16, late=2, stages=2)


def in_flight_without_a_ring() -> Fusion:
    """A bulk store gives nothing back to another role."""
    with Fusion("store") as fusion:
        y = tf.neg(tf.define_tensor([64, 64], name="x"))
        fusion.add_output(y)
    made = y.cache_before()
    made.set_memory_type(SHARED)
    made.axis(1).parallelize(P.TIDx)
    out = fusion.outputs[0]
    out.set_atom(atoms.TMA_STORE, (0, 1))
    out.in_flight(1)
    return fusion


REFUSED: dict[str, tuple[Callable[[], Fusion], str]] = {
    "remainder": (lambda: padded_remainder(computed=True), "its atom computes whole tiles, the reduction axis of 40 may end inside one"),
    "rows between two multiples": (
        lambda: by_warps(padding=4),
        "rows of its atom's tile start at multiples of 36 elements of tv6, and one access takes 8 that start at a multiple of 8\n"
        "help: tv6.set_allocation_domain(tf.layouts.swizzled(128)), or tf.layouts.padded(8)",
    ),
    "no room": (lambda: padded_remainder(inlined=False), "an atom computes whole tiles of it"),
    "in flight": (
        in_flight_without_a_ring,
        "cannot lower tv1: in_flight(1) releases its operands' slots late, but it reads no ring with mbarriers\n"
        "help: tv1.in_flight(0), or make its operand a boundary of a vertical group on thread types",
    ),
    "too late": (
        too_late,
        "cannot lower the ring of tv6, tv5: its consumer releases slots 2 iterations late, but it has 2 slots\n"
        "help: circular_buffer with more slots than in_flight",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name: str) -> None:
    build, text = REFUSED[name]
    assert text in refused(lambda: tf.lower(build()), LoweringError)


def test_schedule_errors() -> None:
    _, acc = product((64, 64), (64, 64), BF16, "KK", F32, F32)
    text = refused(lambda: acc.set_atom(atoms.wgmma(64, 64, 16), (0, 1, 2)), ScheduleError)
    assert "axis 2 (extent 64) is not the 16 of the atom wgmma_m64n64k16" in text
    text = refused(lambda: acc.in_flight(1), ScheduleError)
    assert "has no atom that completes in batches" in text
    with pytest.raises(ValueError, match=r"wgmma\(64, 12, 16\): no such instruction"):
        atoms.wgmma(64, 12, 16)
    with pytest.raises(ValueError, match=r"mma\(32, 8, 16\): no such instruction"):
        atoms.mma(32, 8, 16)
