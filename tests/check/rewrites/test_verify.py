"""Every call that rewrites math, on several ops and extents: proved; and with a fault in what it made: refuted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache, partial
from types import MappingProxyType

import pytest

import taskfuse as tf
import taskfuse.schedule.chunk_reduction as chunk_reduction
from taskfuse.check import verify
from taskfuse.check.rewrites.verify import rewritings
from taskfuse.errors import ProofError
from taskfuse.ir.expr import IndexValue, Operand, Scan, at_point
from taskfuse.ir.scalar import Expr
from taskfuse.kir import Kernel, parse_kernel
from taskfuse.reports.certificate import Layer, Verdict
from tests.check.rewrites import calls
from tests.check.rewrites.rewritten import Build, changed, is_proved, is_refuted, reductions, rewritten, scan

OPS: Mapping[str, Callable[..., tf.TensorView]] = MappingProxyType(
    {"sum": tf.sum, "max": tf.max, "prod": tf.prod, "argmax": tf.argmax, "var": tf.var, "softmax": tf.softmax, "logsumexp": tf.logsumexp}
)
DIVIDED = MappingProxyType({"constant": (12, 21), "rows": ("M", 21), "both": ("M", None)})
"""Shapes of which 7 divides the columns."""


def _input(shape: tuple[int | str | None, ...]) -> tf.TensorView:
    return tf.define_tensor([tf.dim("N", multiple_of=7) if n is None else n for n in shape], name="x")


def _reduced(op: str, shape: str) -> tf.TensorView:
    y = OPS[op](_input(DIVIDED[shape]), axis=1)
    y.fusion.add_output(y)
    return y


@pytest.mark.parametrize("shape", DIVIDED)
@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("call", ["rfactor outer", "rfactor inner", "chunk_reduction", "split_reduction", "caches"])
def test_rewritten_reductions_are_proved(call: str, op: str, shape: str) -> None:
    def build(f: tf.Fusion) -> None:
        y = _reduced(op, shape)
        for tv in reductions(f):
            match call:
                case "rfactor outer" | "rfactor inner":
                    tv.split(1, 4)  # which divides no extent
                    tv.rfactor([1 if call == "rfactor outer" else 2])
                case "chunk_reduction":
                    tv.chunk_reduction(1, 7)
                case "split_reduction":
                    tv.split_reduction(1, 7)
                case _:
                    tv.cache_before()
        if call == "caches":
            f.inputs[0].cache_after()
            y.cache_before()

    kernel = rewritten(build)
    assert kernel.written
    assert is_proved(rewritings(kernel))


@pytest.mark.parametrize("shape", [(12, 21), ("M", 21), ("M", "N")])
@pytest.mark.parametrize("op", [tf.cumsum, tf.cummax, tf.cumprod])
def test_scans_of_chunks_are_proved(op: Callable[..., tf.TensorView], shape: tuple[int | str, ...]) -> None:
    def build(f: tf.Fusion) -> None:
        f.add_output(op(_input(shape), axis=1))
        scan(f).chunk_scan(5)

    assert is_proved(rewritings(rewritten(build)))


@pytest.mark.parametrize("dtype", [tf.float32, tf.bfloat16])
def test_scans_of_chunks_of_chunks_are_proved(dtype: tf.DType) -> None:
    kernel = rewritten(partial(_twice, dtype))
    assert is_proved(rewritings(kernel))
    for old, new in (("i1 >= 1", "i1 >= 2"), ("i0, i1, 7]", "i0, i1, 6]"), ("i1//8, i1 % 8", "i1//8, (i1 + 1) % 8")):
        assert is_refuted(changed(kernel, old, new))


def _twice(dtype: tf.DType, f: tf.Fusion) -> None:
    """A scan of 256 elements in chunks of 8, whose totals are scanned in chunks of 4."""
    f.add_output(tf.cumsum(tf.define_tensor([3, 256], dtype=dtype, name="x"), axis=1))
    scan(f).chunk_scan(8)
    totals = [tv for tv in f.tensors() if isinstance(tv.definition, Scan) and len(tv.root) == 2]
    totals[0].chunk_scan(4)


def _product(f: tf.Fusion) -> None:
    """A product of 16-bit matrices with copies of both, and of the result."""
    a, b = (tf.define_tensor([n, 8], dtype=tf.bfloat16, name=name) for n, name in (("M", "a"), (4, "b")))
    y = tf.matmul(a, b.T).astype(tf.bfloat16)
    f.add_output(y)
    for tv in (a, b):
        tv.cache_after()
    y.cache_before()


def test_copies_of_narrow_factors_are_proved() -> None:
    kernel = rewritten(_product)
    assert is_proved(rewritings(kernel))
    for old, new in (("copy.float32(a[i0, i1])", "copy.float32(a[i0, 7 - i1])"), ("copy.float32(b[i0, i1])", "copy.float8_e5m2(b[i0, i1])")):
        assert not is_proved(rewritings(changed(kernel, old, new)))


@pytest.mark.parametrize("op", [tf.sum, tf.max, tf.prod])
def test_sums_of_joined_rows_are_proved(op: Callable[..., tf.TensorView]) -> None:
    """A reduction over copies of the same rows, stacked, has terms of several kinds, which are equal."""

    def build(f: tf.Fusion) -> None:
        x = _input(("M", 21))
        y = op(tf.stack([x, x, x], axis=1), axis=(1, 2))
        f.add_output(y)
        y.split(2, 4)
        y.rfactor([3])

    kernel = rewritten(build)
    assert is_proved(rewritings(kernel))
    if op is not tf.max:
        assert is_refuted(changed(kernel, "x[i0, i2] if i1 == 1,", "x[i0, 0] if i1 == 1,"))


def test_sums_of_nothing_and_sums_of_kept_sums_are_proved() -> None:
    def build(f: tf.Fusion) -> None:
        x = _input((3, 0))
        y = tf.sum(x, axis=1)
        z = tf.sum(y + 1.0, axis=0)  # whose terms are sums themselves
        f.add_output(y, z)
        y.split(1, 4)
        y.rfactor([2])
        z.split(0, 2)
        z.rfactor([1])

    assert is_proved(rewritings(rewritten(build)))


FAULTS: Mapping[Build, tuple[tuple[str, str], ...]] = MappingProxyType(
    {
        calls.rfactor: (
            ("over (M, 21) at (i0, i1//4)", "over (M, 20) at (i0, i1//4)"),  # a term dropped at the remainder
            ("reduce add of copy(tv2[i0, i1])", "reduce add of copy(tv2[i0, min(i1, 4)])"),  # terms twice, others not at all
            ("reduce add of copy(x[", "reduce maximum of copy(x["),
            ("reduce add of copy(x[", "reduce add of exp(x["),
            ("copy(tv2[i0, i1]) from 0.0", "copy(tv2[i0, i1]) from 1.0"),
        ),
        calls.chunk: (
            ("x[i1, 7*i0 + i2]", "x[i1, 6*i0 + i2]"),  # terms twice
            ("x[i1, 7*i0 + i2]", "x[i1, 7*i0 + min(i2, 5)]"),
            ("from 0.0", "from 1.0"),
        ),
        calls.chunk_argmax: (("index(7*i0 + i2)", "index(i1)"), ("index(7*i0 + i2)", "index(i2)"), ("tv4[i1, 7*i0 + i2]", "tv4[i1, 7*i0]")),
        calls.split_argmax: (("index(7*i1 + i2)", "index(i1)"), ("tv4[i0, 7*i1 + i2]", "tv4[i0, i1 + i2]")),
        calls.scanned: (
            ("5*i1 + i2 < 21", "5*i1 + i2 < 20"),
            ("copy(tv3[i0, i1, 4])", "copy(tv3[i0, i1, 3])"),
            ("if i1 >= 1", "if i1 >= 2"),
            ("add(tv6[i0, i1//5]", "add(tv5[i0, i1//5]"),
            ("scan add along 2", "scan add along 2 exclusive"),
        ),
        calls.caches: (("copy(x[i0, i1])", "copy(x[i0, 20 - i1])"), ("copy(x[i0, i1])", "neg(x[i0, i1])")),
        calls.duplicate: (("tv4: float32[M, 8] = exp(", "tv4: float32[M, 8] = neg("),),
        calls.recompute: (
            ("= exp(tv4[i0, i1])", "= exp(tv4[i0, 0])"),
            ("pick(tv5[i0, i1] if i1 >= 2 && i1 < 10", "pick(tv5[i0, i1] if i1 >= 2"),
        ),  # the mask dropped
        calls.unscatter: (("tv3[i0, i1 - 5] if i1 >= 5", "tv3[i0, 11 - i1] if i1 >= 5"),),
        calls.cascade: (
            ("minimum(tv20[i0, i1]", "minimum(tv19[i0, i1]"),
            ("4*i1 + i2 < N", "4*i1 + i2 < N - 1"),
            ("rescaled 1 by tv23[i0, i1]", "rescaled 1 by tv21[i0, 0]"),
        ),
        calls.split_fold: (("if i1 < i2", "if i1 <= i2"), ("reduce add of mul(tv8[i0, i1], tv5[i0, i1])", "reduce add of mul(tv8[i0, 0], tv5[i0, i1])")),
    }
)


@cache
def _kernel(build: Build) -> Kernel:
    return rewritten(build)


@pytest.mark.parametrize("build", calls.PROVED)
def test_every_call_is_proved(build: Build) -> None:
    assert is_proved(rewritings(_kernel(build)))


def test_what_is_not_shown_is_an_assumption_with_evidence() -> None:
    def build(f: tf.Fusion) -> None:
        x, w = (tf.define_tensor(["M", 21], name=name) for name in "xw")
        f.add_output(tf.maximum(x, w))
        x.cache_after()

    kernel = rewritten(build)
    swapped = next(line for line in kernel.text(witness=True).split("\n") if "DEFINE" in line and "maximum(" in line)
    x, w = swapped[swapped.index("maximum(") + 8 : -1].split("], ")
    found = rewritings(changed(kernel, f"maximum({x}], {w}", f"maximum({w}, {x}]"))
    assert not found.obligations
    (said,) = found.assumptions
    assert "which is not shown" in said
    assert "computed in" in said


def test_what_is_not_shown_and_has_no_evidence_is_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel that sums half of the terms, of so many that no element is computed."""
    half = parse_kernel(
        "KERNEL half(x: float32[64]) -> (y: float32[])\n  GRID (1, 1, 1)  BLOCK (1, 1, 1)\n  LOCAL acc: float32[]\n"
        "  DEFINE y: float32[] over (32) at () = reduce add of copy(x[i0]) from 0.0\n"
        "  WRITTEN y: float32[] over (64) at () = reduce add of copy(x[i0]) from 0.0\n\n"
        "acc = copy(0.0)  ~ start y\nFOR i in 0..32:\n  acc = add(acc, x[i])  ~ term y[i]\ny = copy(acc)  ~ value y[]\n"
    )
    assert is_refuted(half)
    for name, most in (("MOST", 0), ("WORK", 16), ("FIRST_WORK", 48)):
        monkeypatch.setattr(f"taskfuse.check.rewrites.instances.{name}", most)
    found = verify(half)
    assert found.verdict is Verdict.OUTSIDE
    assert "too large to compute it" in str(found.failures[0])


@pytest.mark.parametrize(("build", "fault"), [(build, fault) for build, faults in FAULTS.items() for fault in faults])
def test_faults_are_refuted(build: Build, fault: tuple[str, str]) -> None:
    old, new = fault
    assert is_refuted(changed(_kernel(build), old, new))


def test_a_cast_that_is_dropped_or_moved_is_no_proof() -> None:
    def build(f: tf.Fusion) -> None:
        y = tf.sum(tf.cast(_input(("M", 21)), tf.bfloat16), axis=1)
        f.add_output(y)
        reductions(f)[0].chunk_reduction(1, 7)

    kernel = rewritten(build)
    assert is_proved(rewritings(kernel))
    cast = next(d for d in kernel.definitions if d.dtype is tf.bfloat16)
    wide = tuple(replace(d, dtype=tf.float32) if d is cast else d for d in kernel.definitions)
    assert not is_proved(rewritings(replace(kernel, definitions=wide)))


def _unmoved(operand: Operand, point: Mapping[str, Expr]) -> Operand:
    return operand if isinstance(operand, IndexValue) else at_point(operand, point)


def test_the_value_of_an_index_that_does_not_move_is_refuted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunk_reduction, "at_point", _unmoved)
    certificate = rewritten(calls.chunk_argmax).verify()
    assert certificate.verdict is Verdict.REFUTED
    (failure,) = (o for o in certificate.obligations if o.layer is Layer.REWRITINGS)
    assert failure.subject == "output tv5"
    assert "element [0] is" in failure.reason
    assert "was written as" in failure.reason
    assert "y.chunk_reduction(1, 7)" in str(failure)
    with pytest.raises(ProofError, match="output tv5"):
        certificate.require()


def test_a_kernel_of_a_fusion_that_was_not_rewritten_has_nothing_to_show() -> None:
    def build(f: tf.Fusion) -> None:
        y = tf.exp(_input(("M", 8)))
        f.add_output(y)
        y.split(1, 4)

    kernel = rewritten(build)
    assert kernel.written == ()
    assert not any(o.layer is Layer.REWRITINGS for o in kernel.verify().obligations)


@pytest.mark.parametrize("build", calls.PROVED)
def test_text_keeps_what_was_written(build: Build) -> None:
    kernel = _kernel(build)
    parsed = tf.parse_kernel(kernel.text(witness=True))
    assert parsed.written == kernel.written
    assert is_proved(rewritings(parsed))
