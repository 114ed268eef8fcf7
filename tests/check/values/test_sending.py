"""Updates in a run: each mistake is found, with the point and the thread; right kernels hold, also those that store and send again."""

from collections.abc import Mapping

import pytest

from taskfuse.check.values.execution import Finding, execute
from taskfuse.kir import parse_kernel

BODY = """\
FOR i in 0..3:
  y[i] = copy(x[i])  ~ value b[i]
FOR k in 0..4:
  UPDATE y[v] by add of s[k] at v = t[k] of 3  ~ value u[k]
FOR i in 0..3:
  z[i] = neg(y[i])  ~ value z[i]
"""
HEAD = """\
KERNEL k(x: float32[3], t: int32[4], s: float32[4]) -> (y: float32[3], z: float32[3])
  GRID (1, 1, 1)  BLOCK (1, 1, 1)
  DEFINE b: float32[3] = copy(x[i0])
  DEFINE u: float32[4] = send add of s[i0] at t[i0] of 3
  DEFINE y: float32[3] = whole b at (i0), u at (v0)
  DEFINE z: float32[3] = neg(y[i0])

"""
NOTHING: Mapping[str, int] = {}


def ran(body: str) -> Finding | None:
    found = execute(parse_kernel(HEAD + body), NOTHING)
    assert found is None or isinstance(found, Finding)
    return found


def test_a_right_one_holds() -> None:
    assert ran(BODY) is None


def test_what_is_stored_again_begins_anew() -> None:
    rounds, rest = BODY[: BODY.index("FOR i in 0..3:\n  z")], BODY[BODY.index("FOR i in 0..3:\n  z") :]
    assert ran(rounds * 2 + rest) is None
    assert ran("FOR r in 0..3:\n" + "".join(f"  {line}\n" for line in rounds.splitlines()) + rest) is None
    again = ran(BODY.replace("UPDATE", "y[1] = copy(x[1])  ~ value b[1]\n  UPDATE"))
    assert again is not None
    assert (again.subject, again.reason) == ("y[1]", "is never combined with u[0] and 2 more")


def test_what_is_read_before_all_updates_is_the_stored_part() -> None:
    """And no element of the whole: there the tensor's own points are missing."""
    before = BODY.replace("FOR k in", "FOR i in 0..3:\n  z[i] = neg(y[i])  ~ value z[i]\nFOR k in", 1)
    early = before[: before.rindex("FOR i in 0..3")]
    found = ran(early)
    assert found is not None
    assert found.subject == "z[0]"
    of_part = HEAD.replace("neg(y[i0])", "neg(b[i0])") + early
    assert execute(parse_kernel(of_part), NOTHING) is None
    between = ran(BODY.replace("FOR k in 0..4", "FOR k in 0..3"))
    assert between is not None
    assert "never combined with u[3]" in between.reason


WRONG = {
    "twice": ("FOR k in 0..4:\n", "FOR k in 0..4:\n  UPDATE y[v] by add of s[k] at v = t[k] of 3  ~ value u[k]\n", "is combined with u[0] twice"),
    "never": ("FOR k in 0..4", "FOR k in 1..4", "is never combined with u[0]"),
    "another value": ("of s[k]", "of s[3 - k]", "reads element [3] of s where element [0] of s is defined"),
    "another integer": ("v = t[k]", "v = t[0]", "is combined with an element of u at other integers than those of its definition"),
    "another place": ("UPDATE y[v]", "UPDATE y[2 - v]", "is combined with u[0], which is sent elsewhere"),
    "another extent": ("of 3  ~ value u", "of 2  ~ value u", "is combined with an element of u at other integers than those of its definition"),
    "another function": ("UPDATE y[v] by add", "UPDATE y[v] by maximum", "is combined by maximum where u is sent by add"),
    "past the end": (
        "FOR k in 0..4:\n  UPDATE y[v] by add of s[k] at v = t[k]",
        "FOR k in 0..5:\n  UPDATE y[v] by add of s[min(k, 3)] at v = t[min(k, 3)]",
        "is combined with a point past the end of u",
    ),
    "another tensor": ("~ value u[k]", "", "is updated as no definition says"),
}


@pytest.mark.parametrize("name", WRONG)
def test_mistakes(name: str) -> None:
    old, new, reason = WRONG[name]
    assert old in BODY
    found = ran(BODY.replace(old, new))
    assert found is not None
    assert found.subject.startswith("y[")
    assert reason in found.reason
    if name != "never":
        assert "UPDATE" in found.notes[0]


def test_an_update_of_several_axes_or_of_none() -> None:
    two = """\
KERNEL k(x: int32[2, 3], a: int32[4], c: int32[4], s: int32[4]) -> (y: int32[2, 3])
  GRID (1, 1, 1)  BLOCK (1, 1, 1)
  DEFINE b: int32[2, 3] = copy(x[i0, i1])
  DEFINE u: int32[4] = send add of s[i0] at a[i0] of 2, c[i0] of 3
  DEFINE y: int32[2, 3] = whole b at (i0, i1), u at (v0, v1)

FOR i in 0..6:
  y[i//3, i % 3] = copy(x[i//3, i % 3])  ~ value b[i//3, i % 3]
FOR k in 0..4:
  UPDATE y[v, w] by add of s[k] at v = a[k] of 2, w = c[k] of 3  ~ value u[k]
"""
    assert execute(parse_kernel(two), NOTHING) is None
    swapped = execute(parse_kernel(two.replace("v = a[k] of 2, w = c[k]", "v = c[k] of 2, w = a[k]")), NOTHING)
    assert isinstance(swapped, Finding)
    assert "other integers" in swapped.reason
