"""Rings in registers whose slots asynchronous reads hold: one batch in each trip of the ring's loop, and a wait for those that hold the next slot."""

import ml_dtypes
import numpy as np
import pytest

import taskfuse as tf
from taskfuse.check import Verdict, verify
from taskfuse.errors import LoweringError, SimulationError
from taskfuse.kir import parse_kernel
from taskfuse.sim import Interleaving
from tests.lowering.contracted import through_registers
from tests.lowering.stepped import state_after
from tests.proofs import proved


def test_each_trip_closes_a_batch_and_waits_for_the_one_that_holds_the_next_slot() -> None:
    kernel = proved(tf.lower(through_registers(slots=2)))
    body = str(kernel).split("# mma\n")[1].split("ARRIVE")[0]
    lines = [line.strip() for line in body.splitlines()]
    inside = lines[lines.index("FOR i9 in 0..2 UNROLL:") :]
    assert [line for line in inside if line.startswith(("FENCE", "COMMIT", "WAIT"))] == ["FENCE wgmma", "COMMIT wgmma", *["WAIT_GROUP wgmma <= 1"] * 2]
    assert "tv2[8*i14 + 4*i18 + 2*i19 + i20 + 16*(i9 % 2)]" in body
    (ring,) = state_after(through_registers(slots=2), "prefetch").rings.held
    assert (ring.tensor.name, ring.reader.name, ring.stages) == ("tv2", "tv4", 2)


@pytest.mark.parametrize(("slots", "steps", "late", "lag"), [(2, 1, 1, 1), (4, 1, 3, 1), (2, 2, 0, 0)])
def test_slots_of_the_other_ring_are_released_when_their_batches_are_complete(slots: int, steps: int, late: int, lag: int) -> None:
    """Of a slot with four batches three may be unfinished when the next is loaded: it is released one iteration late, not three."""
    kernel = proved(tf.lower(through_registers(stages=2, slots=slots, steps=steps, late=late)))
    assert ("IF i8 >= 1" in str(kernel)) is bool(lag)
    a, b = (np.random.default_rng(s).integers(-3, 4, (128, 128)).astype(ml_dtypes.bfloat16) for s in range(2))
    assert np.array_equal(kernel.simulate(a, b, seed=2)[0], np.maximum(a.astype(np.float32), 0) @ b.astype(np.float32).T)


@pytest.mark.parametrize(
    ("slots", "steps", "late", "message"),
    [
        (2, 4, 1, "its ring of 2 slots in registers holds what tv4 reads asynchronously, in a loop of 1 trips"),
        (3, 1, 1, "its ring of 3 slots in registers holds what tv4 reads asynchronously, in a loop of 4 trips"),
        (2, 1, 2, "2 unfinished batches of tv4 hold all 2 slots of its ring in registers"),
    ],
)
def test_refused(slots: int, steps: int, late: int, message: str) -> None:
    with pytest.raises(LoweringError, match=message):
        tf.lower(through_registers(stages=4, slots=slots, steps=steps, late=late))


PLANTED = {
    "one slot too few is free": ("COMMIT wgmma\n          WAIT_GROUP wgmma <= 1", "COMMIT wgmma\n          WAIT_GROUP wgmma <= 2"),
    "one slot for all trips": ("16*(i9 % 2)", "0*(i9 % 2)"),
    "the slot before": ("WGMMA.m64n64k16.bfloat16 tv4[0], tv2[8*i10 + 16*(i9 % 2)]", "WGMMA.m64n64k16.bfloat16 tv4[0], tv2[8*i10 + 16*((i9 + 1) % 2)]"),
}


@pytest.mark.parametrize("name", PLANTED)
def test_planted_mistakes(name: str) -> None:
    """None is proved, and those that overwrite a slot that is read are found by a run in which reads are late."""
    text = tf.lower(through_registers(slots=2)).text(witness=True)
    old, new = PLANTED[name]
    assert old in text, text
    wrong = parse_kernel(text.replace(old, new))
    assert verify(wrong).verdict is not Verdict.PROVED
    a, b = (np.random.default_rng(s).integers(-3, 4, (128, 128)).astype(ml_dtypes.bfloat16) for s in range(2))
    with pytest.raises(SimulationError, match="'tv2' accessed while a wgmma that reads it is in flight"):
        wrong.simulate(a, b, interleaving=Interleaving.ASYNC_LATE)
