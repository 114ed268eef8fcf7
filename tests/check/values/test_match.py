"""Faults of values that the argument for all extents must see: each bad twin is not proved, its right twin is."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

import taskfuse as tf
from taskfuse import MemoryType as M
from taskfuse import ParallelType as P
from taskfuse.check import Layer, Verdict
from taskfuse.check.constraints import Constraints
from taskfuse.check.ranges import Ranges
from taskfuse.check.tables import ValueTable
from taskfuse.check.values.match import is_left_by_one
from taskfuse.check.values.questions import proves
from taskfuse.check.values.solve import Open
from taskfuse.check.values.write_and_read import Found
from taskfuse.ir.scalar import Facts, const, ge, lt, minimum, parse_expr, substitute, sym
from taskfuse.kir import Kernel, map_expressions, map_stmts
from taskfuse.kir.nodes import Branch, Choose, Compute, For, If, Stmt
from taskfuse.kir.operands import Access, ChoiceCase, Content


def edited(kernel: Kernel, new: Callable[[Any], Stmt | tuple[Stmt, ...]]) -> Kernel:
    """The kernel with each statement changed; one of them is."""
    made = replace(kernel, body=map_stmts(kernel.body, new))
    assert made.body is not kernel.body
    return made


def gaps(kernel: Kernel) -> list[str]:
    """What the proof lacks of values."""
    assert not kernel.verify().is_proved
    return [o.reason for o in kernel.verify().argument if o.layer is Layer.VALUES and o.verdict is not Verdict.PROVED]


def pair(memory: M) -> Kernel:
    """exp of rows, then sin of what each thread has made itself."""
    with tf.Fusion("pair") as fusion:
        x = tf.define_tensor(["N", 32, 8], dtype=tf.float32, name="x")
        b = tf.exp(x)
        fusion.add_output(tf.sin(b))
    b.set_memory_type(memory)
    for tv in fusion.tensors():
        if not tv.is_input:
            tv.axis(1).parallelize(P.TIDx)
    b.inline_at(2 if memory is M.Shared else 3)
    return tf.lower(fusion)


@pytest.mark.parametrize("memory", [M.Shared, M.Local])
@pytest.mark.parametrize("condition", ["threadIdx.x < 16", "threadIdx.x > 3", "threadIdx.x != 1", "threadIdx.x % 2 == 0"])
def test_a_condition_on_threads_is_asked_for(memory: M, condition: str) -> None:
    kernel = pair(memory)
    kernel.verify().require()

    def fewer(s: Stmt) -> Stmt:
        return If((Branch(parse_expr(condition), (s,)),)) if isinstance(s, Compute) and s.op.name == "exp" else s

    assert "no write of tv1 is known to come before it in every case" in gaps(edited(kernel, fewer))
    edited(kernel, lambda s: If((Branch(parse_expr("threadIdx.x < 32"), (s,)),)) if isinstance(s, Compute) and s.op.name == "exp" else s).verify().require()


def test_an_output_holds_its_own_elements() -> None:
    with tf.Fusion("two") as fusion:
        x = tf.define_tensor([], dtype=tf.float32, name="x")
        fusion.add_output(tf.exp(x))
        fusion.add_output(tf.sin(x))
    kernel = tf.lower(fusion)
    kernel.verify().require()

    def other(s: Stmt) -> Stmt:
        return replace(s, out=Access("tv1", ())) if isinstance(s, Compute) and s.op.name == "sin" else s

    assert gaps(edited(kernel, other)) == ["reads element [] of tv2 where element [] of tv1 is defined"]


def total() -> Kernel:
    """One sum of few terms."""
    with tf.Fusion("total") as fusion:
        x = tf.define_tensor(["N", 4], dtype=tf.float32, name="x")
        fusion.add_output(tf.sum(x, axis=1))
    return tf.lower(fusion)


def test_an_output_is_no_start_of_a_reduction() -> None:
    kernel = total()
    kernel.verify().require()

    def lie(s: Stmt) -> Stmt | tuple[Stmt, ...]:
        if not isinstance(s, Compute) or s.holds is None:
            return s
        if s.holds.content is Content.START:
            return ()
        return replace(s, holds=replace(s.holds, index=(), content=Content.START)) if s.holds.content is Content.VALUE else s

    assert any("it stores no element of" in reason for reason in gaps(edited(kernel, lie)))


def test_a_trip_behind_the_end_stores_nothing_inside() -> None:
    with tf.Fusion("rows") as fusion:
        x = tf.define_tensor(["N"], dtype=tf.float32, name="x")
        y = tf.define_tensor(["N"], dtype=tf.float32, name="y")
        fusion.add_output(x - y)
    kernel = tf.lower(fusion)
    kernel.verify().require()

    def longer(s: Stmt) -> Stmt:
        if isinstance(s, For):
            return replace(s, stop=s.stop + 1)
        last = minimum(sym("i0"), sym("N") - 1)
        if not isinstance(s, Compute):
            return s
        new = map_expressions(s, lambda e: substitute(e, {"i0": last}))
        assert isinstance(new, Compute)
        return replace(new, operands=(new.operands[0], Access("y", (parse_expr("max(0, min(i0, N - 1) - i0//N)"),))), holds=s.holds)

    assert any("it stores element i0 of tv2 at index min(i0, N - 1)" in reason for reason in gaps(edited(kernel, longer)))


def test_a_choice_has_a_case_everywhere() -> None:
    with tf.Fusion("parts") as fusion:
        x = tf.define_tensor(["N"], dtype=tf.float32, name="x")
        y = tf.define_tensor([5], dtype=tf.float32, name="y")
        z = tf.define_tensor(["N"], dtype=tf.float32, name="z")
        fusion.add_output(tf.cat([x, y, z], dim=0))
    kernel = tf.lower(fusion)
    kernel.verify().require()

    def tight(s: Stmt) -> Stmt:
        if not isinstance(s, Choose):
            return s
        case = s.cases[1]
        return replace(s, cases=(s.cases[0], ChoiceCase(parse_expr("i0 >= N && i0 + 1 < N + 5"), case.operand), s.cases[2]))

    assert gaps(edited(kernel, tight)) == ["in some place no case of its choice may hold"]


def test_a_result_has_the_parts_that_are_joined_in_front_of_it() -> None:
    with tf.Fusion("joined") as fusion:
        x = tf.define_tensor(["N", 64], dtype=tf.float32, name="x")
        r = tf.sum(x, axis=1)
        fusion.add_output(r)
    r.axis(1).parallelize(P.TIDx)
    kernel = tf.lower(fusion)
    kernel.verify().require()

    def early(s: Stmt) -> Stmt:
        if not isinstance(s, For) or not s.body:
            return s
        *rest, last = s.body
        return replace(s, body=(*rest[:-2], last, *rest[-2:]))

    assert gaps(edited(kernel, early))


@pytest.mark.parametrize("fault", [{"start": const(1)}, {"stop": const(7)}, {"step": const(2)}])
def test_an_accumulator_has_taken_terms_only_where_its_loop_went(fault: dict[str, Any]) -> None:
    with tf.Fusion("columns") as fusion:
        x = tf.define_tensor(["N", 8], dtype=tf.float32, name="x")
        r = tf.sum(x, axis=0)
        fusion.add_output(tf.exp(r))
    r.axis(1).parallelize(P.Unroll)
    kernel = tf.lower(fusion)
    kernel.verify().require()

    def fewer(s: Stmt) -> Stmt:
        takes = isinstance(s, For) and any(isinstance(t, Compute) and t.holds is not None and t.holds.content is Content.TERM for t in s.body)
        return replace(s, **fault) if takes else s

    assert gaps(edited(kernel, fewer)) == ["an accumulator is read that takes no terms"]


def test_a_copy_converts_to_nothing_else() -> None:
    with tf.Fusion("copied") as fusion:
        x = tf.define_tensor(["N"], dtype=tf.float32, name="x")
        b = tf.exp(x)
        fusion.add_output(b)
    b.cache_before()
    fusion.inline_most()
    kernel = tf.lower(fusion)
    kernel.verify().require()

    def narrow(s: Stmt) -> Stmt:
        return replace(s, dtype=tf.float8_e4m3) if isinstance(s, Compute) and s.op.name == "copy" else s

    assert gaps(edited(kernel, narrow)) == ["it computes copy in float8_e4m3; tv1 is copy in float32"]


def test_partial_results_have_the_dtype_of_their_reduction() -> None:
    with tf.Fusion("parts") as fusion:
        x = tf.define_tensor(["N", 64], dtype=tf.float32, name="x")
        r = tf.sum(x, axis=1)
        fusion.add_output(r)
    r.axis(1).parallelize(P.TIDx)
    kernel = tf.lower(fusion)
    kernel.verify().require()
    narrow = replace(kernel, buffers=tuple(replace(b, dtype=tf.float8_e4m3) if b.name == "tv1.part" else b for b in kernel.buffers))
    assert "it accumulates in float8_e4m3, not in float32" in gaps(narrow)


def test_operands_of_a_commutative_function_may_change_places() -> None:
    """``a + b`` as ``b + a``, and a term in front of its accumulator; not so those of a difference."""

    def exchanged(kernel: Kernel, op: str) -> Kernel:
        def new(s: Stmt) -> Stmt:
            return replace(s, operands=(s.operands[1], s.operands[0], *s.operands[2:])) if isinstance(s, Compute) and s.op.name == op else s

        return edited(kernel, new)

    with tf.Fusion("sums") as fusion:
        x, y = (tf.define_tensor(["N", "M"], name=name) for name in "xy")
        a, b = tf.exp(x), tf.sin(y)
        fusion.add_output(tf.sum(a + b, axis=1))
        fusion.add_output(a * b)
        fusion.add_output(a - b)
        fusion.add_output(tf.cumsum(x, 1))
        fusion.add_output(tf.sum(x * y, axis=1))
    fusion.inline_most()
    kernel = tf.lower(fusion)
    kernel.verify().require()
    for op in ("add", "mul"):
        exchanged(kernel, op).verify().require()
    assert gaps(exchanged(kernel, "sub"))[0].startswith("it may find")


def spaced(read: str) -> Kernel:
    """Elements in every other place of a buffer, each read twice: at ``read`` for the result ``i1``."""
    with tf.Fusion("twice") as fusion:
        x = tf.define_tensor(["N"], name="x")
        a = tf.exp(x)
        fusion.add_output(tf.sin(tf.reshape(tf.broadcast_to(tf.expand_dims(a, 1), ["N", 2]), [2 * sym("N")])))
    a.set_memory_type(M.Global)
    kernel = tf.lower(fusion)

    def apart(s: Stmt) -> Stmt:
        if isinstance(s, Compute) and s.op.name == "exp":
            return replace(s, out=replace(s.out, index=tuple(2 * e for e in s.out.index)))
        return replace(s, operands=(Access(a.name, (parse_expr(read),)),)) if isinstance(s, Compute) else s

    wide = tuple(replace(b, shape=tuple(2 * e for e in b.shape)) for b in kernel.buffers)
    return edited(replace(kernel, buffers=wide), apart)


def test_places_between_those_that_are_written() -> None:
    """An equation of multiples of 2 has a solution for even places alone: what odd ones hold nobody has written."""
    spaced("2*(i1//2)").verify().require()
    (gap,) = gaps(spaced("i1"))
    assert "the symbols of its index have too many values" in gap


@pytest.mark.parametrize(
    ("answers", "is_left"),
    [
        ((), False),
        ((None, Found()), True),
        ((Found(), Open("is not asked")), True),
        ((Found((lt(sym("i"), 4),)), None), False),
        ((Found((lt(sym("i"), 4),)), Found((ge(sym("i"), 4),))), True),
        ((Found((lt(sym("i"), 4),)), Found((ge(sym("i"), 5),))), False),
    ],
)
def test_one_of_several_writes(answers: tuple[Found | Open | None, ...], is_left: bool) -> None:
    def ask(answer: Found | Open | None, constraints: Constraints, among: ValueTable | None) -> Found | None:
        assert among is None
        if isinstance(answer, Open):
            raise answer
        return Found() if answer is not None and all(proves(constraints, c) for c in answer.under) else answer

    assert is_left_by_one(answers, ask, Constraints(Ranges({}), Facts())) == is_left
