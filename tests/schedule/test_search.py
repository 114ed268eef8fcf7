"""search_by: kernels that search in other ways compute the same, are proved, and are safe with any table."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest

import taskfuse as tf
from taskfuse.errors import InputError, ScheduleError
from taskfuse.ir.tensor import TensorView
from tests.errors import untyped

M, TILE = 40, 16


def scheduled(how: tf.PlaceSearch) -> tf.Fusion:
    """Products of 3 groups of 40 rows, in tiles of 16."""
    with tf.Fusion("searched") as fusion:
        a, b = tf.define_tensor((M, 3), name="a"), tf.define_tensor((3, 3, 16), name="b")
        offsets = tf.table("t", 4, M, rising=True)
        fusion.add_output(tf.grouped_matmul(a, b, offsets, tile=TILE))
    made = offsets.search_by(how, **({"divisor": TILE} if how is tf.PlaceSearch.TABLE else {}))
    assert (made is offsets) == (how is not tf.PlaceSearch.TABLE)
    tf.schedulers.simt_gemm(fusion)
    return fusion


def arguments(offsets: list[int], how: tf.PlaceSearch) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    found = [rng.integers(-3, 4, shape).astype(np.float32) for shape in ((M, 3), (3, 3, 16))] + [np.array(offsets, np.int32)]
    return found + [tf.tiles.places(sorted(offsets), TILE, rows=M)] * (how is tf.PlaceSearch.TABLE)


def test_a_ballot_is_a_word_about_the_table() -> None:
    fusion = scheduled(tf.PlaceSearch.BALLOT)
    text = str(fusion)
    assert "table 0..40 rising by ballot" in text
    assert str(tf.parse_fusion(text)) == text
    kernel, plain = tf.lower(fusion), tf.lower(scheduled(tf.PlaceSearch.BISECTION))
    assert tf.parse_kernel(str(kernel)) == kernel != plain
    assert str(kernel).replace(" by ballot", "") == str(plain)
    assert ["upper_bound_by_ballot(" in k.cuda_source() for k in (kernel, plain)] == [True, False]


def test_a_table_of_places_is_read() -> None:
    fusion = scheduled(tf.PlaceSearch.TABLE)
    text = str(fusion)
    assert "table 0..2 = upper_bound(t[k of 4]//16, i0, 0, 40)" in text
    assert str(tf.parse_fusion(text)) == text
    kernel = tf.lower(fusion)
    head, _, body = str(kernel).partition("GRID")
    assert "t_places16: int32[5] = upper_bound(t[k of 4]//16, i0, 0, 40))" in head
    assert "t_places16[" in body
    assert "upper_bound" not in body
    assert tf.parse_kernel(str(kernel)) == kernel
    kernel.verify().require()
    offsets = [0, 4, 29, 40]
    given = arguments(offsets, tf.PlaceSearch.TABLE)
    wanted = np.concatenate([given[0][s:e] @ given[1][g] for g, (s, e) in enumerate(pairwise(offsets))])
    assert (kernel.simulate(*given)[0] == wanted).all()
    assert (fusion.evaluate(*given)[0] == wanted).all()


def test_a_table_that_holds_something_else() -> None:
    """A call on host arrays says so; no access leaves its tensor. What is stored where is not said."""
    fusion = scheduled(tf.PlaceSearch.TABLE)
    given = arguments([0, 4, 29, 40], tf.PlaceSearch.TABLE)
    given[-1][2] = 0
    kernel = tf.lower(fusion)
    run = tf.compile(kernel, backend="sim")
    with pytest.raises(InputError, match=r"table 't_places16' does not hold upper_bound\(.*\): element 2 is 0, not 2"):
        run(*given)
    said: list[str] = []
    for held in ([9] * 5, [-(2**31), 2**31 - 1, -1, 0, 7]):
        given[-1][:] = held
        try:
            kernel.simulate(*given)
        except tf.errors.SimulationError as error:
            said.append(str(error))
    assert len(said) == 2
    assert all("were not written" in text for text in said)  # rows of groups that no tile is of


REFUSED: list[tuple[Callable[[TensorView, TensorView], object], str]] = [
    (lambda t, a: a.search_by(tf.PlaceSearch.BALLOT), "a is not a table"),
    (lambda t, a: t.search_by(untyped("ballot")), "'ballot' is not a kind of search"),
    (lambda t, a: t.search_by(tf.PlaceSearch.TABLE, divisor=0), "0 rows of a tile"),
    (lambda t, a: t.search_by(tf.PlaceSearch.TABLE, divisor=True), "True rows of a tile"),
    (lambda t, a: t.search_by(tf.PlaceSearch.BALLOT, divisor=2), "a divisor of 2"),
    (lambda t, a: [t.search_by(tf.PlaceSearch.TABLE, divisor=2) for _ in range(2)], "there is a table of its places in tiles of 2 rows"),
    (lambda t, a: tf.table("one", 2, 5).search_by(tf.PlaceSearch.TABLE), "one is a table of 2 elements from 0 on"),
    (lambda t, a: tf.table("low", 4, 5, low=-1).search_by(tf.PlaceSearch.TABLE), "low is a table of 4 elements from -1 on"),
]


@pytest.mark.parametrize(
    ("call", "reason"),
    REFUSED,
)
def test_refused(call: Callable[[TensorView, TensorView], object], reason: str) -> None:
    with tf.Fusion("refused"):
        a, t = tf.define_tensor((3,), name="a"), tf.table("t", 4, M, rising=True)
        with pytest.raises(ScheduleError, match=reason):
            call(t, a)
