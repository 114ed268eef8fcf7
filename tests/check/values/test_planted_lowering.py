"""Two faults that lowering had once, planted again: the proof refutes what comes of them, and says which element lacks which terms.

A contraction of tensor cores whose summed axis is spread over blocks or threads was finished without joining the parts; and an overhang inside a tensor
was taken for one past its end, so that zeros of a padded copy landed on elements.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

import taskfuse as tf
from taskfuse import ParallelType as P
from taskfuse.check import Layer, Obligation, Verdict
from taskfuse.ir.axes import Axis, Split
from taskfuse.ir.scalar import Expr, Facts
from taskfuse.ir.tensor import TensorView
from taskfuse.kir import Kernel
from taskfuse.lowering import guard_elimination, guards, index_maps, nest, overhang
from taskfuse.lowering.domains import forward
from taskfuse.lowering.plan import PNode
from taskfuse.lowering.statements import Statements
from tests.lowering.joined import Product
from tests.lowering.stage import of

SPREAD = (P.BIDz, P.BIDy, P.TIDy, P.CIDx)
OVERHANGS = (
    (12, "inner", 2, 5, "serial", "0] and 11 more"),
    (12, "inner", 2, 5, "threads", "0] and 11 more"),
    (11, "inner", 2, 5, "serial", "0] and 10 more"),
    (13, "inner", 3, 2, "serial", "2] and 3 more"),
    (12, "other way round", 2, 5, "serial", "11]"),
)
"""Extent, transforms and factors of :func:`tests.lowering.test_overhang.of`, who copies, and which terms are lost."""


def unjoined(statements: Statements, ended: Sequence[tuple[TensorView, dict[Axis, Expr]]]) -> list[PNode]:
    """Results are stored; nothing joins partial results."""
    return [statements.store(tv, loops) for tv, loops in ended if statements.accumulator(tv) != tv.name]


def past_the_end(tv: TensorView, source: Axis) -> Axis:
    """Every overhang is taken for one of the only axis."""
    return tv.root[0]


def folded(tv: TensorView, values: dict[Axis, Expr], facts: Facts) -> dict[Axis, Expr]:
    """Where an element lies follows from its logical index alone, whichever code is at it."""
    found = dict(values)
    if all(a in values for a in tv.logical):
        for a, e in forward(tv, tuple(values[a] for a in tv.logical), facts).items():
            found.setdefault(a, e)
    return found


def everything(tv: TensorView, *_: object) -> set[Axis]:
    """Every place is taken to tell who writes it."""
    return {t.source for t in tv.schedule.transforms if isinstance(t, Split)}


def refutation(kernel: Kernel) -> Obligation:
    """The obligation of values that is refuted."""
    return next(o for o in kernel.verify().argument if o.layer is Layer.VALUES and o.verdict is Verdict.REFUTED)


@pytest.mark.parametrize("along", SPREAD, ids=lambda p: p.value)
@pytest.mark.parametrize("atom", ["wgmma", "mma"])
def test_parts_of_a_product_that_nobody_joins(atom: str, along: P, monkeypatch: pytest.MonkeyPatch) -> None:
    case = Product(atom, along, tiles=4)
    tf.lower(case.fusion()).verify().require()
    monkeypatch.setattr(nest, "finish", unjoined)
    found = refutation(tf.lower(case.fusion()))
    assert found.subject == "tv4[0, 0]"
    half = 128 if atom == "wgmma" else 32
    assert found.reason == f"element [0, 0] of tv3 lacks the term at [0, 0, {half}] and {half - 1} more"


@pytest.mark.parametrize(("n", "transforms", "f", "g", "who", "said"), OVERHANGS)
def test_zeros_on_elements(n: int, transforms: str, f: int, g: int, who: str, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tf.lower(of(n, transforms, f, g, "padded", who)).verify().require()
    for module in (overhang, index_maps, guards):
        monkeypatch.setattr(module, "end_of", past_the_end)
    monkeypatch.setattr(index_maps, "onward", folded)
    monkeypatch.setattr(guard_elimination, "told_apart", everything)
    found = refutation(tf.lower(of(n, transforms, f, g, "padded", who)))
    assert found.subject == "tv1[]"
    assert found.reason == f"element [] of tv1 lacks the term at [{said}"
