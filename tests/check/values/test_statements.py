"""Terms behind the end of a reduction: each form of a kernel adds nothing there, its bad twin may. The runs of both agree with that."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

import pytest

import taskfuse as tf
from taskfuse import parse_kernel
from taskfuse.check import Layer, Verdict, verify
from taskfuse.kir import Kernel
from taskfuse.testing.maps import difference

DTYPES = ["float32", "int32"]
HEAD = """\
KERNEL k(a: float32[K], b: float32[K]) -> (z: float32[])
  DIM K min 1 max 32
  GRID (1, 1, 1)  BLOCK (1, 1, 1)
  GLOBAL w: float32[K + 3]
  LOCAL acc: float32[]
  LOCAL p: float32[]
  LOCAL sa: float32[]
  LOCAL sb: float32[]
  DEFINE va: float32[K] = copy(a[i0])
  DEFINE vb: float32[K] = copy(b[i0])
  DEFINE z: float32[] over (K) at () = reduce add of mul(va[i0], vb[i0]) from 0.0

acc = copy(0.0)  ~ start z
"""
LOOP = "FOR k in 0..4*ceildiv(K, 4):\n"
END = "\nz[] = copy(acc)  ~ value z[]\n"
PADS = """\
  sa = pad(a[k] if k < K, otherwise 0)  ~ value va[k]
  sb = pad(b[k] if k < K, otherwise 0)  ~ value vb[k]
"""
GUARDS = """\
  IF k < K:
    sa = copy(a[k])  ~ value va[k]
    sb = copy(b[k])  ~ value vb[k]
"""
ZERO_A, ZERO_B = "  sa = copy(0.0)  ~ zero va\n", "  sb = copy(0.0)  ~ zero vb\n"
BODY = "  p = mul(sa, sb)  ~ body z[k]\n"
GUARDED = "  IF k < K:\n    p = mul(sa, sb)  ~ body z[k]\n"
TERM = "  acc = add(acc, p)  ~ term z[k]"
FUSED = "  acc = fma(sa, sb, acc)  ~ term z[k]"
FILL = "FOR k in 0..K + 3:\n" + PADS + "  w[k] = mul(sa, sb)  ~ body z[k]\n"
LATER = "FOR k in 0..K + 3:\n  acc = add(acc, w[k])  ~ term z[k]"
LANE_HEAD = HEAD.replace("BLOCK (1", "BLOCK (32").replace("LOCAL p: float32[]", "LOCAL p: float32[]\n  LOCAL q: float32[]")
PRODUCTS = """\
sa = pad(a[threadIdx.x] if threadIdx.x < K, otherwise 0)  ~ value va[threadIdx.x]
sb = pad(b[threadIdx.x] if threadIdx.x < K, otherwise 0)  ~ value vb[threadIdx.x]
p = mul(sa, sb)  ~ body z[threadIdx.x]
acc = add(acc, p)  ~ term z[threadIdx.x]
"""
STEPS = "".join(f"SHUFFLE q <- acc xor {n}  ~ part z\nacc = add(acc, q)  ~ part z\n" for n in (16, 8, 4, 2, 1))
LANES = LANE_HEAD + PRODUCTS + STEPS + "IF threadIdx.x == 0:\n  z[] = copy(acc)  ~ value z[]\n"

RIGHT = {
    "both factors are padded": HEAD + LOOP + PADS + BODY + TERM + END,
    "both factors are zeros before": HEAD + LOOP + ZERO_A + ZERO_B + GUARDS + BODY + TERM + END,
    "both factors of a multiply-add are zeros before": HEAD + LOOP + ZERO_A + ZERO_B + GUARDS + FUSED + END,
    "the product is zero before": HEAD + LOOP + PADS + "  p = copy(0.0)  ~ zero z\n" + GUARDED + TERM + END,
    "product and term are guarded": HEAD + LOOP + PADS + GUARDED + "  " + TERM + END,
    "products in a buffer": HEAD + FILL + LATER + END,
    "products of lanes": LANES,
}
WRONG = {
    "a stale product": (HEAD + LOOP + PADS + GUARDED + TERM + END, "no write of p is known"),
    "a product that was zero once": (HEAD + "p = copy(0.0)  ~ zero z\n" + LOOP + PADS + GUARDED + TERM + END, "it may find a zero in the place of z"),
    "stale factors": (HEAD + LOOP + GUARDS + BODY + TERM + END, "no write of sa is known"),
    "one stale factor": (HEAD + LOOP + ZERO_A + GUARDS + BODY + TERM + END, "no write of sb is known"),
    "the other stale factor": (HEAD + LOOP + ZERO_B + GUARDS + BODY + TERM + END, "no write of sa is known"),
    "one stale factor of a multiply-add": (HEAD + LOOP + ZERO_A + GUARDS + FUSED + END, "no write of sb is known"),
    "a zero in place of an element": (
        HEAD + LOOP + ZERO_A + ZERO_B + GUARDS.replace("k < K", "k < K - 1") + BODY + TERM + END,
        "may find a zero in the place of va",
    ),
    "a buffer that ends before": (HEAD + FILL.replace("K + 3", "K + 2") + LATER + END, "no write of w is known"),
    "a lane without a product": (LANES.replace("p = mul", "IF threadIdx.x < K:\n  p = mul"), "no write of p is known"),
}


def kernels(text: str) -> Iterator[Kernel]:
    """A kernel at any extent and at a constant one, in floats and integers."""
    for dtype in DTYPES:
        made = text if dtype == "float32" else text.replace("float32", dtype).replace("0.0", "0")
        yield parse_kernel(made)
        yield parse_kernel(re.sub(r"\bK\b", "7", made.replace("  DIM K min 1 max 32\n", "")))


@pytest.mark.parametrize("name", RIGHT)
def test_terms_behind_the_end_that_add_nothing(name: str) -> None:
    for kernel in kernels(RIGHT[name]):
        verify(kernel).require()
        assert difference(kernel, {"K": 5} if kernel.extents else {}, 0) is None


@pytest.mark.parametrize("name", WRONG)
def test_terms_behind_the_end_that_may_add(name: str) -> None:
    text, reason = WRONG[name]
    for kernel in kernels(text):
        certificate = verify(kernel)
        assert certificate.open_layers <= {Layer.VALUES, Layer.INSTANCE}, str(certificate)
        found = [o.reason for o in certificate.argument if o.verdict is not Verdict.PROVED]
        assert found
        if kernel.extents:
            assert any(reason in r for r in found), found


@cache
def batched() -> str:
    """A product whose batches are two axes of a factor; its depth ends inside the box of a copy, which fills up with zeros."""
    with tf.Fusion("batched") as fusion:
        a, b = (tf.define_tensor(shape, dtype=tf.bfloat16, name=name) for shape, name in (([6, 20, 40], "a"), ([2, 3, 40, 64], "b")))
        fusion.add_output(tf.matmul(a, tf.reshape(b, [6, 40, 64]), dtype=tf.float32))
    tf.schedulers.matmul(fusion, tf.schedulers.MatmulConfig(64, 64, 64, warpgroups=1, stages=2, blocks=4))
    return tf.lower(fusion).text(witness=True)


@pytest.mark.parametrize(
    ("old", "new", "verdict"),
    [
        ("b: ", "b: ", Verdict.PROVED),
        ("b: bfloat16[2, 3,", "b: bfloat16[9, 3,", Verdict.PROVED),  # batches behind the last, at which nothing looks
        ("b: bfloat16[2, 3, 40,", "b: bfloat16[2, 3, 48,", Verdict.REFUTED),  # elements behind the end, in the box
        ("(1 - blockIdx.x)//4 + 2", "(1 - blockIdx.x)//4 + 3", Verdict.REFUTED),  # a batch too many
    ],
)
def test_what_does_not_exist_is_past_the_end_of_an_axis_that_a_box_overhangs(old: str, new: str, verdict: Verdict) -> None:
    assert old in batched()
    assert verify(parse_kernel(batched().replace(old, new))).verdict is verdict
