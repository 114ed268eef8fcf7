"""Which threads of a block satisfy conditions, by their linear numbers; unknown where an extent or a condition is not constant."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskfuse.check.masks import Masks
from taskfuse.ir.scalar import FALSE, TRUE, Expr, and_, const, eq, ge, lt, sym
from taskfuse.target import MAX_THREADS

X, Y, Z, N = sym("threadIdx.x"), sym("threadIdx.y"), sym("threadIdx.z"), sym("N")


def masks(x: int, y: int = 1, z: int = 1) -> Masks:
    return Masks((const(x), const(y), const(z)))


@given(st.integers(1, 9), st.integers(1, 5), st.integers(1, 3))
def test_threads_are_numbered_x_first_in_warps_of_32(x: int, y: int, z: int) -> None:
    found = masks(x, y, z)
    assert found.shape == (x, y, z)
    numbers = [(i, j, k) for k in range(z) for j in range(y) for i in range(x)]
    assert list(zip(*(found.values[n].tolist() for n in ("threadIdx.x", "threadIdx.y", "threadIdx.z")), strict=True)) == numbers
    assert found.warps.tolist() == [n // 32 for n in range(x * y * z)]


def test_blocks_of_one_shape_share_their_threads_which_nobody_changes() -> None:
    one, other = masks(8, 3), masks(8, 3)
    one.values["other"] = one.warps
    assert other.warps is one.warps
    assert "other" not in other.values
    with pytest.raises(ValueError, match="read-only"):
        one.values["threadIdx.x"][0] = 1


def test_conditions_hold_together() -> None:
    found = masks(4, 2).of([ge(X, 1), lt(X, 3), eq(Y, 1)])
    assert found is not None
    assert np.flatnonzero(found).tolist() == [5, 6]
    everybody = masks(4, 2).of([])
    assert everybody is not None
    assert everybody.all()


@pytest.mark.parametrize("condition", [lt(X, const(2) // const(0)), eq(const(2) % const(0), Y)])
def test_a_condition_without_a_value_decides_nothing(condition: Expr) -> None:
    assert masks(4, 2).of([condition]) is None


@pytest.mark.parametrize("block", [(N, const(1), const(1)), (const(MAX_THREADS), const(2), const(1))])
def test_blocks_that_are_not_listed(block: tuple[Expr, Expr, Expr]) -> None:
    found = Masks(block)
    assert found.shape is None
    assert found.of([TRUE]) is None
    assert not found.is_empty([FALSE])
    assert not found.everybody(TRUE)


def test_what_speaks_of_more_than_threads_is_unknown() -> None:
    found = masks(8)
    assert found.of([lt(X, N)]) is None
    assert found.of([lt(X, 4), lt(X, N)]) is None
    assert not found.everybody(lt(X, N))


def test_nobody_may_leave_out_what_it_does_not_understand() -> None:
    """Conditions on threads alone already exclude everybody, whatever the others say; the other way around nothing follows."""
    found = masks(8, 4)
    assert found.is_empty([lt(X, 2), ge(X, 2), lt(X, N)])
    assert not found.is_empty([lt(X, 2), lt(N, 0)])
    assert not found.is_empty([])


def test_everybody() -> None:
    assert masks(8).everybody(lt(X, 8))
    assert not masks(9).everybody(lt(X, 8))
    assert masks(1).everybody(and_(eq(X, 0), eq(Z, 0)))
