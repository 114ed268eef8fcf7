"""Offsets of elements."""

import itertools
import re

import pytest

import taskfuse as tf
from taskfuse.cuda.source import emit
from taskfuse.cuda.storage import joined, packed_in
from taskfuse.ir.scalar import Expr, Facts, const, evaluate, sym
from taskfuse.kir import parse_kernel

X, N, M, K = (sym(name) for name in "XNMK")
POSITIVE = Facts().with_range("N", 1, None).with_range("M", 1, None).with_range("K", 1, None)


@pytest.mark.parametrize(
    ("index", "shape", "expected"),
    [
        ((X // M, X % M), (N, M), [X]),
        ((X // (M * K), X // K % M, X % K), (N, M, K), [X]),
        ((X // 35, X // 7 % 5, X % 7), (K, const(5), const(7)), [X]),
        ((K, X // M, X % M), (K, N, M), [K, X]),
        ((X // M, X % M, K), (N, M, K), [X, K]),
        ((X, X % M), (N, M), [X, X % M]),
        ((X // M, (X + 1) % M), (N, M), [X // M, (X + 1) % M]),
        ((X // K, X % M), (N, M), [X // K, X % M]),
        ((X // M, X % M), (N, K), [X // M, X % M]),
        ((X // 7, 4 * (X % 7) + 1), (N, const(28)), [4 * X + 1]),
        ((X // 7, 4 * (X % 5) + 1), (N, const(28)), [X // 7, 4 * (X % 5) + 1]),
        ((), (), []),
    ],
)
def test_what_an_index_was_divided_into_is_one(index: tuple[Expr, ...], shape: tuple[Expr, ...], expected: list[Expr]) -> None:
    found = joined(index, shape, lambda: POSITIVE)
    assert [i for i, _ in found] == expected
    for x, n, m, k in itertools.product((0, 5, 34, 35, 99), (1, 4), (1, 5), (1, 7)):
        values = {"X": x, "N": n, "M": m, "K": k}
        offsets = [0, 0]
        for which, places in enumerate((list(zip(index, shape, strict=True)), found)):
            for i, extent in places:
                offsets[which] = offsets[which] * int(evaluate(extent, values)) + int(evaluate(i, values))
        assert offsets[0] == offsets[1]


SWIZZLED = """\
KERNEL k(x: float32[128]) -> (y: float32[128])
  GRID (1, 1, 1)  BLOCK (32, 1, 1)
  SHARED s: float32[4, {0}] align 16 @ 0

FOR i in 0..4 UNROLL:
  s[threadIdx.x // 8, xor(threadIdx.x % 8, {1})] = copy(x[threadIdx.x])
"""


@pytest.mark.parametrize(
    ("extent", "other", "is_apart"),
    [
        (8, "2*i + threadIdx.x // 16", False),  # it may be 1 with 2*i, but no remainder says so
        (8, "2*i + threadIdx.x // 16 % 2", True),
        (8, "2*i", True),
        (8, "i + threadIdx.x // 16 % 2", False),  # both have bit 0
        (12, "2*i", False),  # the offset of a row has bits 2 and 3
        (8, "4*i", False),  # beyond the row
    ],
)
def test_what_swizzles_differ_in_is_applied_to_the_offset(extent: int, other: str, is_apart: bool) -> None:
    """Then an unrolled loop has one offset in a register."""
    text = emit(parse_kernel(SWIZZLED.format(extent, other))).text
    (offset,) = re.findall(r"s\[(.*)\] = ", text)
    assert bool(re.search(r"\^ (2 \* )?i$", offset)) == is_apart, offset
    for i, x in itertools.product(range(4), range(32)):
        column = x % 8 ^ eval(other.replace("threadIdx.x", "x"), {"i": i, "x": x})
        if column < extent:
            assert eval(offset.replace("/", "//"), {"i": i, "threadIdx_x": x}) == x // 8 * extent + column


def test_registers_that_are_only_copied_to_words_are_rounded_with_their_neighbors() -> None:
    """A stage of an elementwise function between a computation and an array of which vectors are stored; one that is read as a number is not."""
    with tf.Fusion("packed") as fusion:
        x = tf.define_tensor([1024], dtype=tf.bfloat16, name="x")
        fusion.add_output(tf.exp(x))
    (out,) = fusion.outputs
    made = out.cache_before()
    staged = made.cache_before()
    for tv in (out, made, staged):
        tv.split(0, 8)
    out.axis(1).parallelize(tf.ParallelType.Vectorize)
    made.inline_at(1)
    staged.inline_at(2)
    kernel = tf.lower(fusion)
    names = {b.name for b in kernel.buffers}
    assert names == {made.name, staged.name}
    assert packed_in(kernel) == names
    assert emit(kernel).text.count("= to_packed_bfloat16(") == 1
