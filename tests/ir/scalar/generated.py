"""Random scalar expressions and points of a loop nest."""

from __future__ import annotations

from hypothesis import strategies as st

from taskfuse.ir.scalar import Expr, Facts, and_, const, eq, le, lt, maximum, minimum, ne, not_, or_, select, sym, table, xor
from tests.strategies import built

NAMES = ("i0", "i1", "threadIdx.x", "S", "T")


def combine(inner: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
    small = st.integers(-9, 9)
    divisors = st.one_of(st.sampled_from([2, 3, 4, 8, -4]).map(const), st.sampled_from(["S", "T"]).map(sym), st.just(4 * sym("S")))
    conditions = built(lambda make, a, b: make(a, b), st.sampled_from([lt, le, eq, ne]), inner, inner)
    return st.one_of(
        built(lambda a, b: a + b, inner, inner),
        built(lambda a, b: a - b, inner, inner),
        built(lambda a, k: a * k, inner, small),
        built(lambda a, k: a + k, inner, small),
        built(lambda a, b: a * b, inner, inner),
        built(lambda a, b: a // b, inner, divisors),
        built(lambda a, b: a % b, inner, divisors),
        built(lambda a, b: a.ceildiv(b), inner, divisors),
        built(lambda a, b: (a // b) * b + a % b, inner, divisors),
        st.builds(minimum, inner, inner),
        st.builds(maximum, inner, inner),
        st.builds(xor, inner, inner),
        conditions,
        st.builds(and_, conditions, conditions),
        st.builds(or_, conditions, conditions),
        st.builds(not_, inner),
        st.builds(select, conditions, inner, inner),
        built(lambda a: table([3, -1, 4, 1, 5], a % 5), inner),
    )


LEAVES = st.one_of(st.sampled_from(NAMES).map(sym), st.integers(-9, 9).map(const))
EXPRESSIONS = st.recursive(LEAVES, combine, max_leaves=8)
NONZERO = st.integers(-6, 6).filter(bool)
POINTS = st.fixed_dictionaries({"i0": st.integers(-9, 9), "i1": st.integers(-9, 9), "threadIdx.x": st.integers(-9, 9), "S": NONZERO, "T": NONZERO})


# Facts of a loop nest: i0 in [0, S-1], i1 in [0, ceildiv(T, 4)-1], threadIdx.x in [0, 7], S >= 1, T a multiple of 2.
NEST = (
    Facts()
    .with_range("S", 1, None)
    .with_range("T", 0, None)
    .with_multiple("T", 2)
    .with_range("i0", 0, sym("S") - 1)
    .with_range("i1", 0, sym("T").ceildiv(4) - 1)
    .with_range("threadIdx.x", 0, 7)
)


@st.composite
def nest_points(draw: st.DrawFn) -> dict[str, int]:
    s, t = draw(st.integers(1, 9)), 2 * draw(st.integers(1, 6))
    return {"S": s, "T": t, "i0": draw(st.integers(0, s - 1)), "i1": draw(st.integers(0, -(-t // 4) - 1)), "threadIdx.x": draw(st.integers(0, 7))}


NEST_POINTS = st.lists(nest_points(), min_size=8, max_size=8)
INDICES: st.SearchStrategy[Expr] = st.recursive(
    st.sampled_from(NAMES).map(sym),
    lambda inner: built(lambda a, b, k: a * k + b, inner, inner, st.sampled_from([1, 2, 4, sym("S"), sym("T")])),
    max_leaves=4,
)
