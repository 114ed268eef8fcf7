"""Traversals of rings: the positions that an end visits, parsed from its statements; what is not a position."""

import pytest

from taskfuse.check.statement_tree import Node
from taskfuse.check.structure import Structure
from taskfuse.check.traversals import Choice, Either, NotRing, Part, Repeat, Visit, at_instance, clipped, parse, skeleton, visits
from taskfuse.ir.scalar import const, sym
from taskfuse.kir.synchronization import Advance, Arrive, Wait
from tests.check.structured import nodes, structure

POSITION = "WAIT full[c.slot] parity c.parity\n{0}ARRIVE empty[c.slot]\n{0}c.advance(1)\n"


def body(text: str) -> str:
    return "c = CURSOR(slots 2, slot 0, parity 0)\n" + text


def parsed(found: Structure, *, trailing: bool = False) -> tuple[Part, ...]:
    ops: set[Node] = set(nodes(found, Wait, Arrive, Advance))
    return parse(skeleton(found.tree.root, ops, found.paths), trailing=trailing, waits=True, arrives=True)


def test_loops_and_uniform_conditions_around_positions() -> None:
    inner = POSITION.format("    ")
    (part,) = parsed(structure(body(f"FOR i in 0..N:\n  IF i > 2:\n    {inner}")))
    assert isinstance(part, Repeat)
    (choice,) = part.inner
    assert isinstance(choice, Choice)
    assert [str(c) for c in choice.conditions] == ["i > 2"] or len(choice.conditions) == 1
    (visit,) = visits((part,))
    assert isinstance(visit, Visit)
    assert visit.wait is not None
    assert len(visit.arrivals) == 1


def test_a_position_under_a_condition_and_one_under_its_negation_are_one_choice() -> None:
    inner = POSITION.format("    ")
    (part,) = parsed(structure(body(f"FOR i in 0..N:\n  IF i > 2:\n    {inner}  ELSE:\n    {inner}")))
    assert isinstance(part, Repeat)
    assert isinstance(part.inner[0], Either)
    assert len(list(visits((part,)))) == 2
    (other,) = parsed(structure(body(f"FOR i in 0..N:\n  IF i > 2:\n    {inner}  IF i > 3:\n    {inner}")))
    assert isinstance(other, Repeat)
    assert [type(p) for p in other.inner] == [Choice, Choice]


def test_a_release_that_trails_is_a_loop_of_all_positions() -> None:
    release = "ARRIVE empty[c.slot]\n{0}c.advance(1)\n"
    found = structure(body(f"FOR i in 0..N:\n  IF i >= 1:\n    {release.format('    ')}IF N > 0:\n  {release.format('  ')}"))
    ops: set[Node] = set(nodes(found, Arrive, Advance))
    trees = skeleton(found.tree.root, ops, found.paths)
    (part,) = parse(trees, trailing=True, waits=False, arrives=True)
    assert isinstance(part, Repeat)
    (visit,) = part.inner
    assert isinstance(visit, Visit)
    assert (visit.lag, len(visit.drain)) == (1, 1)
    assert len(parse(trees, trailing=False, waits=False, arrives=True)) == 2


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("WAIT full[c.slot] parity c.parity\nWAIT full[c.slot] parity c.parity\nARRIVE empty[c.slot]\nc.advance(1)", "it waits twice for one position"),
        ("WAIT full[c.slot] parity c.parity\nc.advance(1)", "it advances past a position without arriving"),
        ("ARRIVE empty[c.slot]\nc.advance(1)", "it arrives at a position without waiting for it"),
        ("WAIT full[c.slot] parity c.parity\nARRIVE empty[c.slot]\nc.advance(2)", "it advances by more than one position without taking a turn"),
        ("WAIT full[c.slot] parity c.parity\nARRIVE empty[c.slot]", "it does not advance after a position"),
        (
            "WAIT full[c.slot] parity c.parity\nFOR i in 0..N:\n  ARRIVE empty[c.slot]\n  c.advance(1)",
            "a position begins outside a loop or condition and ends inside",
        ),
    ],
)
def test_what_is_no_position(text: str, reason: str) -> None:
    with pytest.raises(NotRing) as caught:
        parsed(structure(body(text)))
    assert caught.value.reason == reason
    assert caught.value.nodes


def test_the_thread_of_an_instance() -> None:
    y = sym("threadIdx.y")
    assert at_instance(y - 1, const(2)) == {"threadIdx.y": const(3)}
    assert at_instance(const(3) - y, const(1)) == {"threadIdx.y": const(2)}
    assert at_instance(y * 2, const(2)) == {}
    assert at_instance(sym("i"), const(2)) == {}


def test_a_choice_in_two_places_of_an_iteration_is_one() -> None:
    """A position may begin under a condition and end under it further down; not if a cursor decides, which may have moved."""
    wait, rest = "WAIT full[c.slot] parity c.parity", "ARRIVE empty[c.slot]\n    c.advance(1)"
    text = "FOR i in 0..N:\n  IF {0}:\n    {1}\n  IF {0}:\n    {2}"
    (part,) = parsed(structure(body(text.format("i < M", wait, rest))))
    assert isinstance(part, Repeat)
    (choice,) = part.inner
    assert isinstance(choice, Choice)
    assert len(choice.inner) == 1
    with pytest.raises(NotRing, match="does not advance after a position"):
        parsed(structure(body(text.format("c.slot == 0", wait, rest))))


@pytest.mark.parametrize(
    ("head", "start", "stop"),
    [
        ("FOR i in 0..N + 1 / IF i < N", "0", "N"),
        ("FOR i in 0..N + 1 / IF i >= 1", "1", "N + 1"),
        ("FOR i in 0..N + 2 / IF i >= 1 && i < N + 1", "1", "N + 1"),
        ("FOR i in 0..N", "0", "N"),
        ("FOR i in 0..N + 1 / IF 2*i < N", None, None),
        ("FOR i in 0..N step 2", None, None),
    ],
)
def test_iterations_that_conditions_leave(head: str, start: str | None, stop: str | None) -> None:
    heads = head.split(" / ")
    lines = "".join(f"{'  ' * k}{h}:\n" for k, h in enumerate(heads))
    (part,) = parsed(structure(body(f"{lines}{'  ' * len(heads)}{POSITION.format('  ' * len(heads))}")))
    assert isinstance(part, Repeat)
    found = clipped(part)
    assert ((None, None) if found is None else (str(found[0]), str(found[1]))) == (start, stop)
