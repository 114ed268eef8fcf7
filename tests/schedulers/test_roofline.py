"""What no kernel takes less than, and the search that goes on where one takes much more."""

from dataclasses import replace
from typing import Any

import pytest

import taskfuse as tf
from taskfuse.count import Count, count
from taskfuse.schedulers.roofline import bytes_of, roofline
from taskfuse.schedulers.schedule import SANE, Chosen, Sizes
from taskfuse.schedulers.segmenter import choose_segments
from taskfuse.target import DEFAULT
from tests.schedulers.fusions import tensor
from tests.schedulers.tried import built


def bound(fusion: tf.Fusion) -> float:
    return roofline(fusion, Sizes(fusion, None, DEFAULT)) - DEFAULT.launch_us


def test_bytes_of_inputs_and_outputs() -> None:
    fusion = built(lambda: [tf.neg(tensor("x", 4096, 4096))])
    assert bound(fusion) == pytest.approx(2 * 4 * 4096**2 / DEFAULT.dram_bytes_per_us)


def test_what_nobody_reads_is_not_loaded() -> None:
    with tf.Fusion("one of two") as fusion:
        _, x = tensor("unread", 4096, 4096), tensor("x", 4096, 4096)
        fusion.add_output(tf.neg(x))
    assert bytes_of(fusion, Sizes(fusion, None, DEFAULT)) == 2 * 4 * 4096**2


def test_of_a_table_only_what_is_read() -> None:
    fusion = built(lambda: [tf.take(tensor("table", 1 << 20, 64), tensor("at", 128, dtype=tf.int64), 0)])
    assert bound(fusion) == pytest.approx((2 * 4 * 128 * 64 + 8 * 128 * 64 // 64) / DEFAULT.dram_bytes_per_us, rel=0.2)


@pytest.mark.parametrize(("dtype", "rate"), [(tf.bfloat16, 2048), (tf.float32, 128)])
def test_products_by_the_units_that_take_them(dtype: tf.DType, rate: int) -> None:
    fusion = built(lambda: [tensor("a", 4096, 4096, dtype=dtype) @ tensor("b", 4096, 4096, dtype=dtype)])
    assert bound(fusion) == pytest.approx(4096**3 / rate / DEFAULT.cycles_per_us)


def counted(fusion: tf.Fusion, schedule: Chosen[Any]) -> Count:
    return count(tf.lower(fusion), {}, DEFAULT)


def transposed() -> list[tf.TensorView]:
    return [tf.copy(tensor("x", 4096, 4096).T)]


def test_what_was_counted_is_said() -> None:
    found = choose_segments(built(transposed), trial=counted).steps[0].schedule
    assert found.count is not None
    assert not found.is_far
    assert f"counted: {found.count.us:.1f} us (" in found.explain()
    assert f"times its roofline of {found.bound:.1f} us" in found.explain()


def test_a_kernel_far_from_its_roofline_is_a_reason_to_search_on() -> None:
    """A scheduler whose model promises what its loops do not keep is not believed."""
    asked: list[str] = []

    def trial(fusion: tf.Fusion, schedule: Chosen[Any]) -> Count:
        asked.append(schedule.scheduler)
        found = counted(fusion, schedule)
        if schedule.scheduler != "transpose":
            return found
        return replace(found, chain=1e9)

    found = choose_segments(built(transposed), trial=trial)
    assert asked[0] == "transpose"
    assert found.scheduler == "pointwise"


def test_where_all_are_far_the_nearest_is_taken_and_it_is_said() -> None:
    def trial(fusion: tf.Fusion, schedule: Chosen[Any]) -> Count:
        return replace(counted(fusion, schedule), chain=1e9 if schedule.scheduler == "transpose" else 1e7)

    found = choose_segments(built(transposed), trial=trial)
    step = found.steps[0].schedule
    assert step.is_far
    assert step.scheduler != "transpose"
    assert step.count is not None
    assert step.us == step.count.us > SANE * step.bound


def test_a_segment_that_is_far_from_its_roofline_however_it_is_made_is_taken_apart() -> None:
    """Put together because of what models promise, and slow whatever its loops: its parts are taken, if they are not."""

    def softmax_and_product() -> list[tf.TensorView]:
        x = tensor("x", 4096, 4096, dtype=tf.bfloat16)
        h = tf.exp(x)
        return [h, tf.sum(h, 0), h @ tensor("w", 4096, 4096, dtype=tf.bfloat16)]

    def trial(fusion: tf.Fusion, schedule: Chosen[Any]) -> Count:
        found = counted(fusion, schedule)
        return replace(found, chain=1e9) if len(fusion.outputs) > 1 else found

    found = choose_segments(built(softmax_and_product), trial=trial)
    assert not found.is_far
    assert all(len(step.outputs) == 1 for step in found.steps)


def test_one_kernel_is_compared_with_several_by_what_was_counted_of_both() -> None:
    """The model of products by threads that copy says more than the count; the same product in a segment is counted, and seemed faster."""
    symbolic = built(lambda: [tensor("a", "M", "K", dtype=tf.bfloat16) @ tensor("b", "K", "N", dtype=tf.bfloat16)])

    def trial(fusion: tf.Fusion, schedule: Chosen[Any]) -> Count:
        return count(tf.lower(fusion), dict.fromkeys(fusion.dims, 4096), DEFAULT)

    found = choose_segments(symbolic, trial=trial)
    assert len(found.steps) == 1 or "pack_factors" in found.code  # factors that are copied first, not a product that seemed faster in a segment
