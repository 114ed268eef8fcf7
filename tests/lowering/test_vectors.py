"""Vectors: what divides, what is contiguous."""

from collections.abc import Callable

import numpy as np
import pytest

import taskfuse as tf
from taskfuse import MemoryType, atoms
from taskfuse import ParallelType as P
from taskfuse.errors import LoweringError
from taskfuse.kir import walk
from taskfuse.kir.nodes import AtomicUpdate
from taskfuse.testing.updates import in_vectors
from tests.cuda.compiled import compiles, texts
from tests.lowering.refusing import lowering
from tests.lowering.running import agrees, numbers


def vector(columns: int | str, shape: Callable[[tf.TensorView], tf.TensorView] = tf.copy, multiple: int | None = None) -> tf.Fusion:
    """A copy by vectors of 4 of what ``shape`` makes of x [8, columns]."""
    with tf.Fusion("vector") as fusion:
        if multiple is not None:
            x = tf.define_tensor([8, tf.dim("N", multiple_of=multiple)], name="x")
        else:
            x = tf.define_tensor([8, columns], name="x")
        y = shape(x)
        fusion.add_output(y)
    y.split(1, 4)
    y.axis(2).parallelize(P.Vectorize)
    return fusion


def test_a_vector_axis_divides() -> None:
    agrees(vector(8), numbers(8, 8))
    agrees(vector("N", multiple=4), numbers(8, 12))
    text = "cannot lower tv1: its vector axis of 4 does not divide what it splits\nhelp: declare tf.dim(..., multiple_of=...) or use another width"
    assert lowering(vector(10)) == text
    assert lowering(vector("N")) == text


def test_a_vector_axis_is_contiguous_in_both_tensors() -> None:
    assert lowering(vector(8, lambda x: tf.copy(x.T))) == (
        "cannot lower tv2: its vector axis is not the last axis of x\nhelp: make the vector axis the innermost axis of both tensors"
    )
    assert lowering(vector(8, lambda x: tf.copy(tf.flip(x, 1)))) == (
        "cannot lower tv2: its vector axis is not contiguous in x\nhelp: make the vector axis the innermost axis of both tensors"
    )


@pytest.mark.parametrize(
    ("widths", "fits"), [(((2, 3), (4, 12)), True), (((0, 0), (0, 16)), True), (((1, 0), (8, 0)), True), (((0, 0), (2, 14)), False), (((0, 0), (4, 11)), False)]
)
def test_vectors_of_a_padded_row_exist_as_a_whole(widths: tuple[tuple[int, int], ...], fits: bool) -> None:
    with tf.Fusion("padded") as fusion:
        x = tf.define_tensor(["M", 128], name="x")
        padded = tf.pad(x, widths)
        fusion.add_output(padded * 2)
    padded.set_memory_type(MemoryType.Shared)
    padded.split(1, 4)
    padded.set_atom(atoms.CP_ASYNC, [2])
    if not fits:
        with pytest.raises(LoweringError, match=r"depends on its place in the vector|do not provably start|does not divide what it splits"):
            tf.lower(fusion)
        return
    kernel = tf.lower(fusion)
    assert kernel.verify().is_proved
    array = np.random.default_rng(0).standard_normal((3, 128)).astype(np.float32)
    np.testing.assert_array_equal(kernel.simulate(array, seed=1)[0], 2 * np.pad(array, widths))


@pytest.mark.parametrize("width", [2, 4])
def test_updates_of_vectors(width: int) -> None:
    kernel = agrees(in_vectors(width, tiles="T"), numbers(2, 32), numbers(3, 2, 32))
    assert [s.width for s in walk(kernel) if isinstance(s, AtomicUpdate)] == [width]
    assert kernel.verify().is_proved


def test_updates_of_vectors_compile() -> None:
    kernels = {str(width): tf.lower(in_vectors(width)) for width in (2, 4)}
    dense, strided = texts(kernels, "dense"), texts(kernels, "strided, wide")
    for name in kernels:
        assert f"update_add_f32_v{name}(&" in dense[name].text
        assert "update_add_f32(&" in strided[name].text
    compiles({**dense, **{f"{name} strided": source for name, source in strided.items()}})


def test_vectors_that_no_instruction_updates() -> None:
    text = "cannot lower tv4: it sends vectors of {} {} to be combined by add: {}\nhelp: use another width, or no vectors"
    assert lowering(in_vectors(2, tf.int32)) == text.format(2, "int32", "no instruction combines several")
    assert lowering(in_vectors(2, tf.float64)) == text.format(2, "float64", "no instruction combines several")
    assert lowering(in_vectors(4, columns=30)) == (
        "cannot lower tv4: its vector axis of 4 does not divide what it splits\nhelp: declare tf.dim(..., multiple_of=...) or use another width"
    )
