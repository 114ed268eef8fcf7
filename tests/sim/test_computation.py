"""Instructions that compute and copy elements."""

import numpy as np

from taskfuse.sim import Interleaving, simulate
from tests.sim.kernels import X, error, errors, kernel


def test_threads_that_disagree_on_an_element() -> None:
    k = kernel("y[threadIdx.x//2] = copy(x[threadIdx.x])")
    assert error(k).splitlines() == [
        "k: threads write different values to one element of Global 'y' in one statement",
        "note: statement: y[threadIdx.x//2] = copy(x[threadIdx.x])",
        "note: block (0, 0, 0), thread (0, 0, 0)",
        "note: index [0]",
    ]
    uniform = kernel("s[0] = copy(x[threadIdx.x])", "SHARED s: float32[1] align 4")
    assert error(uniform).splitlines()[0] == "k: threads write different values to one element of Shared 's' in one statement"


def test_threads_that_agree_on_an_element() -> None:
    k = kernel("y[threadIdx.x//2] = copy(x[threadIdx.x//2])\ns[0] = copy(x[7])\ny[threadIdx.x//2 + 16] = copy(s[0])", "SHARED s: float32[1] align 4")
    np.testing.assert_array_equal(simulate(k, [X])[0], [*range(16), *[7] * 16])


def test_nan_agrees_with_itself() -> None:
    k = kernel("y[0] = copy(x[threadIdx.x])", outputs="y: float32[1]")
    assert np.isnan(simulate(k, [np.full(32, np.nan, np.float32)])[0])


def test_vector_copies() -> None:
    k = kernel(
        "COPY a[0] <- x[4*threadIdx.x] width 4\nCOPY s[threadIdx.x, 0] <- a[0] width 4\nCOPY y[4*threadIdx.x] <- s[7 - threadIdx.x, 0] width 4",
        "LOCAL a: float32[4]",
        "SHARED s: float32[8, 4] align 16",
        block="(8, 1, 1)",
    )
    expected = X.reshape(8, 4)[::-1].reshape(-1)
    (y,) = simulate(k, [X], interleaving=Interleaving.ROUND_ROBIN)
    np.testing.assert_array_equal(y, expected)
    assert errors(k) == {"none", "k: read of uninitialized Shared 's'"}  # without a barrier, only some interleavings are lucky


def test_a_vector_copy_by_threads_that_agree() -> None:
    k = kernel("COPY a[0] <- x[8] width 4\nCOPY y[0] <- a[0] width 4", "LOCAL a: float32[4]", block="(4, 1, 1)", outputs="y: float32[4]")
    np.testing.assert_array_equal(simulate(k, [X])[0], X[8:12])


def test_vector_copies_must_be_aligned() -> None:
    k = kernel("COPY a[0] <- x[2*threadIdx.x] width 4", "LOCAL a: float32[4]", block="(8, 1, 1)")
    assert error(k).splitlines() == [
        "k: access of 16 bytes to input 'x' at an address that is not a multiple of 16",
        "note: statement: COPY a[0] <- x[2*threadIdx.x] width 4",
        "note: block (0, 0, 0), thread (1, 0, 0)",
        "note: index [2]",
    ]


def test_choices_read_only_what_they_take() -> None:
    k = kernel(
        "y[threadIdx.x] = cat(x[threadIdx.x + 24] if threadIdx.x < 8, x[threadIdx.x - 8] if threadIdx.x < 16, otherwise 0.5)",
    )
    np.testing.assert_array_equal(simulate(k, [X])[0], [*range(24, 32), *range(8), *[0.5] * 16])
    none = kernel("y[threadIdx.x] = cat(x[threadIdx.x] if threadIdx.x < 8)")
    lines = error(none).splitlines()
    assert lines[0] == "k: no case of the choice holds"
    assert lines[2] == "note: block (0, 0, 0), thread (8, 0, 0)"


def test_a_choice_converts() -> None:
    k = kernel("y[threadIdx.x] = cat(x[threadIdx.x] if threadIdx.x < 8, otherwise index(threadIdx.x))", inputs="x: float64[32]", outputs="y: int32[32]")
    np.testing.assert_array_equal(simulate(k, [X.astype(np.float64) + 0.75])[0], X)
