"""Outputs that are written into the array of an input: what reads an element after it was overwritten is refuted, what reads it before is proved."""

from __future__ import annotations

import numpy as np
import pytest

import taskfuse as tf
from taskfuse import ParallelType as P
from taskfuse.errors import VerifyError
from taskfuse.kir import Kernel
from taskfuse.reports.certificate import Layer, Verdict

X = np.arange(70, dtype=np.float32) / 70


def one_thread_per_element(y: tf.TensorView) -> None:
    y.split(0, 32)
    y.axis(0).parallelize(P.BIDx)
    y.axis(1).parallelize(P.TIDx)


def lowered(what: str, *, threads: bool, size: int | str = "N") -> Kernel:
    """``y`` of ``x``, written into ``x``."""
    with tf.Fusion("in_place") as fusion:
        x = tf.define_tensor([size], name="x")
        y = {"exp": lambda: tf.exp(x), "roll": lambda: x + tf.roll(x, 1), "flip": lambda: tf.neg(tf.flip(x)), "sum": lambda: x - x.sum()}[what]()
        fusion.add_output(y, name="y", into=x)
    if threads:
        one_thread_per_element(y)
    return tf.lower(fusion)


def test_the_text_has_it_and_reads_back() -> None:
    text = lowered("exp", threads=True).text(witness=True)
    assert "-> (y: float32[N] into x)" in text
    assert tf.parse_kernel(text).text(witness=True) == text
    assert tf.parse_kernel(text).in_place == {"y": "x"}


@pytest.mark.parametrize("threads", [False, True])
def test_element_by_element_is_proved(threads: bool) -> None:
    kernel = lowered("exp", threads=threads)
    certificate = kernel.verify()
    assert certificate.is_proved
    assert any(o.subject == "x, in place" for o in certificate.argument)
    assert np.allclose(kernel.simulate(X)[0], np.exp(X))


def test_a_neighbor_that_another_thread_overwrites_is_a_race() -> None:
    certificate = lowered("roll", threads=True).verify()
    assert not certificate.is_proved
    assert certificate.verdict is Verdict.REFUTED
    assert "race: nothing orders" in str(certificate)


@pytest.mark.parametrize("what", ["roll", "flip"])
def test_a_neighbor_that_the_same_thread_has_overwritten_is_a_wrong_value(what: str) -> None:
    kernel = lowered(what, threads=False)
    certificate = kernel.verify()
    assert not certificate.is_proved
    (open_,) = [o for o in certificate.argument if o.layer is Layer.VALUES and o.verdict.value != "proved"]
    assert "it may read an element of x after another value was written there" in open_.reason
    assert "reads element [0] of y where element [0] of x is defined" in str(certificate)
    assert "refuted" in str(kernel.verify({"N": 5}))
    wrong = kernel.simulate(X)[0]
    assert not np.allclose(wrong, X + np.roll(X, 1) if what == "roll" else -X[::-1])  # the simulator has one array, too


def test_a_read_in_an_earlier_loop_is_early_enough() -> None:
    kernel = lowered("sum", threads=False)
    assert kernel.verify().is_proved
    assert np.allclose(kernel.simulate(X)[0], X - X.sum(), atol=1e-4)


NEIGHBOR = """\
KERNEL k(x: float32[M, N]) -> (y: float32[M, N] into x)
  DIM M, N
  GRID (1, 1, 1)  BLOCK (32, 1, 1)
  LOCAL n: float32[]
  DEFINE n: float32[M, N] = pick(x[i0 + 1, i1] if i0 + 1 < M, otherwise 0.0)
  DEFINE y: float32[M, N] = sub(n[i0, i1], x[i0, i1])

FOR j in 0..ceildiv(N, 32):
  FOR i in 0..M:
    IF 32*j + threadIdx.x < N:
      n = cat(x[i + 1, 32*j + threadIdx.x] if i + 1 < M, otherwise 0.0)  ~ value n[i, 32*j + threadIdx.x]
      y[i, 32*j + threadIdx.x] = sub(n, x[i, 32*j + threadIdx.x])  ~ value y[i, 32*j + threadIdx.x]
"""


def of_neighbor(*, below: bool, downwards: bool) -> Kernel:
    """A thread goes along its column, and each row becomes its difference from a neighbor."""
    text = NEIGHBOR
    if not below:
        text = text.replace("x[i0 + 1, i1] if i0 + 1 < M", "x[i0 - 1, i1] if i0 > 0").replace("x[i + 1, ", "x[i - 1, ").replace("i + 1 < M", "i > 0")
    if downwards:
        head, body = text.split("    IF 32")
        text = (
            head + "    IF 32" + body.replace("[i, ", "[M - 1 - i, ").replace("i + 1", "M - i").replace("i - 1", "M - 2 - i").replace("i > 0", "M - 1 - i > 0")
        )
    return tf.parse_kernel(text)


@pytest.mark.parametrize("downwards", [False, True])
def test_an_element_that_a_later_iteration_overwrites_is_read_in_time(downwards: bool) -> None:
    x = np.arange(5 * 33, dtype=np.float32).reshape(5, 33) ** 2
    right, wrong = (of_neighbor(below=below, downwards=downwards) for below in (not downwards, downwards))
    assert right.verify().is_proved
    neighbor = np.pad(x, ((1, 0), (0, 0)))[:-1] if downwards else np.pad(x, ((0, 1), (0, 0)))[1:]
    assert (right.simulate(x)[0] == neighbor - x).all()
    assert wrong.verify().verdict is Verdict.REFUTED
    assert any("after another value was written there" in o.reason for o in wrong.verify().argument)


def test_an_outer_loop_decides_before_an_inner_one() -> None:
    """The element of the next j is written later, however far along i it lies; that of the one before is overwritten, however near."""
    text = """\
KERNEL k(x: float32[M, N]) -> (y: float32[M, N] into x)
  DIM M, N
  GRID (1, 1, 1)  BLOCK (1, 1, 1)
  LOCAL n: float32[]
  DEFINE n: float32[M, N] = pick(x[i0 + 1, N - 1 - i1] if i0 + 1 < M, otherwise 0.0)
  DEFINE y: float32[M, N] = sub(n[i0, i1], x[i0, i1])

FOR j in 0..M:
  FOR i in 0..N:
    n = cat(x[j + 1, N - 1 - i] if j + 1 < M, otherwise 0.0)  ~ value n[j, i]
    y[j, i] = sub(n, x[j, i])  ~ value y[j, i]
"""
    assert tf.parse_kernel(text).verify().is_proved
    before = text.replace("x[i0 + 1, N - 1 - i1] if i0 + 1 < M", "x[i0 - 1, N - 1 - i1] if i0 > 0").replace(
        "x[j + 1, N - 1 - i] if j + 1 < M", "x[j - 1, N - 1 - i] if j > 0"
    )
    assert tf.parse_kernel(before).verify().verdict is Verdict.REFUTED
    inner = text.replace("x[i0 + 1, N - 1 - i1] if i0 + 1 < M", "x[i0, N - 1 - i1] if i0 < M").replace(
        "x[j + 1, N - 1 - i] if j + 1 < M", "x[j, N - 1 - i] if j < M"
    )
    assert not tf.parse_kernel(inner).verify().is_proved


def test_a_read_in_a_later_loop_is_too_late() -> None:
    with tf.Fusion("late") as fusion:
        x = tf.define_tensor(["N"], name="x")
        y = tf.exp(x)
        fusion.add_output(y, name="y", into=x)
        fusion.add_output(tf.neg(x), name="z")
    certificate = tf.lower(fusion).verify()
    assert "it may read an element of x after another value was written there" in str(certificate)
    assert certificate.verdict is Verdict.REFUTED


def test_shared_memory_between_makes_a_reversal_right() -> None:
    """All threads of the block read, meet, and write: lowering puts the barrier there since it knows the two names of the array."""
    with tf.Fusion("staged") as fusion:
        x = tf.define_tensor([32], name="x")
        y = tf.neg(tf.flip(x))
        fusion.add_output(y, name="y", into=x)
    staged = x.cache_after()
    staged.set_memory_type(tf.MemoryType.Shared)
    for tv in (staged, y):
        tv.axis(0).parallelize(P.TIDx)
    kernel = tf.lower(fusion)
    assert kernel.verify().is_proved
    assert (kernel.simulate(X[:32])[0] == -X[31::-1]).all()
    racing = tf.parse_kernel("\n".join(line for line in kernel.text(witness=True).split("\n") if "SYNC block" not in line))
    assert not racing.verify().is_proved


def staged(what: str, stages: int) -> Kernel:
    """``y`` of ``x``, written into ``x``: one role reads tiles ahead, into a ring, and another one computes and stores them."""
    with tf.Fusion("roles") as fusion:
        x = tf.define_tensor(["M", tf.dim("N", multiple_of=4)], name="x")
        y = tf.exp(x) if what == "exp" else tf.exp(tf.roll(x, 1, 0))
        fusion.add_output(y, name="y", into=x)
    tile = x.cache_after() if what == "exp" else y.cache_before()
    tile.set_memory_type(tf.MemoryType.Shared)
    for tv in (tile, y):
        tv.split(1, 32)
        tv.split(0, 3)  # [trip, block, columns, 32]
        tv.axis(1).parallelize(P.BIDx)
        tv.axis(3).parallelize(P.TIDx)
    if what == "exp":
        tile.axis(3).parallelize(P.Serial)
        tile.set_atom(tf.atoms.TMA_LOAD, (3,))
    tile.inline_at(3)
    tile.circular_buffer(stages)
    fusion.group([fusion.task([tile], name="load"), fusion.task([y], name="store")], name="roles").parallelize(P.TIDy)
    return tf.lower(fusion)


@pytest.mark.parametrize("stages", [1, 3])
def test_a_role_that_reads_ahead_has_read_what_another_one_overwrites(stages: int) -> None:
    kernel = staged("exp", stages)
    assert "TMA" in str(kernel)
    assert kernel.verify().is_proved
    x = np.arange(7 * 40, dtype=np.float32).reshape(7, 40) / 300
    assert all(np.allclose(kernel.simulate(x, seed=seed)[0], np.exp(x)) for seed in range(3))


def test_a_role_that_reads_ahead_of_its_row_may_be_too_late() -> None:
    reasons = [o.reason for o in staged("roll", 3).verify().argument if o.layer is Layer.VALUES and o.verdict is not Verdict.PROVED]
    assert reasons == ["it may read an element of x after another value was written there"]


def test_every_interleaving_is_explored_with_one_array() -> None:
    good, bad = lowered("exp", threads=True, size=3), lowered("roll", threads=True, size=3)
    assert good.explore(X[:3], in_step=1).holds
    assert not bad.explore(X[:3], in_step=1).holds


@pytest.mark.parametrize(
    ("signature", "reason"),
    [
        ("(y: float32[N] into z)", "which is not an input"),
        ("(y: float16[N] into x)", "which has another shape or dtype"),
        ("(y: float32[N] into x, w: float32[N] into x)", "and so is another output"),
        ("(y: float32[N] into y)", "which is not an input"),
    ],
)
def test_the_rules_of_the_declaration(signature: str, reason: str) -> None:
    kernel = tf.parse_kernel(f"KERNEL k(x: float32[N]) -> {signature}\n  DIM N\n  GRID (1, 1, 1)  BLOCK (1, 1, 1)\n\nPASS\n")
    with pytest.raises(VerifyError) as caught:
        kernel.check_ir()
    assert reason in str(caught.value)


def test_cuda_does_not_promise_that_the_two_pointers_are_apart() -> None:
    text = lowered("exp", threads=True).cuda_source()
    assert "const float* x" in text
    assert "float* y" in text
    assert "__restrict__" not in text


@pytest.mark.parametrize(("first", "verdict"), [("copy(x[i0])", Verdict.OUTSIDE), ("mul(x[i0], 2.0)", Verdict.REFUTED)])
def test_what_the_caller_passed_is_not_refuted_where_it_is_right(first: str, verdict: Verdict) -> None:
    """Nor is it proved: the proof asks that every element is stored."""
    kernel = tf.parse_kernel(
        "KERNEL k(x: float32[8], i: int32[4], s: float32[4]) -> (y: float32[8] into x)\n  GRID (1, 1, 1)  BLOCK (4, 1, 1)\n"
        f"  DEFINE b: float32[8] = {first}\n  DEFINE u: float32[4] = send add of s[i0] at i[i0] of 8\n  DEFINE y: float32[8] = whole b at (i0), u at (v0)\n\n"
        "UPDATE y[v] by add of s[threadIdx.x] at v = i[threadIdx.x] of 8  ~ value u[threadIdx.x]\n"
    )
    assert kernel.verify().verdict is verdict
