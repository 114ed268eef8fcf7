"""The last resort: a thread for each element, all else serial in it."""

from functools import partial

import numpy as np
import pytest

import taskfuse as tf
from taskfuse import ParallelType as P
from taskfuse.count import count
from taskfuse.errors import UnsupportedError
from taskfuse.ir.storage import needed
from taskfuse.schedulers import FallbackConfig
from taskfuse.schedulers.elementwise import recompute_all
from taskfuse.schedulers.fallback import AGAIN_US, fallback, offer, separate
from taskfuse.schedulers.schedule import Chosen
from taskfuse.schedulers.script import Script
from taskfuse.schedulers.segmenter import choose_segments
from taskfuse.target import DEFAULT
from tests.errors import text_of
from tests.schedulers.fusions import Build, product_of_odd_rows, tensor
from tests.schedulers.tried import arguments, built, made


def softmax_of_a_product() -> list[tf.TensorView]:
    return [tf.softmax(tensor("x", 6, 8) @ tensor("w", 8, 5), 1)]


def two_scans() -> list[tf.TensorView]:
    return [tf.cumsum(tensor("x", 6, 8), 0) + 1.0, tf.cumprod(tensor("y", 6, 8), 1)]


def all_reduced() -> list[tf.TensorView]:
    return [tf.sum(tensor("x", 6, 8), (0, 1))]


def first_axis() -> list[tf.TensorView]:
    return [tf.sum(tensor("x", 6, 8, 3), 0)]


@pytest.mark.parametrize("build", [softmax_of_a_product, two_scans, all_reduced, first_axis, partial(product_of_odd_rows, tf.float32)])
def test_it_is_proved_and_right(build: Build) -> None:
    fusion = built(build)
    args = arguments(fusion)
    expected = fusion.evaluate(*args)
    other, _ = tf.copy_fusion(fusion)
    chosen = fallback(fusion, FallbackConfig(32))
    made(fusion, chosen)
    for found, wanted in zip(tf.lower(fusion).simulate(*args), expected, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5)
    exec(chosen.code, {"fusion": other})
    assert str(other) == str(fusion)


def test_a_thread_for_each_kept_element() -> None:
    fusion = built(first_axis)
    chosen = fallback(fusion, FallbackConfig(4))
    (out,) = fusion.outputs
    assert [(str(a.extent), out.schedule.ptype(a)) for a in out.loop] == [("6", P.BIDx), ("4", P.TIDx), ("6", P.Serial)]
    assert out.loop[2].is_reduction
    assert chosen.expected == "6 serial steps in each thread"
    assert chosen.option.block == (4, 1, 1)


@pytest.mark.parametrize("build", [softmax_of_a_product, two_scans, partial(product_of_odd_rows, tf.float32)])
def test_the_offer_is_what_it_costs(build: Build) -> None:
    fusion = built(build)
    assert offer(fusion).us == fallback(tf.copy_fusion(fusion)[0]).us
    assert not fusion.has_schedule


def test_serial_steps_and_reductions_that_are_done_again_cost() -> None:
    once, longer = (offer(built(lambda n=n: [tf.sum(tensor("x", 4, n), 1)])).us for n in (64, 1064))
    assert longer - once == pytest.approx(1000 * DEFAULT.assumed.serial_us, rel=0.1)
    again = offer(built(lambda: [tf.sum(tensor("x", 4, 64), 1).reshape(2, 2) + 1.0])).us
    assert again - once == pytest.approx(AGAIN_US, rel=0.1)
    assert offer(built(lambda: [tf.sum(tf.define_tensor(["N", "M"], name="x"), 1)]), sizes={"N": 1, "M": 1}).us < once


def test_a_reduction_in_the_loop_of_a_scan_runs_for_each_of_its_elements() -> None:
    """Each thread scans a row of 64 elements, each of which is divided by the sum of the row; rows scan nothing."""
    with tf.Fusion("shares") as fusion:
        x = tensor("x", 4, 64)
        fusion.add_output(tf.cumsum(x / tf.sum(x, 1, keepdims=True), 1))
    least = 64 * 64 * DEFAULT.assumed.serial_us
    assert least < offer(fusion).us < 2 * least + AGAIN_US
    with pytest.raises(UnsupportedError, match="takes elements one after another"):
        tf.schedulers.normalization(fusion)


def test_what_several_outputs_need_is_computed_for_each() -> None:
    fusion = built(lambda: [tf.exp(y := tf.sum(tensor("x", 4, 8), 1)), tf.neg(y)])
    script = Script(fusion)
    recompute_all(script, fusion)
    owner = separate(script)
    assert {tv: owner[tv] for tv in fusion.outputs} == {tv: tv for tv in fusion.outputs}
    inner = [e.output for e in needed(fusion) if not e.output.is_output]
    assert sorted(owner[tv].name for tv in inner) == sorted(tv.name for tv in fusion.outputs)


REFUSED: list[tuple[Build, str]] = [
    (lambda: [tf.cumsum(tf.cumsum(tensor("x", 4, 8), 0), 1)], "needs scans of different axes"),
    (lambda: [tf.sum(tf.cumsum(tensor("x", 4, 8), 1), 1)], "whose elements a thread computes one after another"),
    (lambda: [tf.neg(tf.cat([tensor("x", 4), tensor("y", 4)], 0, "scatter"))], "which is assembled from parts (a cat in scatter form)"),
    (lambda: [tf.cumsum(tensor("x", 4), 0)[::-1] + 1.0], "which cannot be computed again where it is read"),
    (lambda: [tf.take(tf.sum(tensor("x", 8, 4), 1), tensor("i", 3, dtype=tf.int64), 0)], "at computed indices"),
]


@pytest.mark.parametrize(("build", "text"), REFUSED)
def test_refusals(build: Build, text: str) -> None:
    fusion = built(build)
    before = str(fusion)
    with pytest.raises(UnsupportedError) as caught:
        fallback(fusion)
    assert text in caught.value.message
    assert caught.value.help == "tf.compile makes several kernels"
    assert str(fusion) == before


def test_few_threads_stand_on_all_multiprocessors() -> None:
    """Blocks of as many threads as leave each multiprocessor one; what a kernel moves takes longer on few of them."""

    def chosen(rows: int) -> Chosen[FallbackConfig]:
        return fallback(built(lambda: [tf.exp(tf.sum(tensor("x", rows, 40), 1))]))

    assert [chosen(n).config.threads for n in (100_000, 132 * 256, 132 * 256 - 1, 10_000, 4224, 4000, 1)] == [256, 256, 256, 64, 32, 32, 32]
    options = {o.config.threads: o for o in chosen(10_000).alternatives}
    assert options[256].block == (256, 1, 1)
    assert options.keys() == {256, 128, 64, 32}
    narrow = fallback(tf.copy_fusion(product := product_of_rows())[0]).alternatives
    assert narrow[0].us < next(o.us for o in narrow if o.config.threads == 256)
    assert fallback(product, FallbackConfig(256)).us == next(o.us for o in narrow if o.config.threads == 256)


def product_of_rows() -> tf.Fusion:
    """What looks up a line for each lane: few multiprocessors take longer for as many."""
    with tf.Fusion("product") as fusion:
        x, w = tf.define_tensor([64, 64], dtype=tf.int32), tf.define_tensor([64, 64], dtype=tf.int32)
        fusion.add_output(x @ w.T)
    return fusion


def test_a_block_has_a_limit() -> None:
    assert text_of(lambda: FallbackConfig(2048)) == "this FallbackConfig is not supported: 2048 threads\nhelp: a block has at most 1024 threads"
    assert FallbackConfig(1024).words == "a thread for each element, 1024 in a block"


def test_what_threads_read_again_comes_from_the_cache() -> None:
    """121 places of each window of 11 x 11: 700 MB that pass the L2 cache; an element that is the same in all trips is read once."""
    with tf.Fusion("windows") as fusion:
        x, w = tf.define_tensor([24, 256, 256], name="x"), tf.define_tensor([11, 11], name="w")
        fusion.add_output(tf.sum(tf.unfold(tf.unfold(x, 1, 11), 2, 11) * w, (3, 4)))
    assert offer(fusion).us > 24 * 246 * 246 * 121 * 4 / DEFAULT.l2_bytes_per_us
    with tf.Fusion("scaled") as fusion:
        x, s = tf.define_tensor([4096, 8192], name="x"), tf.define_tensor([4096, 8192, 1], name="s")
        fusion.add_output(tf.sum(tf.full([4096, 8192, 64], 2.0) * s, 2) + x)
    assert offer(fusion).us < 4096 * 8192 * 64 * 4 / DEFAULT.l2_bytes_per_us


def test_lanes_that_read_rows_of_their_own_look_up_a_line_each() -> None:
    """The price of such a product is that of its kernel, up to a factor; where lanes read neighbors it is far less."""

    def product(transposed: bool) -> tf.Fusion:
        with tf.Fusion("product") as fusion:
            x, w = (tf.define_tensor([512, 512], dtype=tf.int32) for _ in range(2))
            fusion.add_output(x @ (w.T if transposed else w))
        return fusion

    strided = product(transposed=True)
    expected = offer(strided).us
    fallback(strided)
    assert 0.5 <= count(tf.lower(strided), {}, DEFAULT).us / expected <= 2
    assert expected > 3 * offer(product(transposed=False)).us


def test_waves_of_threads_each_wait_for_their_loops() -> None:
    """64 times as many threads as are resident take 64 times as long, where each thread walks over 128 elements of two columns."""
    with tf.Fusion("columns") as fusion:
        a, b = tf.define_tensor([128, 4096], name="a"), tf.define_tensor([128, 4096], name="b")
        fusion.add_output(tf.sum(a.reshape(128, 4096, 1) * b.reshape(128, 1, 4096), 0))
    assert tf.schedulers.fallback(fusion).us > 500


def test_a_scan_has_a_thread_for_each_row() -> None:
    """Threads walk along the scanned axis: those of 4096 columns of 512 are resident at once, and wait for their loads of one walk."""
    with tf.Fusion("columns") as fusion:
        fusion.add_output(tf.cumsum(tensor("x", 512, 4096), 0))
    assert tf.schedulers.fallback(fusion).us < 512 * DEFAULT.assumed.serial_us + 40


def test_a_long_loop_does_not_take_the_registers_of_other_nests() -> None:
    with tf.Fusion("two") as fusion:
        x = tensor("x", 64, 8, 32)
        fusion.add_output(tf.sum(x, 1))
        fusion.add_output(tf.exp(x))
    fallback(fusion)
    assert tf.lower(fusion).residents > 1
    fusion = built(lambda: [tf.sum(tensor("x", 64, 8), 1)])
    fallback(fusion)
    assert tf.lower(fusion).residents == 1
    fallback(fusion := built(lambda: [tf.exp(x := tensor("x", 64, 8)), tf.neg(x)]))
    assert tf.lower(fusion).residents == 1


def test_loads_behind_functions_with_branches_are_waited_for_one_after_another() -> None:
    """A step of an optimizer beside a scalar, as H200s do it: 147 us in one kernel of a thread per element, and 79 in vectors, which ``tf.compile`` takes."""

    def step() -> list[tf.TensorView]:
        moment, gradient, value, momentum = (tensor(name, 4096, 4096) for name in ("moment", "gradient", "value", "momentum"))
        count = tensor("count")
        norm = tf.sqrt(moment / 0.02) + 1e-8
        value = value - tf.reciprocal(1 - count) * 2e-4 * gradient / norm
        return [value - tf.reciprocal(1 - count * 0.95) * 2e-3 * momentum / norm, count * 0.95]

    assert 120 < fallback(built(step)).us < 190
    found = choose_segments(built(step))
    assert found.us < 90
    assert "fallback" not in {step.schedule.scheduler for step in found.steps}


def test_functions_without_branches_let_loads_be_issued_first() -> None:
    names = ("a", "b", "c", "d")
    assert fallback(built(lambda: [sum((tensor(name, 4096, 4096) for name in names), start=tensor("e", 4096, 4096))])).us < 110
