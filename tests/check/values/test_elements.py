"""Elements at given extents: those that are equal by definition are one term, all others are apart; places are row-major."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskfuse.check.refuted import TooLarge
from taskfuse.check.values.elements import Elements, row_major, value
from taskfuse.check.values.terms import NOTHING, Terms, constant_tag
from taskfuse.dtypes import float32
from taskfuse.ir.scalar import parse_expr
from taskfuse.kir import parse_kernel
from taskfuse.kir.witness import Apply

TEXT = """\
KERNEL k(x: float32[N, 4], z: float32[3], s: float32) -> (y: float32[N, 4])
  DIM N min 1
  GRID (1, 1, 1)  BLOCK (1, 1, 1)
  DEFINE moved: float32[4, N] = copy(x[i1, i0])
  DEFINE narrow: float16[N, 4] = copy.float16(x[i0, i1])
  DEFINE padded: float32[5] = pick(z[i0 - 1] if i0 >= 1 && i0 < 4, otherwise 0.0)
  DEFINE chosen: float16[3] = pick(z[i0] if i0 >= 1, otherwise 0.0)
  DEFINE again: float32[2, 2] = copy(moved[2*i0 + i1, 0])
  DEFINE low: float32[1, 4] = exp(x[0, i1])
  DEFINE high: float32[N - 1, 4] = neg(x[i0 + 1, i1])
  DEFINE y: float32[N, 4] = whole low at (i0, i1), high at (i0 + 1, i1)

FOR i in 0..4:
  y[0, i] = exp(x[0, i])  ~ value low[0, i]
"""


def elements(n: int = 3) -> Elements:
    return Elements(parse_kernel(TEXT), {"N": n})


def text(terms: Terms) -> list[tuple[int, int]]:
    return list(zip(terms.tag.tolist(), terms.data.tolist(), strict=True))


def test_a_copy_has_the_terms_of_what_it_copies() -> None:
    found = elements()
    t = found.tensors
    own = found.everything(t["x"])
    order = np.arange(12).reshape(3, 4).T.reshape(-1)
    assert text(found.everything(t["moved"])) == text(own[order])
    assert text(found.everything(t["again"])) == text(own[np.arange(4)])  # through both


def test_what_is_converted_or_computed_is_its_own() -> None:
    found = elements()
    for name in ("narrow", "chosen", "low", "high"):
        t = found.tensors[name]
        assert text(found.everything(t)) == [(t.element, k) for k in range(t.size)]


def test_zeros_of_a_pad_are_constants() -> None:
    found = elements()
    z = found.tensors["z"]
    zero = constant_tag(float32), 0
    assert text(found.everything(found.tensors["padded"])) == [zero, (z.element, 0), (z.element, 1), (z.element, 2), zero]


def test_a_whole_is_its_parts() -> None:
    found = elements()
    low, high = found.tensors["low"], found.tensors["high"]
    assert text(found.everything(found.tensors["y"])) == [(low.element, k) for k in range(4)] + [(high.element, k) for k in range(8)]


def test_an_operand_outside_its_tensor_is_nothing() -> None:
    found = elements()
    d = found.tensors["moved"].definition
    assert d is not None
    assert isinstance(d.rule, Apply)
    (operand,) = d.rule.operands
    at = {"N": 3, "i0": np.array([0, 0]), "i1": np.array([2, 3])}
    assert text(found.operand(operand, at, 2)) == [(found.tensors["x"].element, 8), (NOTHING, 0)]


@given(st.lists(st.integers(1, 5), min_size=0, max_size=3), st.data())
def test_places_are_row_major(extents: list[int], data: st.DataObject) -> None:
    index = [data.draw(st.integers(-2, n + 1)) for n in extents]
    there = all(0 <= i < n for i, n in zip(index, extents, strict=True))
    places, inside = row_major([np.array([i]) for i in index], tuple(extents), 1)
    assert inside.tolist() == [there]
    assert places.tolist() == [int(np.ravel_multi_index(index, extents)) if there and extents else 0]


def test_values_are_numbers_or_arrays() -> None:
    assert value(parse_expr("2*i + 1"), {"i": 3}) == 7
    found = value(parse_expr("2*i + j"), {"i": np.arange(3), "j": 1})
    assert isinstance(found, np.ndarray)
    assert found.tolist() == [1, 3, 5]


def test_large_spaces_are_not_written_down() -> None:
    with pytest.raises(TooLarge):
        elements().points((1 << 12, 1 << 11))
