"""Groups by their lengths, which blocks add up: kernels are proved, and compute what the reference does, whatever the lengths are."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import taskfuse as tf
from taskfuse.check.verify import verify
from taskfuse.errors import LoweringError, UnsupportedError, VerifyError
from taskfuse.kir.faithful import check_faithful
from taskfuse.reports.certificate import Verdict

M, TILE = 40, 16
EXTREMES = (2**31 - 1, -(2**31), -1)


def simt(groups: int, how: tf.PlaceSearch = tf.PlaceSearch.BISECTION) -> tf.Fusion:
    with tf.Fusion("lengths") as fusion:
        a, b = tf.define_tensor((M, 3), name="a"), tf.define_tensor((groups, 3, 16), name="b")
        lengths = tf.table("n", groups, M, lengths=True)
        fusion.add_output(tf.grouped_matmul(a, b, lengths=lengths, tile=TILE))
    lengths.search_by(how)
    tf.schedulers.simt_gemm(fusion)
    return fusion


def tensor_cores(groups: int | str, rows: int | tf.Dim) -> tf.Fusion:
    with tf.Fusion("lengths") as fusion:
        a = tf.define_tensor((rows, 64), tf.bfloat16, name="a")
        b = tf.define_tensor((tf.dim(groups, min=1) if isinstance(groups, str) else groups, 64, 64), tf.bfloat16, name="b")
        fusion.add_output(tf.grouped_matmul(a, b, lengths=tf.table("n", groups, a.shape[0], lengths=True)))
    tf.schedulers.matmul(fusion, tf.schedulers.MatmulConfig(128, 64, stages=3, blocks=4))
    return fusion


def arrays(rows: int, groups: int, k: int, n: int, dtype: tf.DType = tf.float32) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.integers(-3, 4, shape).astype(np.float32).astype(dtype.numpy) for shape in ((rows, k), (groups, k, n))]


def gaps(text: str) -> list[str]:
    """The reasons of what is not proved; without a search for a counterexample."""
    return [o.reason for o in verify(tf.parse_kernel(text)).argument if o.verdict is not Verdict.PROVED]


@cache
def lowered(groups: int, how: tf.PlaceSearch) -> tf.Kernel:
    return tf.lower(simt(groups, how))


@pytest.mark.parametrize("groups", [3, 40])
def test_kernels_are_proved_for_any_lengths(groups: int) -> None:
    kernel = lowered(groups, tf.PlaceSearch.BALLOT)
    certificate = kernel.verify()
    certificate.require()
    assert not [text for text in certificate.assumptions if "tables hold" in text]
    assert f"n: int32[{groups}] lengths of 40 by ballot" in str(kernel)
    assert tf.parse_kernel(kernel.text(witness=True)) == kernel


@given(data=st.data())
@settings(max_examples=15)
def test_whatever_the_lengths_are_a_kernel_computes_the_same(data: st.DataObject) -> None:
    groups = data.draw(st.sampled_from((3, 40)))
    fusion, kernel = simt(groups), lowered(groups, data.draw(st.sampled_from((tf.PlaceSearch.BISECTION, tf.PlaceSearch.BALLOT))))
    lengths = data.draw(st.lists(st.one_of(st.integers(-2, 20), st.sampled_from(EXTREMES)), min_size=groups, max_size=groups))
    given = *arrays(M, groups, 3, 16), np.array(lengths, np.int32)
    assert all((one == two).all() for one, two in zip(fusion.evaluate(*given), kernel.simulate(*given), strict=True))


@pytest.mark.parametrize("lengths", [[100, 0, 300, 7, 113], [0, 0, 0, 0, 520], [520, 0, 0, 0, 0], [0] * 5, [-5, 2**31 - 1, 3, -(2**31), 7]])
def test_a_product_on_tensor_cores(lengths: list[int]) -> None:
    fusion = tensor_cores(5, 520)
    kernel = tf.lower(fusion)
    given = *arrays(520, 5, 64, 64, tf.bfloat16), np.array(lengths, np.int32)
    (found,), (wanted,) = kernel.simulate(*given), fusion.evaluate(*given)
    assert (found == wanted).all()


def test_numbers_of_rows_and_groups_that_calls_say() -> None:
    kernel = tf.lower(tensor_cores("G", tf.dim("M", min=128)))
    assert gaps(kernel.text(witness=True)) == []
    a, b = arrays(150, 2, 64, 64, tf.bfloat16)
    (found,) = kernel.simulate(a, b, np.array([70, 80], np.int32))
    wanted = np.concatenate([x.astype(np.float32) @ m.astype(np.float32) for x, m in zip((a[:70], a[70:]), b, strict=True)])
    assert (found.astype(np.float32) == wanted.astype(tf.bfloat16.numpy).astype(np.float32)).all()


# -- what is wrong --------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("n: int32[3] lengths of 40", "n: int32[3] lengths of 41"),  # of other rows
        ("clamp(n.offsets[", "clamp(n.offsets[1 - "),
        ("upper_bound(n.offsets[k of 4]//16", "upper_bound(n.offsets[k of 4]//8"),
        (" + 1 of 4]", " of 4]"),
    ],
)
def test_wrong_kernels_are_not_proved(old: str, new: str) -> None:
    kernel = lowered(3, tf.PlaceSearch.BISECTION)
    head, body = kernel.text(witness=True).split("\n\n", 1)
    wrong = f"{head.replace(old, new)}\n\n{body}" if old in head.splitlines()[0] else f"{head}\n\n{body.replace(old, new)}"
    assert wrong != f"{head}\n\n{body}"
    assert gaps(kernel.text(witness=True)) == []
    assert gaps(wrong) != []


def test_a_kernel_of_other_lengths_is_not_that_of_its_fusion() -> None:
    kernel = lowered(3, tf.PlaceSearch.BISECTION)
    other = tf.parse_kernel(kernel.text(witness=True).replace("lengths of 40", "lengths of 41"))
    with pytest.raises(VerifyError, match="list of arguments"):
        check_faithful(other, simt(3))


# -- CUDA -----------------------------------------------------------------------------------------------------------------------------


def test_blocks_add_lengths_up_before_anything_else() -> None:
    text = lowered(40, tf.PlaceSearch.BALLOT).cuda_source()
    body = text[text.index("__global__") :]
    summed = body.index("offsets_of_lengths(n_offsets, 40, [&](int _k) { return min(max(n[_k], 0), 40); }, 40);\n  __syncthreads();")
    assert body.index("wait_for_stream();") < summed < body.index("upper_bound_by_ballot(41, [&](int _k) { return (int)min(max(n_offsets[_k]")


def test_only_offsets_that_are_read_are_made() -> None:
    kernel = tf.parse_kernel("KERNEL k(n: int32[4] lengths of 9) -> (y: int32[4])\n  GRID (1, 1, 1)  BLOCK (1, 1, 1)\n\ny[0] = copy(n[0])\n")
    assert "offsets" not in kernel.cuda_source()


@pytest.mark.parametrize("how", [tf.PlaceSearch.BISECTION, tf.PlaceSearch.BALLOT])
def test_kernels_compile(how: tf.PlaceSearch) -> None:
    assert lowered(40, how).cubin()
    assert tf.lower(tensor_cores(40, tf.dim("M", min=128))).cubin()


def test_shared_memory_of_offsets_is_accounted_for() -> None:
    found = tf.schedulers.MatmulConfig(128, 256, stages=4)
    with tf.Fusion() as fusion:
        a, b = tf.define_tensor((4096, 64), tf.bfloat16), tf.define_tensor((4000, 64, 256), tf.bfloat16)
        fusion.add_output(tf.grouped_matmul(a, b, lengths=tf.table("n", 4000, 4096, lengths=True), tile=128))
    with pytest.raises(UnsupportedError, match="bytes of Shared memory"):
        tf.schedulers.matmul(fusion, found)
    tf.schedulers.matmul(fusion)


def many_groups(groups: int) -> tf.Fusion:
    with tf.Fusion("many") as fusion:
        a, b = tf.define_tensor((32768, 64), name="a"), tf.define_tensor((groups, 64, 64), name="b")
        fusion.add_output(tf.grouped_matmul(a, b, lengths=tf.table("n", groups, 32768, lengths=True)))
    return fusion


def test_schedulers_leave_room_for_offsets() -> None:
    few, many = (tf.schedulers.simt_gemm(many_groups(groups)).config for groups in (8, 24_000))
    assert (few.rows, few.columns) > (many.rows, many.columns)
    with pytest.raises(UnsupportedError, match="its tiles take 18432 bytes of Shared memory, of 16440 beside offsets of groups"):
        tf.schedulers.simt_gemm(many_groups(27_000))


def test_rows_leave_room_for_offsets() -> None:
    with tf.Fusion("segments") as fusion:
        x = tf.define_tensor((32768, 64), name="x")
        fusion.add_output(tf.segment_sum(x, tf.table("n", 26_000, 32768, lengths=True)))
    tf.schedulers.reduction(fusion)
    assert tf.lower(fusion).launch_shape().shared_bytes <= 232448


def test_offsets_that_no_block_has_room_for() -> None:
    with tf.Fusion("segments") as fusion:
        fusion.add_output(tf.segment_sum(tf.define_tensor((32768, 64), name="x"), tf.table("n", 40_000, 32768, lengths=True)))
    tf.schedulers.fallback(fusion)
    with pytest.raises(LoweringError) as caught:
        tf.lower(fusion)
    assert "n.offsets: 320008 bytes\nhelp: pass offsets, tf.table(..., rising=True), in place of lengths" in str(caught.value)


def test_fusions_that_are_joined_take_tables_of_lengths_along() -> None:
    joined = tf.horizontal([simt(3), simt(3)], force=True)
    x, y = arrays(M, 3, 3, 16)
    first, second = np.array([7, 0, 33], np.int32), np.array([0, 40, 0], np.int32)
    found = tf.lower(joined).simulate(x, y, first, x, y, second)
    wanted = [out for lengths in (first, second) for out in simt(3).evaluate(x, y, lengths)]
    assert all((one == two).all() for one, two in zip(found, wanted, strict=True))


def test_parts_of_a_fusion_take_tables_of_lengths_along() -> None:
    with tf.Fusion("two") as fusion:
        a, b, c = (tf.define_tensor(s, name=n) for s, n in (((M, 3), "a"), ((3, 3, 16), "b"), ((3, 16, 5), "c")))
        lengths = tf.table("n", 3, M, lengths=True)
        hidden = tf.grouped_matmul(a, b, lengths=lengths, tile=TILE)
        fusion.add_output(tf.grouped_matmul(tf.relu(hidden), c, lengths=lengths, tile=TILE))
    run = tf.compile(fusion, backend="sim")
    given = *arrays(M, 3, 3, 16), *arrays(3, 3, 16, 5)[1:], np.array([7, 0, 33], np.int32)
    assert all((one == two).all() for one, two in zip(run(*given), fusion.evaluate(*given), strict=True))
