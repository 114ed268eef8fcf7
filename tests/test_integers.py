"""Run-time integers as bounds of slices, widths of padding, indices, extents and numbers: NumPy's results in the simulator, proved for all values."""

import pickle
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import taskfuse as tf
from taskfuse.cuda.ranges import dense
from taskfuse.cuda.source import emit
from taskfuse.errors import FusionError, InputError, ShapeError
from taskfuse.ir.scalar import Expr
from taskfuse.kir import Kernel
from taskfuse.reports.certificate import Verdict

EXTENT = 4
"""Elements behind a position that are known to be there."""


@dataclass(frozen=True)
class Use:
    """One use of integers ``a`` and ``b`` of an array ``x``, of taskfuse and of NumPy alike.

    Attributes:
        is_free: it has a meaning for any integers, beyond the array, too.
    """

    name: str
    made: Callable[[Any, Any, Any], Any]
    is_free: bool = False

    def __str__(self) -> str:
        return self.name


def padded(x: Any, before: Any, after: Any) -> Any:
    return tf.pad(x, [(before, after), (0, 0)]) if isinstance(x, tf.TensorView) else np.pad(x, [(before, after), (0, 0)])


def filled(x: Any, a: Any, b: Any) -> Any:
    return tf.full([a + 1, b + 2], a - b) if isinstance(x, tf.TensorView) else np.full([a + 1, b + 2], a - b)


def joined(x: Any, a: Any, b: Any) -> Any:
    parts = [x[:a], x[b : b + EXTENT] * 2, x[a:]]
    return tf.cat(parts, 0) if isinstance(x, tf.TensorView) else np.concatenate(parts)


USES = (
    Use("a part", lambda x, a, b: x[a : a + EXTENT]),
    Use("a part's part", lambda x, a, b: x[a:][:EXTENT]),
    Use("what is before", lambda x, a, b: x[:a], is_free=True),
    Use("what is behind", lambda x, a, b: x[b:], is_free=True),
    Use("between", lambda x, a, b: x[a:b], is_free=True),
    Use("every other between", lambda x, a, b: x[a:b:2], is_free=True),
    Use("from the end", lambda x, a, b: x[-4:a], is_free=True),
    Use("every other", lambda x, a, b: x[a::2], is_free=True),
    Use("back from", lambda x, a, b: x[a::-1], is_free=True),
    Use("a row", lambda x, a, b: x[a]),
    Use("a row and a part", lambda x, a, b: x[b + 1, 1:] + x[a, :-1]),
    Use("padded", padded, is_free=True),
    Use("a part, padded", lambda x, a, b: padded(x[a : a + EXTENT], a, b)),
    Use("numbers", lambda x, a, b: x * a - (b + 1), is_free=True),
    Use("filled", filled, is_free=True),
    Use("joined", joined),
    Use("a sum", lambda x, a, b: x[:a].sum(0) + x[b:].sum(0), is_free=True),
    Use("a product", lambda x, a, b: x[:a].T @ x[:a], is_free=True),
)


def fusion(use: Use, *, is_bounded: bool) -> tf.Fusion:
    with tf.Fusion("used") as made:
        x = tf.define_tensor(["N", 3], name="x")
        most = f"N - {EXTENT}" if is_bounded else None
        made.add_output(use.made(x, tf.define_integer("a", max=most), tf.define_integer("b", max=most)))
    return made


def lowered(made: tf.Fusion) -> Kernel:
    """With a thread for each element."""
    scheduled = tf.copy_fusion(made)[0]
    tf.schedulers.fallback(scheduled)
    return tf.lower(scheduled)


@pytest.mark.parametrize("use", USES, ids=str)
def test_a_use_is_that_of_numpy_and_proved_for_all_values(use: Use) -> None:
    made = fusion(use, is_bounded=not use.is_free)
    kernel = lowered(made)
    assert kernel.verify().is_proved, kernel.verify()
    assert tf.parse_kernel(str(kernel.text(witness=True))) == kernel
    assert "a" in emit(kernel, dense(kernel)).text
    compare(use, made, kernel)


def test_a_slice_between_integers_that_are_in_order() -> None:
    with tf.Fusion("used") as made:
        x = tf.define_tensor(["N", 3], name="x")
        b = tf.define_integer("b", max="N")
        made.add_output(x[tf.define_integer("a", max=b) : b])
    kernel = lowered(made)
    assert kernel.verify().is_proved
    data = np.arange(27, dtype=np.float32).reshape(9, 3)
    for b, a in ((9, 0), (7, 7), (6, 2)):
        assert np.array_equal(kernel.simulate(data, b, a)[0], data[a:b])
    with pytest.raises(InputError, match="a is 7; it must be at least 0, at most b where b is 6"):
        kernel.simulate(data, 6, 7)


def compare(use: Use, made: tf.Fusion, kernel: Kernel) -> None:
    @settings(max_examples=12, deadline=None)
    @given(st.data())
    def check(data: st.DataObject) -> None:
        n = data.draw(st.integers(EXTENT, 9))
        a, b = (data.draw(st.integers(0, n + 2 if use.is_free else n - EXTENT)) for _ in range(2))
        x = np.arange(3.0 * n, dtype=np.float32).reshape(n, 3)
        wanted = use.made(x, a, b)
        (reference,) = made.evaluate(x, a, b)
        assert np.array_equal(reference, wanted)
        assert np.array_equal(kernel.simulate(x, a, b)[0], wanted)

    check()


@pytest.mark.parametrize("use", [u for u in USES if not u.is_free], ids=str)
def test_values_beyond_their_bounds_are_refused(use: Use) -> None:
    made = fusion(use, is_bounded=True)
    kernel = lowered(made)
    x = np.zeros((9, 3), np.float32)
    for a, b in ((6, 0), (0, 6), (-1, 0)):
        with pytest.raises(InputError, match=r"dimension '[ab]' is"):
            made.evaluate(x, a, b)
        with pytest.raises(InputError, match=r"[ab] is -?\d; it must be at least 0, at most N - 4 where N is 9"):
            kernel.simulate(x, a, b)


def test_an_index_without_a_bound_is_refused() -> None:
    with pytest.raises(ShapeError, match="index a is not provably in range for dimension 0"):
        fusion(Use("a row", lambda x, a, b: x[a]), is_bounded=False)


def test_a_kernel_that_reads_beyond_the_bound_is_refuted() -> None:
    """The twin of a right kernel: what the launch checks is all that the proof may use."""
    text = """\
KERNEL k(x: float32[N], pos: integer) -> (y: float32[4])
  DIM N min 4, pos max N - {0}
  GRID (1, 1, 1)  BLOCK (4, 1, 1)

y[threadIdx.x] = copy(x[pos + threadIdx.x])
"""
    good, bad = (tf.parse_kernel(text.format(bound)) for bound in (4, 3))
    assert good.verify().is_proved
    refuted = bad.verify()
    assert refuted.verdict is Verdict.REFUTED
    assert "x: index 4 of axis 0 is outside 0..4" in str(refuted)


def stepped(heads: int = 2) -> tf.Fusion:
    """One step of a decoder: the query meets the keys so far and the new one, which goes into the cache."""
    with tf.Fusion("step") as made:
        cache = tf.define_tensor([heads, "N", 8], name="cache")
        q, k = (tf.define_tensor([heads, EXTENT, 8], name=name) for name in "qk")
        pos = tf.define_integer("pos", max=f"N - {EXTENT}")
        keys = tf.cat([cache[:, :pos], k], dim=1)
        made.add_output(tf.sum(tf.expand_dims(q, 2) * tf.expand_dims(keys, 1), 3))
        made.add_output(tf.copy(k), into=cache[:, pos : pos + EXTENT])
    return made


def test_a_step_with_a_cache() -> None:
    made = stepped()
    run = tf.compile(made)
    assert all(c.is_proved for c in run.certificates)
    kernels = run.kernels
    rng = np.random.default_rng(0)
    cache = rng.standard_normal((2, 16, 8)).astype(np.float32)
    kept = cache.copy()
    for pos in (0, 5, np.int64(12)):
        q, k = (rng.standard_normal((2, EXTENT, 8)).astype(np.float32) for _ in range(2))
        kept[:, int(pos) : int(pos) + EXTENT] = k
        scores, part = run(cache, q, k, pos=pos)
        assert np.allclose(scores, np.einsum("htd,hsd->hts", q, kept[:, : int(pos) + EXTENT]), atol=1e-5)
        assert np.shares_memory(part, cache)
        assert (cache == kept).all()
    assert run.kernels == kernels  # of all positions
    with pytest.raises(InputError, match="dimension 'pos' is 13, more than its maximum 12 = N - 4"):
        run(cache, q, k, 13)
    assert (cache == kept).all()


def test_an_integer_is_an_expression() -> None:
    with tf.Fusion("f"):
        assert isinstance(tf.define_integer("pos"), Expr)


def scaled(name: str, behind: int) -> tf.Fusion:
    with tf.Fusion(name) as made:
        x = tf.define_tensor(["N", 8], name=f"x_{name}")
        made.add_output(x[: tf.define_integer("pos", max=f"N - {behind}") + behind] * 2.0)
    return made


def test_fusions_side_by_side_share_an_integer_and_keep_to_both_bounds() -> None:
    joint = tf.horizontal([scaled("a", 1), scaled("b", 3)], shared=["N", "pos"], force=True)
    assert joint.arguments == ("x_a", "x_b", "pos")
    run = tf.compile(joint)
    x = np.arange(72, dtype=np.float32).reshape(9, 8)
    for pos in (0, 6):
        a, b = run(x, x, pos)
        assert np.array_equal(a, x[: pos + 1] * 2)
        assert np.array_equal(b, x[: pos + 3] * 2)
    with pytest.raises(InputError, match="pos is 7"):
        run(x, x, 7)
    assert tf.horizontal([scaled("a", 1), scaled("b", 1)], force=True).arguments == ("x_a", "x_b", "a_pos", "b_pos")


def test_an_executable_with_integers_is_pickled() -> None:
    x = np.arange(72, dtype=np.float32).reshape(9, 8)
    run = pickle.loads(pickle.dumps(tf.compile(scaled("a", 1))))
    assert run.arguments == ("x_a", "pos")
    assert np.array_equal(run(x, pos=4)[0], x[:5] * 2)


BOUNDS_FROM_THE_END: list[Callable[[Expr], Expr]] = [lambda p: -p, lambda p: -2 * p - 1]


@pytest.mark.parametrize("bound", BOUNDS_FROM_THE_END)
def test_a_bound_that_counts_from_the_end_is_written_with_the_extent(bound: Callable[[Expr], Expr]) -> None:
    """NumPy would count it from the end, but for 0: the extent says so for all values."""
    with tf.Fusion() as fusion:
        x = tf.define_tensor(["N"], name="x")
        p = tf.define_integer("p", max="N")
        with pytest.raises(ShapeError, match="counts from the start, and is never positive"):
            x[bound(p) :]
        with pytest.raises(ShapeError, match="counts from the start, and is never positive"):
            x[: bound(p)]
        fusion.add_output(x[x.shape[0] - p :] * 1.0)
    values = np.arange(7, dtype=np.float32)
    for last in (0, 2, 7):
        assert fusion.evaluate(values, last)[0].tolist() == values[7 - last :].tolist()


def test_what_may_divide_by_zero_is_no_bound_and_no_stride() -> None:
    with tf.Fusion() as fusion:
        x = tf.define_tensor(["N"], name="x")
        p = tf.define_integer("p")
        with pytest.raises(ShapeError, match="divides by p, which may be 0"):
            x[: x.shape[0] // p]
        with pytest.raises(FusionError, match="a stride of tv1 divides by N - 1, which may be 0"):
            fusion.add_output(x * 2.0, strides=["7//(N - 1)"])
