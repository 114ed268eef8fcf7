"""What accesses at one place have in common, asked once; and which threads may touch one element, by groups of instances instead of pairs of threads."""

from collections.abc import Callable
from itertools import product

import pytest

from taskfuse.check.accesses import Use, Uses
from taskfuse.check.enumeration import AccessTable, Pairs
from taskfuse.check.statement_tree import BLOCKS, StatementTree
from taskfuse.check.threads import Threads
from taskfuse.ir.scalar import evaluate, parse_expr
from taskfuse.kir import Kernel, parse_kernel


def kernel(body: str, block: str = "(8, 4, 1)", shape: str = "64") -> Kernel:
    head = f"KERNEL k(x: float32[64]) -> (y: float32[64])\n  GRID (1, 1, 1)  BLOCK {block}\n  SHARED s: float32[{shape}] align 16\n  LOCAL r: float32[32]\n\n"
    return parse_kernel(head + body + "\n")


def uses(body: str, block: str = "(8, 4, 1)", shape: str = "64") -> list[Use]:
    return Uses(StatementTree.of(kernel(body, block, shape))).by_buffer["s"]


@pytest.mark.parametrize(
    ("one", "two", "same"),
    [
        ("s[threadIdx.x] = copy(1.0)", "s[threadIdx.x] = copy(2.0)", True),
        ("s[threadIdx.x] = copy(1.0)", "s[threadIdx.y] = copy(1.0)", False),
        ("IF threadIdx.y == 0:\n  s[threadIdx.x] = copy(1.0)", "s[threadIdx.x] = copy(1.0)", False),
        ("IF threadIdx.y == 0:\n  s[threadIdx.x] = copy(1.0)", "IF threadIdx.y == 0:\n  s[threadIdx.x] = copy(1.0)", True),
        # loops that look alike are not one loop: between two iterations of one of them the other one does not run
        ("FOR i in 0..2:\n  s[i] = copy(1.0)", "FOR i in 0..2:\n  s[i] = copy(1.0)", False),
    ],
)
def test_places(one: str, two: str, same: bool) -> None:
    first, second = uses(f"{one}\nSYNC block\n{two}")
    assert (first.place == second.place) is same


def test_copies_of_an_unrolled_loop_are_at_one_place_where_their_indices_are_equal() -> None:
    rows = "2*(threadIdx.x//16) + threadIdx.x//8 % 2"
    text = (
        "KERNEL k(x: float32[64]) -> (y: float32[64])\n  GRID (1, 1, 1)  BLOCK (32, 1, 1)\n  SHARED s: bfloat16[4, 8] align 16\n  LOCAL r: bfloat16[32]\n\n"
        f"FOR i in 0..4 UNROLL:\n  STMATRIX s[{rows}, 0] <- r[8*i]\n"
    )
    found = Uses(StatementTree.of(parse_kernel(text)).copied_out()).by_buffer["s"]
    assert len(found) == 8
    assert len({u.place for u in found}) == 2  # the rows as lanes address them, and as lanes write them


BODIES = (
    "s[threadIdx.x + 8*threadIdx.y] = copy(1.0)\nr[0] = add(s[threadIdx.x + 8*threadIdx.y], 1.0)",
    "s[xor(threadIdx.x, threadIdx.y) + 8*threadIdx.y] = copy(1.0)\nr[0] = add(s[xor(threadIdx.x, threadIdx.y) + 8*threadIdx.y], 1.0)",
    "s[xor(threadIdx.x, threadIdx.y)] = copy(1.0)\nr[0] = add(s[threadIdx.x], 1.0)",
    "s[threadIdx.x//2] = copy(1.0)\nr[0] = add(s[threadIdx.x], 1.0)",
    "s[threadIdx.x//2] = copy(1.0)\nr[0] = add(s[threadIdx.x//2 + 32], 1.0)",
    "IF threadIdx.y == 1:\n  s[threadIdx.x//4] = copy(1.0)\nELSE:\n  r[0] = add(s[threadIdx.x//2 + threadIdx.y], 1.0)",
)


@pytest.mark.parametrize("body", BODIES)
def test_groups_say_what_pairs_say(body: str) -> None:
    tree = StatementTree.of(kernel(body))
    threads = Threads(tree)
    a, b = Uses(tree).by_buffer["s"]
    found = Pairs.of(a, b, BLOCKS, {})
    assert found is not None

    def instances(u: Use) -> list[tuple[int, dict[str, int]]]:
        envs = [{"threadIdx.x": x, "threadIdx.y": y, "threadIdx.z": 0} for x, y in product(range(8), range(4))]
        (e,) = u.index
        assert e is not None
        return [(int(evaluate(e, env)), env) for env in envs if all(evaluate(c, env) for c in u.context.conditions)]

    pairs = [(p, q) for (i, p), (j, q) in product(instances(a), instances(b)) if i == j]

    def agreed(of: Callable[[dict[str, int]], int]) -> bool:
        return all(of(p) == of(q) for p, q in pairs)

    assert found.empty is (not pairs)
    assert found.one_thread(BLOCKS) is agreed(lambda env: env["threadIdx.x"] + 8 * env["threadIdx.y"])
    assert found.one_warp(threads, BLOCKS)  # all 32 are one
    for text in ("threadIdx.x", "threadIdx.y", "threadIdx.x//4", "threadIdx.y//2 + 1", "3"):
        e = parse_expr(text)
        assert found.agree(e) is agreed(lambda env, e=e: int(evaluate(e, env)))
    assert not found.agree(parse_expr("blockIdx.x"))


def test_warps_of_groups() -> None:
    def one_warp(index: str) -> bool:
        tree = StatementTree.of(kernel(f"s[{index}] = copy(1.0)", block="(64, 1, 1)"))
        (a,) = Uses(tree).by_buffer["s"]
        found = Pairs.of(a, a, BLOCKS, {})
        assert found is not None
        return found.one_warp(Threads(tree), BLOCKS)

    assert one_warp("threadIdx.x//2")
    assert one_warp("xor(threadIdx.x//32, 1)")
    assert not one_warp("threadIdx.x % 32")


def test_groups_take_as_many_pairs_as_there_are() -> None:
    tree = StatementTree.of(kernel("s[threadIdx.x % 2] = copy(1.0)", block="(1024, 1, 1)"))  # 2 * 512 * 512 pairs
    (a,) = Uses(tree).by_buffer["s"]
    found = Pairs.of(a, a, BLOCKS, {})
    assert found is not None
    assert found.agree(parse_expr("threadIdx.x % 2"))
    assert not found.agree(parse_expr("threadIdx.x % 4"))


@pytest.mark.parametrize(("shift", "empty"), [("", False), (" + 4", True)])
def test_axes_on_which_both_agree_are_not_enumerated(shift: str, empty: bool) -> None:
    index = "xor(threadIdx.x % 4, threadIdx.y)"
    a, b = uses(f"FOR i in 0..4:\n  s[i, {index}] = copy(1.0)\n  s[i, {index}{shift}] = copy(1.0)", shape="4, 8")
    for equal, enumerated in ((BLOCKS | {"i"}, (1,)), (BLOCKS, (0, 1))):
        tables: dict[tuple[int, tuple[int, ...]], AccessTable | None] = {}
        found = Pairs.of(a, b, equal, tables)
        assert found is not None
        assert found.empty is empty
        assert {axes for _, axes in tables} == {enumerated}
