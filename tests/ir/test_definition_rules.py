"""Definitions that only a text can state: a function in a dtype for which it is undefined, a read of an element that is not there."""

import pytest

import taskfuse as tf
from taskfuse.errors import ParseError
from taskfuse.ir.definition_rules import broken_rule
from taskfuse.testing.anything import case

BROKEN = {
    "a sum beyond its terms": ("INPUT x: float32[8]\ny: float32[] = reduce add of copy(x) over i0: 9 init 0.0", "it reads x at i0, which is 8 of 8 elements"),
    "a shift": ("DIM N\nINPUT x: float32[N, 4]\ny: float32[N, 4] = exp(x[i0, i1 + 2])", r"it reads x at i1 \+ 2, which is 5 of 4 elements at N = 1"),
    "before the first": ("DIM N\nINPUT x: float32[N]\ny: float32[N] = exp(x[i0 - 1])", "it reads x at i0 - 1, which is -1 of 1 elements at N = 1"),
    "another dimension": ("DIM M\nDIM N\nINPUT x: float32[M]\ny: float32[N] = exp(x)", None),
    "beyond by a fact": (
        "DIM N min 9\nINPUT x: float32[8]\ny: float32[N] = exp(x)",
        "it reads x at i0, which is 8 of 8 elements at N = 9",
    ),
    "bits of floats": ("INPUT x: int32[8]\ny: float32[8] = bitwise_and(x, 1.5)", "bitwise_and does not compute in float32"),
    "an exponential of integers": ("INPUT x: float32[8]\ny: int32[8] = exp(x)", "exp does not compute in int32"),
    "an exponential summed in integers": ("INPUT x: int32[8]\ny: int32[] = reduce add of exp(x) over i0: 8 init 0", "exp does not compute in int32"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken(name: str) -> None:
    lines, reason = BROKEN[name]
    text = f"FUSION broken\n{lines}\nOUTPUT y\n"
    if reason is None:  # some extents have all that is read
        assert tf.parse_fusion(text)
        return
    with pytest.raises(ParseError, match=f"y cannot be computed: {reason}"):
        tf.parse_fusion(text)


def test_nothing_is_read_where_nothing_is_computed() -> None:
    """Not even elements at constant indices."""
    text = "FUSION empty\nINPUT x: float32[0]\ny: float32[0, 1] = view expand_dims(x[i0])\nz: float32[0] = exp(x[0])\nOUTPUT y, z"
    assert str(tf.parse_fusion(text)) == text


def test_ops_keep_the_rules() -> None:
    for seed in range(20):
        fusion = case(seed).fusion
        assert [broken_rule(e, fusion.dims.values()) for e in fusion.exprs()] == [None] * len(fusion.exprs())
