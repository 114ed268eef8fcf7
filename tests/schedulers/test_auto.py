"""Automatic schedules: proved, equal to NumPy, and the same when their code is pasted; which scheduler takes what, and what it says."""

import sys
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest

import taskfuse as tf
from taskfuse.errors import LoweringError, OutputError, TaskfuseError, UnsupportedError
from taskfuse.schedulers import CatConfig, Form, PointwiseConfig
from taskfuse.schedulers.auto import candidates, multiplies
from taskfuse.testing.case import Case, Outcome
from taskfuse.testing.chooser import RandomChooser
from taskfuse.testing.graphs import Graph
from taskfuse.testing.options import CaseOptions
from taskfuse.testing.program import Recorder
from tests.proofs import proved
from tests.schedulers.automatic import founding, transposed
from tests.schedulers.oracle import RNG, array, checked

MIXES = (
    CaseOptions(ops=7),
    CaseOptions(ops=6, gathers=12, scans=12, positions=8, einsums=6, matmuls=8, composites=8),
    CaseOptions(ops=5, rank=5, sizes=(1, 2, 3, 1, 5, 2, 7), elements=300, gathers=8, scans=8, positions=6),
)


@pytest.mark.parametrize("seed", range(12))
def test_random_fusions(seed: int) -> None:
    recorder = Recorder()
    graph = Graph(RandomChooser(seed), MIXES[seed % 3], recorder)
    graph.grow()
    program, fusion = recorder.program(), recorder.fusion
    case = Case(program, program, graph.sizes, seed, fusion, fusion, Outcome(None, None, None), CaseOptions())
    checked(fusion, case.arguments(), seed)


def test_the_founding_example_loads_each_element_once() -> None:
    found = checked(founding(16, 24), [array(16, 24)])
    kernel = str(tf.lower(found.steps[0].fusion))
    assert kernel.count("<- x[") == 1
    assert kernel.count("COPY tv10[") == 4
    assert found.steps[0].schedule.scheduler == "cat"
    assert found.explain().startswith("cat tv9: chosen: shared")


@pytest.mark.parametrize(
    ("dtype", "shapes", "scheduler"),
    [
        (tf.bfloat16, [((256, 64), (64, 128))], "matmul"),
        (tf.bfloat16, [((256, 64), (64, 128)), ((128, 64), (64, 256))], "products"),
        (tf.float32, [((256, 64), (64, 128))], "simt_gemm"),
    ],
)
def test_the_offer_of_a_product_is_the_price_of_its_schedule(dtype: tf.DType, shapes: list[Any], scheduler: str) -> None:
    with tf.Fusion("offered") as fusion:
        for pair in shapes:
            a, b = (tf.define_tensor(list(shape), dtype=dtype) for shape in pair)
            fusion.add_output(tf.relu(a @ b))
    found = candidates(fusion)
    assert found.is_led
    offered = found.us
    assert found.best is not None
    assert (found.best.schedule.scheduler, found.best.schedule.us) == (scheduler, offered)


def test_a_scheduler_whose_calls_make_no_kernel_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_kernel(*_: object) -> None:
        raise LoweringError(what="tv1", reason="no room")

    monkeypatch.setattr(sys.modules["taskfuse.schedulers.reduction"], "lower", no_kernel)  # the package has a function of the name
    with tf.Fusion("sums") as fusion:
        fusion.add_output(tf.sum(tf.define_tensor([64, 128], name="x"), 1))
    chosen = tf.schedulers.auto(fusion)
    assert chosen.scheduler == "fallback"
    assert ("reduction", "cannot lower tv1: no room") in chosen.refused


def ints(high: int, *shape: int) -> Any:
    return RNG.integers(-1, high, shape).astype(np.int32)


def test_scans_run_along_their_axis() -> None:
    with tf.Fusion("scans") as fusion:
        x = tf.define_tensor(["N", "M"], name="x")
        mean = tf.cumsum(x, 1) / tf.cumsum(tf.full_like(x, 1.0), 1)
        fusion.add_output(tf.exp(mean))
        fusion.add_output(tf.sin(mean))
    found = checked(fusion, [array(5, 7)])
    assert {step.schedule.scheduler for step in found.steps} <= {"scan", "fallback", "pointwise"}
    tf.schedulers.fallback(fusion)  # both, for each output
    kernel, x = tf.lower(fusion), array(5, 7)
    proved(kernel)
    assert str(kernel).count(".acc = add(") == 4
    for a, b in zip(kernel.simulate(x), fusion.evaluate(x), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


def test_tables_are_made_before_they_are_read() -> None:
    with tf.Fusion("tables") as fusion:
        x, w, i = tf.define_tensor(["N", 6], name="x"), tf.define_tensor([6, 8], name="w"), tf.define_tensor(["K"], dtype=tf.int32, name="i")
        fusion.add_output(tf.take(tf.tanh(x @ w), i, 0))
        fusion.add_output(tf.take(tf.exp(x), i + 0, 0).sum(1))
        fusion.add_output(tf.take(x, i, 0).T + 1)
        fusion.add_output(tf.stack([tf.take(x, i, 0), tf.take(x, i + 1, 0)], 1))
    assert len(checked(fusion, [array(5, 6), array(6, 8), ints(7, 9)]).steps) > 1
    with pytest.raises(UnsupportedError, match=r"reads tv\d+ at computed indices"):
        tf.schedulers.fallback(fusion)


def test_assemblies_of_scans() -> None:
    with tf.Fusion("slices") as fusion:
        x = tf.define_tensor([3, 8], name="x")
        c = tf.cumprod(x, 0)
        fusion.add_output(c)
        fusion.add_output(tf.stack([x, c, c, tf.abs(x)], 0, "scatter"))
    checked(fusion, [array(3, 8)])


def test_a_concatenation_in_a_part_of_another() -> None:
    with tf.Fusion("parts") as fusion:
        x, y = tf.define_tensor(["N"], name="x"), tf.define_tensor(["N"], name="y")
        inner = tf.stack([x, y], 0)
        fusion.add_output(tf.sigmoid(tf.cat([tf.hypot(inner, x), inner], 0)))
    tf.schedulers.cat(fusion, CatConfig(Form.GATHER))
    kernel, (a, b) = tf.lower(fusion), (array(5), array(5))
    np.testing.assert_allclose(kernel.simulate(a, b)[0], fusion.evaluate(a, b)[0], rtol=1e-6)


def test_a_stack_of_unrolled_registers() -> None:
    with tf.Fusion("stacked") as fusion:
        x, y = tf.define_tensor([13, 13], name="x"), tf.define_tensor([13, 13], name="y")
        fusion.add_output(tf.stack([x, y], 1))
    tf.schedulers.pointwise(fusion, PointwiseConfig(1, 256, 1, 2))
    kernel, (a, b) = tf.lower(fusion), (array(13, 13), array(13, 13))
    proved(kernel)
    assert np.array_equal(kernel.simulate(a, b)[0], np.stack([a, b], 1))


@pytest.mark.parametrize("dtype", [tf.float32, tf.bfloat16])
def test_products_that_may_be_empty(dtype: tf.DType) -> None:
    with tf.Fusion("none") as fusion:
        x, y = tf.define_tensor([tf.dim("N", min=0), 8], dtype=dtype, name="x"), tf.define_tensor([8, 16], dtype=dtype, name="y")
        fusion.add_output(x @ y)
    for rows in (0, 3):
        checked(fusion, [array(rows, 8, dtype=dtype), array(8, 16, dtype=dtype)])
    with pytest.raises(UnsupportedError, match=r"the extent N of tv\d+ may be 0"):
        tf.schedulers.matmul(fusion)


def softmax() -> tf.Fusion:
    with tf.Fusion("scores") as fusion:
        x, b, a = tf.define_tensor(["N", "M"], name="x"), tf.define_tensor(["M"], name="b"), tf.define_scalar(tf.float32, name="a")
        y = tf.softmax(x * b, axis=1) * a
        fusion.add_output(y.T + tf.exp(b).sum(0))
        fusion.add_output(y.sum())
    return fusion


@cache
def several() -> tf.Executable:
    return tf.compile(softmax())


def test_several_kernels_are_one_function() -> None:
    fusion, args = softmax(), (array(20, 30), array(30), 2.0)
    run = several()
    assert len(run.kernels) > 1
    wanted = fusion.evaluate(*args)
    found = run(*args)
    out = tuple(np.zeros_like(w) for w in wanted)
    assert run(*args, out=out) is not None
    for a, b, w in zip(found, out, wanted, strict=True):
        np.testing.assert_allclose(a, w, rtol=1e-5)
        assert np.array_equal(a, b)
    assert run.schedule is not None
    assert "cut at" in run.schedule.explain()
    names: dict[str, Any] = {"fusion": tf.copy_fusion(fusion)[0]}
    exec(run.schedule.code, names)
    again = tf.compile(names["segmented"])
    assert [str(k) for k in again.kernels] == [str(k) for k in run.kernels]


ARGUMENTS = (array(20, 30), array(30), 2.0)


FAULTS: list[tuple[Callable[[tf.Executable], Any], str]] = [
    (lambda run: run.kernel, "the kernel of several kernels is not supported: fusion 'scores' runs 3 kernels, each of which has a kernel\nhelp: use kernels"),
    (lambda run: run(*ARGUMENTS[:2]), "input 2 of fusion 'scores': 2 arguments given, 3 expected\nhelp: the arguments are: x, b, a"),
    (
        lambda run: run(ARGUMENTS[0], array(31), 2.0),
        "input 1 of fusion 'scores': dimension 0 of b is M = 30, the array has 31\nnote: M = 30 from dimension 1 of x",
    ),
    (
        lambda run: run(ARGUMENTS[0], ARGUMENTS[1].astype(np.float64), 2.0),
        "input 1 of fusion 'scores': 'b' has dtype float64, not float32\nhelp: pass it converted to float32",
    ),
    (lambda run: run(*ARGUMENTS, out=array(30, 20)), "output 1 of fusion 'scores': out= has 1 arrays; there are 2 outputs\nhelp: the outputs are: {0}, {1}"),
    (lambda run: run(*ARGUMENTS, out=(array(30, 20), array(1))), "output 1 of fusion 'scores': '{1}' has shape [], the array [1]"),
    (lambda run: run(*ARGUMENTS, out=(3, array())), "output 0 of fusion 'scores': a int is not a NumPy array, as the inputs are"),
]


@pytest.mark.parametrize(("call", "text"), FAULTS)
def test_errors_of_several_kernels_name_the_arguments_of_the_call(call: Callable[[tf.Executable], Any], text: str) -> None:
    run = several()
    with pytest.raises(TaskfuseError) as caught:
        call(run)
    outputs = [tv.name for tv in softmax().outputs]
    assert str(caught.value) == text.replace("3 kernels", f"{len(run.kernels)} kernels").format(*outputs)


def test_errors_of_the_last_of_several_kernels() -> None:
    """It makes all outputs, so that it gets ``out=``, and is one of the kernels all the same."""
    with tf.Fusion("scores") as fusion:
        x = tf.define_tensor(["N", "M"], name="x")
        y = tf.exp(x)
        fusion.add_output(y.sum(1).reshape("N", 1) * y.T.sum(1))
    run, name, x = tf.compile(fusion, unsafe=True), fusion.outputs[0].name, array(5, 5)
    assert len(run.kernels) > 1
    for out, text in (
        (array(5, 6), f"0 of fusion 'scores': '{name}' has shape [5, 5], the array [5, 6]"),
        ((x, x), f"1 of fusion 'scores': out= has 2 arrays; there are 1 outputs\nhelp: the outputs are: {name}"),
    ):
        with pytest.raises(OutputError) as caught:
            run(x, out=out)
        assert str(caught.value) == f"output {text}"


def test_a_fusion_may_be_taken_as_it_is() -> None:
    fusion = transposed(tf.float32, "M", "N")
    assert tf.compile(fusion, schedule=None).schedule is None
    assert tf.compile(fusion, schedule=None).kernel.block == tf.lower(fusion).block
    run = tf.compile(fusion)
    assert run.schedule is not None
    assert run.schedule.scheduler == "transpose"


@pytest.mark.parametrize(("shape", "axis"), [([8], 0), (["N", 4], 0), ([5, 4, 3], 1)])
def test_a_thread_walks_along_the_axis_of_a_scan(shape: list[int | str], axis: int) -> None:
    with tf.Fusion("totals") as fusion:
        x = tf.define_tensor(shape, name="x")
        fusion.add_output(tf.cumsum(tf.exp(x), axis=axis))
        fusion.add_output(tf.sin(tf.cumsum(x, axis=axis)))
    run = tf.compile(fusion)
    x = np.random.default_rng(0).normal(size=[6 if isinstance(e, str) else e for e in shape]).astype(np.float32)
    for found, wanted in zip(run(x), fusion.evaluate(x), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5)
    assert all(c.is_proved for c in run.certificates)


def test_what_is_scheduled_stays() -> None:
    fusion = transposed(tf.float32, "M", "N")
    fusion.outputs[0].split(0, 4)
    assert tf.compile(fusion).schedule is None
    with pytest.raises(UnsupportedError, match="it has a schedule already"):
        tf.schedulers.pointwise(fusion)


def test_schedules_of_products() -> None:
    with tf.Fusion("product") as fusion:
        fusion.add_output(tf.define_tensor([64, 64]) @ tf.define_tensor([64, 64]))
    with tf.Fusion("elementwise") as other:
        other.add_output(tf.exp(tf.define_tensor([64, 64])))
    assert multiplies(tf.schedulers.auto(fusion))
    assert not multiplies(tf.schedulers.auto(other))


def test_a_few_rows_and_columns_are_sums_of_warps() -> None:
    """Each of 2048 products of 4 x 4 elements would fill 1/64 of the smallest tile. By hand there is still a schedule."""
    with tf.Fusion("mixed") as fusion:
        a, b = (tf.define_tensor([2048, 4, 1024], dtype=tf.bfloat16, name=name) for name in "ab")
        fusion.add_output(a @ b.permute(0, 2, 1))
    assert tf.schedulers.matmul(tf.copy_fusion(fusion)[0]).us > 50
    chosen = tf.schedulers.auto(fusion)
    assert (chosen.scheduler, chosen.us < 20) == ("reduction", True)
