"""Sums of all elements, whose terms threads of many blocks take: each bad twin is not proved, its right twin is."""

from functools import cache

import pytest

import taskfuse as tf
from taskfuse.check import Layer, Verdict
from taskfuse.check.verify import verify
from taskfuse.kir import Kernel, parse_kernel

SIZES = [{"N": 1, "M": 1}, {"N": 20, "M": 30}, {"N": 3, "M": 9000}, {"N": 1030, "M": 2050}]


@cache
def text() -> str:
    """A sum over both axes, joined across the threads of a block and across 128 blocks."""
    with tf.Fusion("total") as fusion:
        x = tf.define_tensor(["N", "M"], dtype=tf.float32, name="x")
        fusion.add_output(x.sum())
    (kernel,) = tf.compile(fusion, backend="sim").kernels
    return kernel.text(witness=True)


def edited(*changes: tuple[str, str]) -> Kernel:
    made = text()
    for old, new in changes:
        assert old in made, old
        made = made.replace(old, new)
    return parse_kernel(made)


def gaps(kernel: Kernel) -> list[str]:
    return [o.reason for o in kernel.verify().argument if o.layer is Layer.VALUES and o.verdict is not Verdict.PROVED]


def test_merged_axes_in_parts_of_threads_and_blocks() -> None:
    kernel = edited()
    kernel.verify().require()
    for sizes in SIZES:
        verify(kernel, sizes).require()


GUARD = "IF 8192*blockIdx.y + 1048576*i1 + 1024*i2 + threadIdx.x < M*N && "
JOIN = "FOR tv1.BIDy in 0..128:"
STORE = "tv1.blocks[blockIdx.y, threadIdx.x] = copy(tv1.acc)  ~ part tv1\n"
TERM = "~ term tv1[(8192*blockIdx.y + 1048576*i1 + 1024*i2 + threadIdx.x)//M, (8192*blockIdx.y + 1048576*i1 + 1024*i2 + threadIdx.x) % M]"
TWINS = {
    "a block takes no terms": ((GUARD, GUARD + "blockIdx.y < {} && "), "127", "128", "is not visited"),
    "blocks take them in fewer trips": (
        (GUARD, GUARD + "i1 < {} && "),
        "ceildiv(M*N, 1048576) - blockIdx.y//127",
        "ceildiv(M*N, 1048576) + blockIdx.y",
        "- tv1.BIDy//127 leaves is not known",
    ),
    "the last element is left out": ((GUARD, GUARD.replace("< M*N", "< {}")), "M*N - 1", "M*N", "< M*N - 1 leaves is not known"),
    "a block joins no result": ((JOIN, JOIN.replace("128", "{}")), "127", "128", "is not visited"),
    "a block puts none into the workspace": (
        (STORE, "IF blockIdx.y < {}:\n  " + STORE),
        "127",
        "128",
        "joined under tv1.BIDy < 127, which is not known",
    ),
}


@pytest.mark.parametrize("name", TWINS)
def test_every_block_takes_its_terms(name: str) -> None:
    (old, new), bad, good, reason = TWINS[name]
    wrong, right = edited((old, new.format(bad))), edited((old, new.format(good)))
    right.verify().require()
    assert any(reason in gap for gap in gaps(wrong)), gaps(wrong)
    for sizes in SIZES[:2]:
        verify(right, sizes).require()


def test_results_are_of_blocks_that_there_are() -> None:
    wrong = edited(("tv1.blocks: float32[128, 1024]", "tv1.blocks: float32[129, 1024]"), (JOIN, JOIN.replace("128", "129")))
    assert "it takes partial results of blocks that there may not be: blockIdx.y = tv1.BIDy" in gaps(wrong)
    edited(("tv1.blocks: float32[128, 1024]", "tv1.blocks: float32[129, 1024]")).verify().require()


def test_quotient_and_remainder_are_by_the_extent_of_their_axis() -> None:
    wrong = edited((TERM, TERM.replace("% M]", "% N]")))
    assert gaps(wrong)


@pytest.mark.parametrize(("place", "is_right"), [("N - 1", False), ("N", True)])
def test_a_later_result_that_may_lie_in_the_same_place_hides_an_older_one(place: str, is_right: bool) -> None:
    kernel = edited(
        ("tv1.blocks: float32[128, 1024]", "tv1.blocks: float32[N + 1, 128, 1024]"),
        (STORE, STORE.replace("[blockIdx.y", "[0, blockIdx.y")),
        (
            "tv1.acc = copy(0.0)  ~ part tv1\nSYNC grid",
            f"tv1.acc = copy(0.0)  ~ part tv1\ntv1.blocks[{place}, blockIdx.y, threadIdx.x] = copy(tv1.acc)  ~ part tv1\nSYNC grid",
        ),
        ("tv1.blocks[tv1.BIDy", "tv1.blocks[0, tv1.BIDy"),
    )
    assert gaps(kernel) == ([] if is_right else [f"whether the place that is read at 0 is the one that is written at {place} is not known"])
    assert verify(kernel, {"N": 1, "M": 40}).is_proved is is_right
    assert verify(kernel, {"N": 3, "M": 40}).is_proved
