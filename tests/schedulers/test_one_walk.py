"""Products of functions of two products in one walk, and beside it the sum over its rows: right, proved, and said to depend on the order of additions."""

import re
from collections.abc import Callable

import numpy as np
import pytest

import taskfuse as tf
from taskfuse.errors import UnsupportedError
from taskfuse.kir import walk
from taskfuse.kir.nodes import TmaStore
from taskfuse.kir.products import Wgmma
from taskfuse.kir.synchronization import Wait
from taskfuse.schedulers import OneWalkConfig
from tests.schedulers.back_to_backs import arrays, of_both, of_keys


def test_it_is_right_and_proved() -> None:
    """Of two batch axes, with a mask before which all chunks of the second tile of rows are left out."""
    fusion = of_both(heads=(1, 1), sizes=(192, 256), is_causal=True)
    args = arrays(fusion, 0, 0)
    wanted = fusion.evaluate(*args)
    tf.schedulers.one_walk(fusion, OneWalkConfig(2, 1))
    kernel = tf.lower(fusion)
    assert len(re.findall(r"FOR i2 in 0\.\.(max\()?3 - ", str(kernel))) == 3, "in all roles"
    certificate = kernel.verify()
    certificate.require()
    assert not any("not shown" in assumption for assumption in certificate.assumptions)
    assert not kernel.is_deterministic
    for found, expected in zip(kernel.simulate(*args, seed=3), wanted, strict=True):
        np.testing.assert_allclose(found.astype(np.float64), expected.astype(np.float64), rtol=2e-2, atol=2e-2)


def test_no_product_is_made_twice() -> None:
    """Five of them, one in two halves; the copy engine adds the sum over rows in memory. Its code makes the same kernel."""
    fusion, again = of_both(64, 128), of_both(64, 128)
    code = tf.schedulers.one_walk(fusion, OneWalkConfig(3, 2, 2)).code
    kernel = tf.lower(fusion)
    kernel.verify().require()
    assert len({s.acc.buffer for s in walk(kernel) if isinstance(s, Wgmma)}) == 5
    assert [s.combine is not None for s in walk(kernel) if isinstance(s, TmaStore)] == [True]
    assert len([s for s in walk(kernel) if isinstance(s, Wait) and s.barrier.name.startswith("turn")]) == 1
    exec(code, {"fusion": again})
    assert str(tf.lower(again)) == str(kernel)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: of_keys(64, heads=(2,), sizes=(128, 128)), "no product is a float32 output that sums over the rows of the others"),
        (lambda: of_both(sizes=(128, 192)), "its rows are no multiple of 128"),
        (lambda: of_both(sizes=(64, 128)), "its columns are no multiple of 64, or a single chunk"),
        (lambda: of_both(32), "widths are no multiples of 64"),
        (lambda: of_both(128, 192), "the last products have 320 columns"),
        (lambda: of_both(heads=()), "it has no batch axis"),
    ],
)
def test_refused(make: Callable[[], tf.Fusion], reason: str) -> None:
    fusion = make()
    before = str(fusion)
    with pytest.raises(UnsupportedError, match=reason):
        tf.schedulers.one_walk(fusion)
    assert str(fusion) == before
