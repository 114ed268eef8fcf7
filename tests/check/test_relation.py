"""What two accesses of one element have in common, against all pairs of instances."""

from __future__ import annotations

import pytest

from taskfuse.check.relation import Relation, pinned
from taskfuse.check.statement_tree import THREADS
from taskfuse.check.structure import Structure
from taskfuse.ir.scalar import parse_expr
from tests.check.structured import structure, uses

HEAD = """\
KERNEL k(x: float32[N]) -> (y: float32[N])
  DIM N min 1
  GRID (4, 1, 1)  BLOCK (32, 4, 1)
  SHARED s: float32[{size}] align 16

"""
T, L = "threadIdx.x", "threadIdx.x + 32*threadIdx.y"


def relation(first: str, second: str, size: str = "256", *, around: str = "", condition: str = "") -> Relation:
    margin = "  " * bool(around)
    guard = f"{margin}IF {condition}:\n  " if condition else ""
    body = f"{around}\n{guard}{margin}s[{first}] = copy(1.0)\n{margin}SYNC block\n{margin}y[0] = copy(s[{second}])"
    found: Structure = structure(body.strip("\n"), head=HEAD.format(size=size).replace("{", "{{").replace("}", "}}"))
    a, b = uses(found)
    return Relation(a, b, found.threads)


@pytest.mark.parametrize(
    ("first", "second", "known", "unknown"),
    [
        (T, T, [T], ["threadIdx.y"]),
        (L, L, [T, "threadIdx.y"], []),
        (L, f"{L} + 1 - 1", [T, "threadIdx.y"], []),
        ("threadIdx.x//4", "threadIdx.x//4", ["threadIdx.x//4"], [T]),
        ("threadIdx.x % 8", "threadIdx.x % 8", ["threadIdx.x % 8", "threadIdx.x % 4"], [T]),
        ("xor(threadIdx.x, threadIdx.y) + 32*threadIdx.y", "xor(threadIdx.x, threadIdx.y) + 32*threadIdx.y", [T, "threadIdx.y"], []),
        ("threadIdx.x + 2*threadIdx.y", "threadIdx.x + 2*threadIdx.y", [], [T, "threadIdx.y"]),
        (T, f"31 - {T}", [], [T]),
        (f"({T} + 1) % 2 + 2*((({T} + 1)//2 + 1) % 4)", f"({T} + 1) % 2 + 2*((({T} + 1)//2 + 1) % 4)", [f"({T} + 3) % 8"], [T]),
    ],
)
def test_what_follows_from_equal_indices(first: str, second: str, known: list[str], unknown: list[str]) -> None:
    found = relation(first, second)
    assert not found.never
    for e in known:
        assert found.known(parse_expr(e)), e
    for e in unknown:
        assert not found.known(parse_expr(e)), e


def test_threads_of_one_block_have_its_index() -> None:
    found = relation(T, T)
    assert {"blockIdx.x", "blockIdx.y", "threadIdx.z"} <= found.equal
    assert found.known(parse_expr("blockIdx.x + N"))


@pytest.mark.parametrize(("first", "second"), [("2*threadIdx.x", "2*threadIdx.x + 1"), (T, f"{T} + 32"), ("threadIdx.x % 8", "threadIdx.x % 8 + 8")])
def test_indices_that_never_meet(first: str, second: str) -> None:
    assert relation(first, second).never


def test_conditions_may_keep_them_apart() -> None:
    assert relation(T, "threadIdx.x % 8", condition="threadIdx.x >= 8").never
    assert not relation(T, "threadIdx.x % 8", condition="threadIdx.x >= 7").never


def test_iterations_are_equal_where_the_element_tells_them() -> None:
    found = relation(f"32*k + {T}", f"32*k + {T}", around="FOR k in 0..8:")
    assert found.known(parse_expr("k"))
    assert not relation(T, T, around="FOR k in 0..8:").known(parse_expr("k"))


def test_indices_are_what_loops_make_of_them() -> None:
    """Items in groups of so many rows as there are, of at most one, or of two: those of groups of one row are told apart."""

    def of_groups(most: int, around: str) -> Relation:
        rows = f"min(63 - {T}//4 - 8*k, {most})"
        index = f"4*({T}//4 + 8*k + {T} % 4 % {rows}) + ({T} % 4)//{rows}"
        return relation(index, index, "512", around=around)

    found = of_groups(1, f"FOR k in 0..ceildiv(252 - {T}, 32):")
    assert found.known(parse_expr(T))
    assert found.known(parse_expr("k"))
    assert not of_groups(2, f"FOR k in 0..ceildiv(252 - {T}, 32):").known(parse_expr(T))
    assert not of_groups(1, "FOR k in 0..9:").known(parse_expr(T))


def test_what_is_asked_of_one_iteration_is_known() -> None:
    found = structure(f"FOR k in 0..8:\n  s[{T}] = copy(1.0)\n  SYNC block\n  y[0] = copy(s[{T}])", head=HEAD.format(size="256"))
    a, b = uses(found)
    assert Relation(a, b, found.threads, frozenset({"k"})).known(parse_expr("k"))


@pytest.mark.parametrize(
    ("index", "one_thread"),
    [
        (L, True),
        (f"128*k + {L}", True),
        ("xor(threadIdx.x, threadIdx.y) + 32*threadIdx.y + 128*k", True),
        (T, False),
        ("threadIdx.x + 2*threadIdx.y", False),
        ("k", False),
    ],
)
def test_what_is_enough_is_found_where_everything_would_be(index: str, one_thread: bool) -> None:
    found = structure(f"FOR k in 0..2:\n  s[{index}] = copy(1.0)\n  SYNC block\n  y[0] = copy(s[{index}])", head=HEAD.format(size="256"))
    a, b = uses(found)
    everything, enough = Relation(a, b, found.threads), Relation(a, b, found.threads, enough=THREADS)
    assert (enough.equal >= THREADS) is (everything.equal >= THREADS) is one_thread
    assert one_thread or enough.equal == everything.equal


def test_thread_indices_that_stand_alone_are_equal() -> None:
    found = structure(f"s[{T}] = copy(1.0)\nSYNC block\ny[0] = copy(s[{T}])", head=HEAD.format(size="256"))
    a, b = uses(found)
    assert pinned(a, b) == {T}
    other = structure(f"s[{L}] = copy(1.0)\nSYNC block\ny[0] = copy(s[{L}])", head=HEAD.format(size="256"))
    assert pinned(*uses(other)) == frozenset()
