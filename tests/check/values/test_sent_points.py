"""The points that elements have been combined with: counted since the last store, each with the value that sends it there."""

import numpy as np
import pytest

from taskfuse.check.values.elements import Elements
from taskfuse.check.values.sent_points import NOWHERE, SentPoints, SentRound
from taskfuse.check.values.terms import Terms
from taskfuse.kir import parse_kernel
from taskfuse.kir.nodes import AtomicUpdate
from taskfuse.kir.walk import walk
from taskfuse.kir.witness import Whole
from tests.check.values.updated import KERNEL


def sent_points() -> tuple[SentPoints, AtomicUpdate]:
    kernel = parse_kernel(KERNEL)
    elements = Elements(kernel, {})
    tensor = elements.tensors["y"]
    assert tensor.definition is not None
    assert isinstance(tensor.definition.rule, Whole)
    stmt = next(s for s in walk(kernel) if isinstance(s, AtomicUpdate))
    return SentPoints(tensor, tensor.definition.rule, elements), stmt


def sent(stmt: AtomicUpdate, point: int, where: list[int], thread: int = 0) -> SentRound:
    return SentRound("u", np.asarray([point]), np.asarray([where]), np.asarray([thread]), stmt, "", {})


def said(found: SentPoints, place: int = 0) -> str:
    return found.difference(place)[0]


def test_each_point_goes_to_each_element_for_one_value() -> None:
    found, _ = sent_points()
    assert found.reach["u"].tolist() == [[0, 1, 2]] * 2
    assert said(found) == "is never combined with u[0] and 1 more"


def test_points_count_since_the_last_store() -> None:
    found, stmt = sent_points()
    for point in (0, 1):
        found.send(sent(stmt, point, [0, 1, 2]))
    assert said(found) == ""
    found.store(np.asarray([0]))
    assert [said(found, k) for k in range(3)] == ["is never combined with u[0] and 1 more", "", ""]
    found.send(sent(stmt, 1, [0, NOWHERE, NOWHERE]))
    assert said(found) == "is never combined with u[0]"
    found.send(sent(stmt, 1, [0, NOWHERE, NOWHERE], thread=7))
    assert found.difference(0) == ("is combined with u[1] twice", ((0, stmt, ""), (7, stmt, "")))


def test_the_value_counts() -> None:
    found, stmt = sent_points()
    found.send(sent(stmt, 0, [2, 1, 0]))
    assert said(found) == "is combined with u[0], which is sent elsewhere"
    assert said(found, 1) == "is never combined with u[1]"


@pytest.mark.parametrize(("points", "wanted"), [((), ["base"] * 3), ((0,), ["wrong"] * 3), ((0, 1), ["own"] * 3), ((1, 0, 1), ["wrong"] * 3)])
def test_what_a_read_finds(points: tuple[int, ...], wanted: list[str]) -> None:
    found, stmt = sent_points()
    for point in points:
        found.send(sent(stmt, point, [0, 1, 2]))
    everywhere = np.arange(3)
    terms, wrong = found.seen(found.base, everywhere, np.ones(3, np.bool_), "y")
    own = Terms(np.full(3, found.tensor.element), everywhere)
    kinds = ["wrong" if w else "own" if t == o else "base" for w, t, o in zip(wrong.tolist(), terms.tag.tolist(), own.tag.tolist(), strict=True)]
    assert kinds == wanted
    _, elsewhere = found.seen(found.base, everywhere, np.ones(3, np.bool_), "x")  # the input that it is written into
    assert elsewhere.tolist() == [bool(points)] * 3
