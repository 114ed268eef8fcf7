"""What memory forgives, and what it does not."""

import numpy as np
import pytest

from taskfuse.errors import SimulationError
from taskfuse.ir.values import MODULAR, NATIVE, Values
from taskfuse.kir.nodes import Compute
from taskfuse.kir.operands import Access
from taskfuse.location import Location
from taskfuse.sim import Interleaving, simulate
from tests.sim.kernels import X, error, errors, kernel


def test_out_of_bounds_names_everything() -> None:
    k = kernel(
        "IF threadIdx.x < 16:  # t1\n  y[blockIdx.x, threadIdx.x] = copy(x[blockIdx.x, threadIdx.x + 1])",
        inputs="x: float32[2, 16]",
        outputs="y: float32[2, 16]",
        grid="(2, 1, 1)",
        block="(16, 2, 1)",
    )
    assert error(k, [X.reshape(2, 16)]).splitlines() == [
        "k: input 'x' accessed out of bounds",
        "note: statement: y[blockIdx.x, threadIdx.x] = copy(x[blockIdx.x, threadIdx.x + 1])",
        "note: in t1: block (0, 0, 0), thread (15, 0, 0)",
        "note: index [0, 16]; shape [2, 16]",
    ]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("y[threadIdx.x] = copy(x[threadIdx.x - 1])", "k: input 'x' accessed out of bounds"),
        ("y[threadIdx.x + 1] = copy(x[threadIdx.x])", "k: Global 'y' accessed out of bounds"),
        ("s[threadIdx.x//4, threadIdx.x % 4] = copy(x[threadIdx.x])", "k: Shared 's' accessed out of bounds"),
        ("FOR i in 0..3:\n  a[i] = copy(x[threadIdx.x])", "k: Local 'a' accessed out of bounds"),
        ("y[threadIdx.x] = copy(w[32])", "k: Global 'w' accessed out of bounds"),
        ("COPY a[0] <- x[threadIdx.x] width 2", "k: input 'x' accessed out of bounds"),
    ],
)
def test_out_of_bounds(body: str, message: str) -> None:
    k = kernel(body, "LOCAL a: float32[2]", "SHARED s: float32[8, 2] align 4", "GLOBAL w: float32[32]")
    assert error(k).splitlines()[0] == message


def test_a_negative_index_does_not_wrap_around() -> None:
    k = kernel("y[threadIdx.x] = copy(x[threadIdx.x//32 - 1])")
    assert "note: index [-1]; shape [32]" in error(k).splitlines()


@pytest.mark.parametrize("values", [NATIVE, MODULAR])
@pytest.mark.parametrize(
    ("body", "message", "note"),
    [
        ("y[threadIdx.x] = copy(a[0])", "k: read of uninitialized Local 'a'", "note: index [0]"),
        ("y[threadIdx.x] = copy(s[threadIdx.x//2, threadIdx.x % 2])", "k: read of uninitialized Shared 's'", "note: index [0, 0]"),
        ("y[threadIdx.x] = copy(w[threadIdx.x])", "k: read of uninitialized Global 'w'", "note: index [0]"),
        (
            "IF threadIdx.x < 30:\n  w[threadIdx.x] = copy(x[threadIdx.x])\ny[threadIdx.x] = copy(w[threadIdx.x])",
            "k: read of uninitialized Global 'w'",
            "note: index [30]",
        ),
        (
            "IF threadIdx.x >= 16:\n  a[1] = copy(x[threadIdx.x])\ny[threadIdx.x] = copy(a[1])",
            "k: read of uninitialized Local 'a'",
            "note: index [1]",
        ),
    ],
)
def test_uninitialized_reads(body: str, message: str, note: str, values: Values) -> None:
    k = kernel(body, "LOCAL a: float32[2]", "SHARED s: float32[16, 2] align 4", "GLOBAL w: float32[32]")
    lines = error(k, values=values).splitlines()
    assert lines[0] == message
    assert lines[-1] == note


def test_location_of_the_statement_is_reported() -> None:
    k = kernel("y[threadIdx.x] = copy(a)", "LOCAL a: float32[]")
    (stmt,) = k.body
    assert isinstance(stmt, Compute)
    located = Compute(stmt.out, stmt.op, stmt.operands, stmt.dtype, location=Location("user.py", 7))
    with pytest.raises(SimulationError) as caught:
        simulate(type(k)(k.name, k.extents, k.params, k.grid, k.block, k.buffers, k.mbarriers, k.counters, (located,)), [X])
    assert caught.value.location == Location("user.py", 7)
    assert isinstance(stmt.out, Access)


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


def test_buffers_that_overlap_share_their_bytes() -> None:
    k = kernel(
        "s[threadIdx.x] = copy(x[threadIdx.x])\ny[threadIdx.x] = copy(b[threadIdx.x, 3])",
        "SHARED s: float32[32] align 4 @ 64",
        "SHARED b: uint8[32, 4] align 1 @ 64",
        outputs="y: uint8[32]",
    )
    np.testing.assert_array_equal(simulate(k, [X])[0], X.view(np.uint8)[3::4])


@pytest.mark.parametrize("values", [NATIVE, MODULAR])
def test_an_alias_overwrites(values: Values) -> None:
    k = kernel(
        "s[threadIdx.x] = copy(x[threadIdx.x])\nt[threadIdx.x] = copy(2.0)\ny[threadIdx.x] = copy(s[threadIdx.x])",
        "SHARED s: float32[32] align 4",
        "SHARED t: float32[32] align 4 @ 0",
    )
    (y,) = simulate(k, [X], values=values)
    np.testing.assert_array_equal(y, np.full(32, values.literal(2.0, k.outputs[0].dtype)))


def test_buffers_without_an_offset_follow_those_before() -> None:
    k = kernel(
        "FOR i in 0..3:\n  s[i] = copy(1)\nt[0] = copy(x[0])\ny[threadIdx.x] = copy(t[0])",
        "SHARED s: uint8[3] align 1",
        "SHARED t: float32[1] align 4",
        block="(32, 1, 1)",
    )
    np.testing.assert_array_equal(simulate(k, [X + 5])[0], np.full(32, 5))


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


def test_a_missing_barrier_shows() -> None:
    k = kernel("s[threadIdx.x] = copy(x[threadIdx.x])\ny[threadIdx.x] = copy(s[31 - threadIdx.x])", "SHARED s: float32[32] align 4")
    assert errors(k) == {"none", "k: read of uninitialized Shared 's'"}
