"""Divisions that a body begins with: those that repeat, and that have a value there."""

import math

import pytest

import taskfuse as tf
from taskfuse.cuda.hoisting import Divisions, guard_around
from taskfuse.cuda.source import emit
from taskfuse.ir.scalar import parse_expr
from taskfuse.kir import Kernel, parse_kernel
from taskfuse.kir.nodes import Compute, For, If

HEAD = """\
KERNEL k(x: float32[64]) -> (y: float32[64])
  DIM N, M
  GRID (1, 1, 1)  BLOCK (32, 1, 1)

"""


def kernel(body: str) -> Kernel:
    return parse_kernel(HEAD + body.strip("\n") + "\n")


def named(body: str, uniform: str = "", known: str = "") -> list[str]:
    found = kernel(body)
    divisions = Divisions(found, frozenset(uniform.split()))
    return [str(e) for e in divisions.of(found.body, {parse_expr(e): None for e in known.split(",") if e})]


def test_what_a_body_uses_once_stays_where_it_is() -> None:
    assert named("y[threadIdx.x // N] = copy(1.0)") == []


def test_what_it_uses_twice_has_a_name() -> None:
    assert named("y[threadIdx.x // N] = copy(x[threadIdx.x // N])") == ["threadIdx.x//N"]
    assert named("y[threadIdx.x % N] = copy(1.0)\ny[threadIdx.x % N + 1] = copy(1.0)") == ["threadIdx.x % N"]


def test_what_iterations_repeat_has_a_name_where_the_loop_begins() -> None:
    loop = "FOR i in 0..4:\n  y[threadIdx.x // N + i] = copy(1.0)"
    assert named(loop) == ["threadIdx.x//N"]
    outer = kernel(loop)
    (inner,) = outer.body
    assert isinstance(inner, For)
    assert Divisions(outer, frozenset()).of(inner.body, {parse_expr("threadIdx.x // N"): None}) == []


def test_what_differs_between_iterations_waits_for_them() -> None:
    text = "FOR i in 0..4:\n  y[i // N] = copy(x[i // N])"
    assert named(text) == []
    found = kernel(text)
    (loop,) = found.body
    assert isinstance(loop, For)
    assert [str(e) for e in Divisions(found, frozenset()).of(loop.body, {})] == ["i//N"]


def test_dividing_by_what_the_launch_fixes_is_cheap() -> None:
    twice = "y[threadIdx.x // N] = copy(x[threadIdx.x // N])"
    assert named(twice, uniform="N") == []
    assert named(twice.replace("// N", "// 3")) == []
    assert named(twice.replace("// N", "// (N + threadIdx.x)"), uniform="N") == ["threadIdx.x//(threadIdx.x + N)"]


def test_the_largest_part_has_the_name_and_what_it_shares_with_others_comes_first() -> None:
    one = "y[threadIdx.x // N // M] = copy(x[threadIdx.x // N // M])\n"
    found = named(one)
    assert len(found) == 1
    both = one + "y[threadIdx.x // N] = copy(x[threadIdx.x // N])"
    names = named(both)
    assert names[0] == "threadIdx.x//N" or len(names) == 1
    assert len(names) == len(set(names))


def test_what_has_a_name_already_gets_no_second() -> None:
    assert named("y[threadIdx.x // N] = copy(x[threadIdx.x // N])", known="threadIdx.x // N") == []


def test_branches_count_like_their_body() -> None:
    text = "IF threadIdx.x < N:\n  y[threadIdx.x // N] = copy(x[threadIdx.x // N])"
    assert named(text) == ["threadIdx.x//N"]
    (branch,) = kernel(text).body
    assert isinstance(branch, If)


@pytest.mark.parametrize("part", ["slot", "parity"])
def test_a_cursor_moves(part: str) -> None:
    text = f"c = CURSOR(slots 2, slot 0, parity 0)\ny[c.{part} // N] = copy(x[c.{part} // N])\nc.advance(1)"
    assert named(text) == []


def test_searches_are_named_and_what_is_there_for_certain() -> None:
    head = HEAD.replace("(x:", "(t: int32[5], x:")
    place = "upper_bound(t[k of 5], threadIdx.x, 0, 64)"
    found = parse_kernel(head + f"y[{place}] = copy(x[clamp(t[{place} + 1 of 5], 0, 63)])\ny[{place}] = copy(x[clamp(t[{place} + 1 of 5], 0, 63)])\n")
    names = [str(e) for e in Divisions(found, frozenset()).of(found.body, {})]
    assert names == [place, f"clamp(t[{place} + 1 of 5], 0, 63)"]
    other = parse_kernel(head.replace("(t:", "(u: int32[5], t:") + f"FOR i in 0..4:\n  y[i] = copy(x[clamp(u[{place} + 1 of 5], 0, 63)])\n")
    assert [str(e) for e in Divisions(other, frozenset()).of(other.body, {})] == [f"clamp(u[{place} + 1 of 5], 0, 63)"]
    there = parse_kernel(head + "FOR i in 0..4:\n  y[i] = copy(x[clamp(t[threadIdx.x//8 of 5], 0, 63)])\n")
    assert [str(e) for e in Divisions(there, frozenset()).of(there.body, {})] == ["clamp(t[threadIdx.x//8 of 5], 0, 63)"]
    bare = parse_kernel(head + "y[0] = copy(x[clamp(t[threadIdx.x of 5], 0, 63)])\ny[1] = copy(x[clamp(t[threadIdx.x of 5], 0, 63)])\n")
    assert Divisions(bare, frozenset()).of(bare.body, {}) == []  # a thread may have no such element


PLACE = """
KERNEL k(x: float32[64], t: int32[G + 1]) -> (y: float32[64])
  DIM G min 0
  GRID (1, 1, 1)  BLOCK (32, 1, 1)

IF G >= 1:
  FOR i in 0..2:
    y[32*i + threadIdx.x] = copy(x[clamp(t[upper_bound(t[k of G + 1], threadIdx.x, 0, 63) + 1 of G + 1], 0, 63)])
ELSE:
  FOR i in 0..2:
    y[32*i + threadIdx.x] = copy(x[i])
"""
QUOTIENT = """
KERNEL k(x: float32[64], t: int32[1]) -> (y: float32[64])
  GRID (1, 1, 1)  BLOCK (32, 1, 1)

FOR i in 0..2:
  IF clamp(t[0 of 1], 0, 63) > 0:
    y[32*i + threadIdx.x] = copy(x[threadIdx.x // clamp(t[0 of 1], 0, 63)])
  ELSE:
    y[32*i + threadIdx.x] = copy(1.0)
"""


def test_a_table_may_have_no_places() -> None:
    found = parse_kernel(PLACE)
    assert found.verify().is_proved
    assert "element = min(max(t[max(min(G, upper_bound(" in emit(found).text
    assert "element = min(max(t[upper_bound(" in emit(parse_kernel(PLACE.replace("min 0", "min 1"))).text


def test_no_division_by_zero_is_computed_ahead_of_its_guard() -> None:
    found = parse_kernel(QUOTIENT)
    assert found.verify().is_proved
    assert "quotient = threadIdx_x / max(1, element);" in emit(found).text
    assert "quotient = threadIdx_x / element;" in emit(parse_kernel(QUOTIENT.replace("0, 63", "1, 63"))).text


LOOP = "FOR i in 0..4 UNROLL:\n  IF {}:\n    y[threadIdx.x + i] = copy(1.0)"


def guarded(body: str) -> If | None:
    (loop,) = kernel(body).body
    assert isinstance(loop, For)
    return guard_around(loop)


def test_a_guard_that_all_iterations_have_is_around_their_loop() -> None:
    found = guarded(LOOP.format("threadIdx.x < N"))
    assert found is not None
    (branch,) = found.branches
    (loop,) = branch.body
    assert str(branch.cond) == "threadIdx.x < N"
    assert isinstance(loop, For)
    assert (loop.unroll, [type(s) for s in loop.body]) == (True, [Compute])
    assert guarded(LOOP.format("threadIdx.x + i < N")) is None
    assert guarded(LOOP.format("threadIdx.x < N").replace(" UNROLL", "")) is None
    assert guarded(LOOP.format("threadIdx.x < N").replace("0..4", "0..0")) is None
    assert guarded(LOOP.format("threadIdx.x < N") + "\n  ELSE:\n    y[i] = copy(2.0)") is None


def test_a_guard_that_asks_a_cursor_stays_where_the_cursor_moves() -> None:
    moving = "FOR i in 0..4 UNROLL:\n  IF c.slot < 2:\n    y[i] = copy(1.0)\n    c.advance(1)"
    loop = kernel("c = CURSOR(slots 4, slot 0, parity 0)\n" + moving).body[1]
    assert isinstance(loop, For)
    assert guard_around(loop) is None


def test_arrays_of_guarded_loops_are_registers() -> None:
    """NVRTC took the guard of the last rows out of the loop over a vector, did not unroll it, and kept what it indexes in local memory."""
    with tf.Fusion("gelu_backward") as fusion:
        x, g = (tf.define_tensor([7056, 1024], tf.bfloat16, name=name) for name in "xg")
        v = tf.cast(x, tf.float32)
        slope = (tf.erf(v * 0.5**0.5) + 1.0) * 0.5 + v * (tf.exp(v * v * -0.5) * (2 * math.pi) ** -0.5)
        y = tf.cast(tf.cast(g, tf.float32) * slope, tf.bfloat16)
        fusion.add_output(y, tf.cast(tf.sum(tf.cast(y, tf.float32), axis=0), tf.bfloat16))
    tf.schedulers.reduction(fusion, tf.schedulers.RowConfig(threads=32, rows=8, unroll=4, blocks=16))
    assert ".local" not in tf.lower(fusion).ptx("sm_90a")
