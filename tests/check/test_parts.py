"""The parts of the argument by themselves: ranges, sets of threads, digits, paths."""

import pytest

from taskfuse.check.accesses import Uses
from taskfuse.check.index_bounds import box_count
from taskfuse.check.ranges import Ranges
from taskfuse.check.relation import Relation
from taskfuse.check.statement_tree import StatementTree
from taskfuse.check.threads import Threads
from taskfuse.ir.scalar import Expr, conjuncts, const, parse_expr, to_text
from taskfuse.kir import Kernel, parse_kernel


def e(text: str) -> Expr:
    return parse_expr(text)


def kernel(body: str, block: str = "(32, 4, 1)", declarations: str = "", shape: str = "64") -> Kernel:
    lines = [line for line in body.strip("\n").split("\n") if line]
    return parse_kernel(
        f"KERNEL k(x: float32[M]) -> (y: float32[M])\n  DIM M min 1\n  GRID (1, 1, 1)  BLOCK {block}\n  SHARED s: float32[{shape}] align 16\n{declarations}\n"
        + "\n".join(lines)
        + "\n"
    )


@pytest.mark.parametrize(
    ("condition", "expression", "span"),
    [
        ("a >= 0 && a < 8", "4*a + 3", (3, 31)),
        ("a - S >= 0 && a - S < 4", "a - S + 1", (1, 4)),
        ("a - S >= 0 && a - S < 4", "2*(a - S)", (None, None)),
        ("a >= 0 && a < 8", "a//4", (0, 1)),
        ("a >= 0 && a < 8", "xor(a, 1)", (0, 7)),
        ("a == 3", "a % 2", (0, 1)),
        ("a >= 0 && a < 8 && a != 0", "a", (1, 7)),
        ("a >= 0 && a < 8 && a != 7", "a", (0, 6)),
        ("a >= 0 && a < 8 && a != 4", "a", (0, 7)),
    ],
)
def test_ranges(condition: str, expression: str, span: tuple[int | None, int | None]) -> None:
    assert Ranges({}).under_all(conjuncts(e(condition))).of(e(expression)) == span


def threads(block: str) -> Threads:
    return Threads(StatementTree.of(kernel("SYNC block", block)))


@pytest.mark.parametrize(
    ("block", "conditions", "count"),
    [
        ("(32, 4, 1)", "threadIdx.y == 1 && threadIdx.x % 8 == 0", "4"),
        ("(M, 4*M, 2)", "threadIdx.z == 0", "4*M*M"),
        ("(M, 4*M, 2)", "threadIdx.y - M >= 0 && threadIdx.y - M < M", "2*M*M"),
        ("(64, 1, M)", "threadIdx.x < 32 && threadIdx.x % 32 == 0", "M"),
        ("(1, 1, max(2*M, 48))", "threadIdx.z < 16", "16"),
        ("(32*M, 1, 1)", "threadIdx.x % 32 == 0", "M"),
        ("(12*M, 1, 1)", "threadIdx.x % 2 == 0 && threadIdx.x % 3 == 0", "2*M"),
        ("(12*M, 1, 1)", "threadIdx.x % 4 == 0 && threadIdx.x % 2 == 0", "3*M"),
        ("(12*M, 1, 1)", "threadIdx.x % 4 == 1 && threadIdx.x % 2 == 0", "0"),
        ("(12*M, 1, 1)", "threadIdx.x % 4 < 3 && threadIdx.x % 3 != 1", "6*M"),
        ("(M, 1, 1)", "threadIdx.x != 0", "M - 1"),
        ("(M, 1, 1)", "threadIdx.x != M - 1", "M - 1"),
    ],
)
def test_counts(block: str, conditions: str, count: str) -> None:
    t = threads(block)
    condition = e(conditions)
    found = t.count(tuple(getattr(condition, "args", (condition,))))
    assert found is not None
    assert to_text(found) == count


@pytest.mark.parametrize("condition", ["threadIdx.x % 2 == 0", "threadIdx.x//2 % 2 == 0", "threadIdx.x != 5", "i == 0", "threadIdx.x*threadIdx.x < 9"])
def test_counts_that_are_open(condition: str) -> None:
    assert threads("(M, 1, 1)").count((e(condition),)) is None


def test_more_points_than_can_be_enumerated() -> None:
    names = ("blockIdx.x", "blockIdx.y")
    extents: dict[str, Expr] = {"blockIdx.x": const(10**12), "blockIdx.y": const(3)}
    context = threads("(32, 1, 1)").context
    found = box_count((e("blockIdx.x < 7000000"), e("blockIdx.y >= 1")), extents, names, context)
    assert found is const(14_000_000)
    assert box_count((e("blockIdx.x < blockIdx.y"),), extents, names, context) is None


def test_warps() -> None:
    t = threads("(32, 4, 1)")
    role = (e("threadIdx.y == 1"),)
    assert t.whole_warps(role)
    assert t.covers_warps(role, (*role, e("threadIdx.x == 0")))
    assert not t.covers_warps((), (*role, e("threadIdx.x == 0")))
    assert t.one_warp((), t.context, frozenset({"threadIdx.y", "threadIdx.z"}))
    assert not t.one_warp((), t.context, frozenset({"threadIdx.x", "threadIdx.z"}))
    assert not threads("(24, 4, 1)").whole_warps(role)


def relation(body: str, block: str = "(32, 4, 1)", shape: str = "64") -> Relation:
    """Of the first write with the last access."""
    tree = StatementTree.of(kernel(body, block, shape=shape))
    uses = Uses(tree).by_buffer["s"]
    return Relation(next(u for u in uses if u.is_write), uses[-1], Threads(tree))


@pytest.mark.parametrize(
    ("body", "equal"),
    [
        ("s[threadIdx.x + 32*(threadIdx.y % 2)] = copy(1.0)", {"threadIdx.x"}),
        ("s[threadIdx.y] = copy(1.0)", {"threadIdx.y"}),
        ("FOR i in 0..2:\n  s[32*i + threadIdx.x] = copy(1.0)", {"i", "threadIdx.x"}),
        ("FOR i in 0..2:\n  s[i + threadIdx.x] = copy(1.0)", set[str]()),
        ("s[16*(threadIdx.x//16) + xor(threadIdx.x % 16, threadIdx.y)] = copy(1.0)", set[str]()),
        (
            "IF threadIdx.y >= 1:\n  s[8*(threadIdx.x % 8) + xor(threadIdx.x % 8, threadIdx.y - 1)] = copy(1.0)",
            {"threadIdx.y"},
        ),  # a swizzle of what stands behind others
        ("s[8*(threadIdx.x % 8) + xor(threadIdx.x % 7, threadIdx.y)] = copy(1.0)", set[str]()),
        # an inner index of 2*i + t < 23: more than 23 by its parts, but not together
        ("FOR i in 0..12:\n  IF 2*i + threadIdx.y % 2 < 23:\n    s[23*threadIdx.x + 2*i + threadIdx.y % 2] = copy(1.0)", {"i", "threadIdx.x"}),
        ("FOR i in 0..12:\n  IF 2*i + threadIdx.y % 2 < 24:\n    s[23*threadIdx.x + 2*i + threadIdx.y % 2] = copy(1.0)", set[str]()),
        ("FOR i in 0..12:\n  IF 2*i < 23:\n    s[23*threadIdx.x + 2*i + threadIdx.y % 2] = copy(1.0)", set[str]()),
    ],
)
def test_digits(body: str, equal: set[str]) -> None:
    found = relation(body)
    assert not found.never
    assert found.equal & {"threadIdx.x", "threadIdx.y", "i"} == equal


def test_digits_of_a_place_in_three_axes() -> None:
    place = "32*i + threadIdx.x"
    found = relation(f"FOR i in 0..2:\n  s[({place})//(M*M), ({place})//M % M, ({place}) % M] = copy(1.0)", shape="64, M, M")
    assert found.equal >= {"i", "threadIdx.x"}


@pytest.mark.parametrize(
    "body",
    [
        "s[threadIdx.x] = copy(1.0)\ns[threadIdx.x + 32] = copy(1.0)",
        "s[2*threadIdx.x] = copy(1.0)\ns[2*threadIdx.x + 1] = copy(1.0)",
        "IF threadIdx.x < 8:\n  s[threadIdx.x] = copy(1.0)\nIF threadIdx.x >= 8:\n  s[threadIdx.x] = copy(1.0)",
    ],
)
def test_accesses_that_never_meet(body: str) -> None:
    assert relation(body).never


@pytest.mark.parametrize(
    ("first", "second", "never"),
    [
        ("{p}//8, {p} % 8", "({t} + 4)//8 + 4, ({t} + 4) % 8", True),
        ("{p}//8, {p} % 8", "({t} + 3)//8 + 4, ({t} + 3) % 8", False),
        ("{p}//8, {p} % 8", "({t} + 4)//8 + 4, {t} % 8", False),
        ("{p}//8, {p}//4 % 2, {p} % 4", "({t} + 4)//8 + 4, ({t} + 4)//4 % 2, ({t} + 4) % 4", True),
        ("{p}//9, {p}//3 % 3, {p} % 3", "({t} + 4)//9 + 3, ({t} + 4)//3 % 3, ({t} + 4) % 3", True),  # up to 29, from 31 on
        ("{p}//9, {p}//3 % 3, {p} % 3", "({t} + 4)//9 + 3, {t}//3 % 3, ({t} + 4) % 3", False),
        ("{p}//9, {p}//2 % 3, {p} % 3", "({t} + 4)//9 + 3, ({t} + 4)//2 % 3, ({t} + 4) % 3", False),
    ],
)
def test_what_lies_behind_the_rounds_of_a_loop(first: str, second: str, never: bool) -> None:
    """Places of a tensor in a loop, and behind it, as indices of two or three axes."""
    size, shape = (10, "8, 3, 3") if "//9" in first else (12, "8, 8" if first.count(",") == 1 else "8, 2, 4")
    one, two = first.format(p=f"({size}*i + threadIdx.x)"), second.format(t="threadIdx.x")
    body = f"IF threadIdx.x < {size}:\n  FOR i in 0..3:\n    s[{one}] = copy(1.0)\n  s[{two}] = copy(1.0)"
    assert relation(body, shape=shape).never is never
