"""Orders of attention that went wrong elsewhere: each is planted in a right kernel, and refuted."""

from functools import cache

import pytest

import taskfuse as tf
from taskfuse.check import Verdict
from taskfuse.kir import parse_kernel, to_text
from taskfuse.schedulers import AttentionConfig
from tests.executions import changed
from tests.schedulers.attentions import attention


@cache
def right() -> str:
    fusion = attention(is_causal=True)
    tf.schedulers.attention(fusion, AttentionConfig(2, 32, 1))
    return to_text(tf.lower(fusion), witness=True)


KEYS = "WAIT ch1.full[ch1.c.slot] parity ch1.c.parity\n"
VALUES = "WAIT ch2.full[ch2.c.slot] parity ch2.c.parity\n"
READ = "WAIT_GROUP wgmma <= 0\n      SYNC warp  # before one lane arrives for the warp\n      IF threadIdx.x % 32 == 0:\n        ARRIVE ch{k}.empty"
TRIPS = "FOR i9 in 0..min(ceildiv(N, 32), 4*ceildiv(M, 128) - 4*blockIdx.x):"
WRONG = {
    "a warpgroup relies on the wait of another": (KEYS, "IF threadIdx.y == 1:\n        " + KEYS),
    "nobody waits for the values": (VALUES, "PASS\n"),
    "keys are released while they are read": (READ.format(k=1), READ.format(k=1).replace("WAIT_GROUP wgmma <= 0", "WAIT_GROUP wgmma <= 1")),
    "values are released while they are read": (READ.format(k=2), READ.format(k=2).replace("WAIT_GROUP wgmma <= 0", "WAIT_GROUP wgmma <= 1")),
    "one warpgroup releases the keys": ("  ARRIVE ch1.empty[ch1.c.slot]", "  IF threadIdx.y == 1:\n          ARRIVE ch1.empty[ch1.c.slot]"),
    "values arrive as keys": ("on ch2.full[ch2.p.slot]", "on ch1.full[ch1.p.slot]"),
}


def test_it_is_right() -> None:
    assert parse_kernel(right()).verify().is_proved


@pytest.mark.parametrize("name", WRONG)
def test_refuted(name: str) -> None:
    old, new = WRONG[name]
    assert parse_kernel(changed(right(), old, new)).verify().verdict is Verdict.REFUTED


@pytest.mark.parametrize(("old", "new"), [("IF 32*i9 + 31 < N &&", "IF 32*i9 + 30 < N &&"), ("&& 32*i9 + 31 <= ", "&& 32*i9 - 1 <= ")])
def test_a_chunk_that_is_cut_is_not_taken_for_whole(old: str, new: str) -> None:
    """By the end of the keys, and by the diagonal. It takes more rows to show than the small launches have."""
    found = parse_kernel(changed(right(), old, new)).verify()
    assert not found.is_proved
    assert "the case of its definition that holds is unknown" in str(found)


@pytest.mark.parametrize(("trips", "which"), [("- 1", "loads"), ("+ 1", "products"), ("- 1", "both")])
def test_all_roles_walk_as_far(trips: str, which: str) -> None:
    """The loads or the products alone end elsewhere; or both do, and the sums are others."""
    text = right()
    head, loads, tail = text.partition(TRIPS)
    assert TRIPS in tail
    other = TRIPS.replace("4*ceildiv(M, 128) - 4*blockIdx.x", f"4*ceildiv(M, 128) - 4*blockIdx.x {trips}")
    bad = {"loads": head + other + tail, "products": head + loads + tail.replace(TRIPS, other), "both": text.replace(TRIPS, other)}
    assert parse_kernel(bad[which]).verify().verdict is Verdict.REFUTED
