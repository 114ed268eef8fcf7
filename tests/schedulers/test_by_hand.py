"""Calls of the automatic side that a person could make: what is not an argument of theirs, and what goes to other processes."""

from __future__ import annotations

import copy
import pickle
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import taskfuse as tf
from taskfuse.errors import TaskfuseError
from taskfuse.schedulers import SimtGemmConfig
from tests.proofs import proved


def exp(name: str = "f", shape: tuple[int | str, ...] = ("N", 64)) -> tf.Fusion:
    with tf.Fusion(name) as fusion:
        fusion.add_output(tf.exp(tf.define_tensor(list(shape), name="x")))
    return fusion


def quotient() -> tf.Fusion:
    with tf.Fusion("quotient") as fusion:
        x = tf.exp(tf.define_tensor(["N", "M"], name="x"))
        fusion.add_output(x.sum(1).reshape("N", 1) * x.T.sum(1))
    return fusion


X = np.ones((2, 64), np.float32)
THREE: Any = 3
TEXT: Any = "a"
NUMERAL: Any = "4"
REAL: Any = 2.5
FUSION: Any = exp()
REFUSED: list[tuple[Callable[[], object], str]] = [
    (
        lambda: tf.compile(tf.Fusion("empty")),
        "an automatic schedule of fusion 'empty' is not supported: it has no outputs\nhelp: fusion.add_output(tensor)",
    ),
    (lambda: tf.compile(exp(), options=THREE), "options 3 is not supported: it is not a tf.LoweringOptions\nhelp: use tf.LoweringOptions(...)"),
    (lambda: tf.compile(exp())(X, seed=TEXT), "simulate: seed: 'a' is not of type int\nhelp: give an integer"),
    (lambda: tf.dim("N", min=REAL), "fusion '?': dimension 'N' has min=2.5\nhelp: use an integer"),
    (lambda: tf.dim("N", max=True), "fusion '?': dimension 'N' has max=True\nhelp: use an integer"),
    (lambda: tf.dim("N", multiple_of=NUMERAL), "fusion '?': dimension 'N' has multiple_of='4'\nhelp: use an integer"),
    (
        lambda: tf.dim(THREE),
        "fusion '?': 3 is not a name for a dimension\nhelp: use an identifier other than i0, i1, ..., v0, v1, ... and claimed, which index maps use",
    ),
    (
        lambda: tf.lower(exp(THREE)),
        "fusion '3': its name is of type int\nhelp: use a string",
    ),
    (
        lambda: tf.schedulers.tune(exp(), X, scheduler=THREE),
        "a search for a schedule of fusion 'f' is not supported: scheduler is 3\nhelp: use one such as tf.schedulers.matmul, or leave it out",
    ),
    (
        lambda: tf.schedulers.tune(exp(), X, configs=THREE),
        "a search for a schedule of fusion 'f' is not supported: configs is 3\nhelp: give a list of parameters of the scheduler",
    ),
    (
        lambda: tf.horizontal([exp("a"), exp("b")], shared="x"),
        "fusion 'horizontal': shared is 'x', not a sequence of names\nhelp: write shared=['x']",
    ),
    (
        lambda: tf.horizontal_cost([exp("a"), exp("b")], shared=THREE),
        "fusion 'horizontal': shared is 3, not a sequence of names\nhelp: give names in a list",
    ),
]


@pytest.mark.parametrize(("call", "text"), REFUSED)
def test_what_is_refused(call: Callable[[], object], text: str) -> None:
    with pytest.raises(TaskfuseError) as caught:
        call()
    assert caught.value.location is None or caught.value.location.file == __file__
    assert "\n".join(line for line in str(caught.value).split("\n") if not re.match(r"  -->|   \|", line)) == text


def test_integers_of_numpy_are_facts() -> None:
    facts: dict[str, Any] = {"min": np.int64(0), "max": np.int32(8), "multiple_of": np.uint8(4)}
    assert tf.dim("N", **facts) == tf.dim("N", min=0, max=8, multiple_of=4)


def test_a_proposal_of_tasks_is_of_the_fusion_as_it_was() -> None:
    fusion = exp("f", (64, 64))
    unscheduled, _ = tf.copy_fusion(fusion)
    proposal = fusion.partition()
    code = proposal.code
    proposal.apply()
    assert proposal.code == code
    exec(code, {"fusion": unscheduled})
    assert str(unscheduled) == str(fusion)
    with pytest.raises(TaskfuseError) as caught:
        proposal.apply()
    assert caught.value.message == "fusion 'f': it has got tasks since it was partitioned"
    assert caught.value.help == "apply a proposal once, before its first task is made"


def test_what_compile_returns_goes_to_other_processes() -> None:
    run, x = tf.compile(quotient()), np.ones((3, 5), np.float32)
    for again in (pickle.loads(pickle.dumps(run)), copy.deepcopy(run)):
        np.testing.assert_array_equal(again(x)[0], run(x)[0])
        assert again.schedule is not None
        assert run.schedule is not None
        assert again.schedule.code == run.schedule.code
        assert again.schedule.explain() == run.schedule.explain()
    for certificate, again in zip(run.certificates, pickle.loads(pickle.dumps(run.certificates)), strict=True):
        assert (str(again), again.verdict, again.is_proved) == (str(certificate), certificate.verdict, certificate.is_proved)


@pytest.mark.parametrize("call", [lambda: tf.compile(THREE), lambda: tf.compile(exp())(X[0]), lambda: tf.matmul(FUSION, THREE)], ids=["compile", "call", "op"])
def test_errors_go_to_other_processes(call: Callable[[], object]) -> None:
    """A pool hands on what its workers raise by pickling it; one whose workers raise what cannot be made again waits forever."""
    with pytest.raises(TaskfuseError) as caught:
        call()
    again = pickle.loads(pickle.dumps(caught.value))
    assert type(again) is type(caught.value)
    assert str(again) == str(caught.value)
    assert (again.args, again.fields.keys(), again.location, again.help) == (
        caught.value.args,
        caught.value.fields.keys(),
        caught.value.location,
        caught.value.help,
    )


def test_rings_deeper_than_what_may_be_unfinished() -> None:
    """A ring may have more slots than a wait_group can leave unfinished: it then waits for more copies than it needs."""
    with tf.Fusion("product") as fusion:
        fusion.add_output(tf.define_tensor([20, 24], name="x") @ tf.define_tensor([24, 28], name="y"))
    x, y = np.random.default_rng(0).uniform(-1, 1, (2, 28, 28)).astype(np.float32)
    (wanted,) = fusion.evaluate(x[:20, :24], y[:24])
    tf.schedulers.simt_gemm(fusion, SimtGemmConfig(2, 2, depth=4, stages=12))
    kernel = tf.lower(fusion)
    proved(kernel)
    np.testing.assert_allclose(kernel.simulate(x[:20, :24], y[:24])[0], wanted, rtol=1e-5, atol=1e-6)


def silu(y: tf.TensorView) -> list[tf.TensorView]:
    return [y * tf.sigmoid(y)]


def several(y: tf.TensorView) -> list[tf.TensorView]:
    z = tf.sin(y)
    return [y, z, tf.cos(z) + y]


@pytest.mark.parametrize("behind", [silu, several])
@pytest.mark.parametrize(("dtype", "scheduler"), [(tf.bfloat16, tf.schedulers.matmul), (tf.float32, tf.schedulers.simt_gemm)], ids=["matmul", "simt_gemm"])
def test_products_that_are_read_at_several_depths(dtype: tf.DType, scheduler: Any, behind: Callable[[tf.TensorView], list[tf.TensorView]]) -> None:
    """What is computed from a product is read together with the product."""
    with tf.Fusion("gated") as fusion:
        a, b = tf.define_tensor([64, 64], dtype=dtype, name="a"), tf.define_tensor([64, 64], dtype=dtype, name="b")
        for tv in behind(tf.matmul(a, b, dtype=tf.float32)):
            fusion.add_output(tv)
    args = [x.astype(dtype.numpy) for x in np.random.default_rng(0).uniform(-0.5, 0.5, (2, 64, 64))]
    wanted = fusion.evaluate(*args)
    scheduler(fusion)
    kernel = tf.lower(fusion)
    proved(kernel)
    for found, w in zip(kernel.simulate(*args), wanted, strict=True):
        np.testing.assert_allclose(found, w, rtol=1e-5, atol=1e-6)
