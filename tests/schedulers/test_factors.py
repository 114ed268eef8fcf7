"""The factors of a product: which functions of one are computed on its way through registers."""

import pytest

import taskfuse as tf
from taskfuse.errors import UnsupportedError
from taskfuse.schedulers.contraction import find
from taskfuse.schedulers.factors import prologue_of, whole_span
from tests.schedulers.fusions import Build
from tests.schedulers.tried import built


def factors(dtype: tf.DType = tf.bfloat16, k: int = 128) -> tuple[tf.TensorView, tf.TensorView]:
    return tf.define_tensor([96, k], dtype=dtype, name="a"), tf.define_tensor([k, 64], name="b", dtype=tf.bfloat16)


def product(a: tf.TensorView, b: tf.TensorView) -> tf.TensorView:
    return tf.matmul(a, b, dtype=tf.float32)


def test_functions_of_one_tensor() -> None:
    """One after another; one that reads the tensor twice; none of an input."""
    with tf.Fusion("f") as fusion:
        a, b = factors()
        wide = tf.cast(a, tf.float32)
        square = wide * wide
        half = tf.cast(square, tf.bfloat16)
        fusion.add_output(product(half, b))
    assert prologue_of(fusion, half) == (wide, square, half)
    assert prologue_of(fusion, a) == ()
    found = find(fusion)
    assert (found.a.tensor, found.a.prologue, found.a.is_bulk) == (a, (wide, square, half), True)
    assert found.epilogue == ()
    assert found.b.prologue == ()


def test_their_places_are_its_own() -> None:
    """No prologue: of two tensors, of the transposed one, of one that something else reads, of an output."""
    with tf.Fusion("f") as fusion:
        a, scale = tf.define_tensor([64, 64], name="a"), tf.define_tensor([64, 64], name="scale")
        sums, turned, twice, out = a * scale, tf.relu(a.T), tf.relu(a), tf.exp(a)
        fusion.add_output(tf.abs(twice), tf.neg(twice), out)
    assert [prologue_of(fusion, tv) for tv in (sums, turned, twice, out)] == [()] * 4


def of_columns() -> list[tf.TensorView]:
    a, b = factors()
    return [product(a, tf.relu(b))]


def of_contiguous_rows() -> list[tf.TensorView]:
    a, b = (tf.define_tensor([128, columns], dtype=tf.bfloat16, name=name) for columns, name in ((96, "a"), (64, "b")))
    return [product(tf.relu(a.T), b)]


def of_many_bits() -> list[tf.TensorView]:
    a, b = factors(tf.float64)
    return [product(tf.cast(a, tf.bfloat16), b)]


def of_part_of_a_step() -> list[tf.TensorView]:
    a, b = factors(k=72)
    return [product(tf.relu(a), b)]


def read_beside() -> list[tf.TensorView]:
    a, b = tf.define_tensor([64, 64], dtype=tf.bfloat16, name="a"), tf.define_tensor([64, 64], dtype=tf.bfloat16, name="b")
    return [product(tf.relu(a), b) + a]


def of_two_contractions() -> list[tf.TensorView]:
    a, b = factors()
    return [product(tf.relu(a), b) + product(tf.exp(a), b)]


REFUSED: dict[Build, str] = {
    of_columns: "the factor tv2 is computed",
    of_contiguous_rows: "is computed",
    of_many_bits: "is not rows of k, of at most 32 bits, that bulk copies bring",
    of_part_of_a_step: "the factor tv2 is computed, and of zeros behind the end of k = 72, too",
    read_beside: "a is read by more than the contraction",
    of_two_contractions: "is computed",
}


@pytest.mark.parametrize("build", REFUSED, ids=lambda f: f.__name__)
def test_refusals(build: Build) -> None:
    fusion = built(build)
    with pytest.raises(UnsupportedError) as caught:
        find(fusion)
    assert REFUSED[build] in caught.value.message
    assert caught.value.help


def test_steps_are_whole_rows_of_the_swizzle_of_both_factors() -> None:
    """Of 16 bits; of bytes; of two, and of eight in a word; of three in a word, where neither row is a whole number of the other."""
    assert [whole_span(*of, 2) for of in ((2, 1), (1, 1), (4, 1), (1, 2), (4, 8), (4, 3))] == [64, 128, 64, 256, 256, 192]
