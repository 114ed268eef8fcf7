"""Operands of definitions at a point, and what is seen behind copies and choices."""

import taskfuse as tf
from taskfuse.check.rewrites.sides import At, Definitions, is_neutral, points
from taskfuse.dtypes import bfloat16, float32, int32
from taskfuse.ir.scalar import Facts, const, sym
from taskfuse.kir.operands import Access, Immediate, IndexOf
from tests.check.rewrites.rewritten import rewritten


def padded(f: tf.Fusion) -> None:
    """``y`` is ``x``, with two zeros in front, copied."""
    x = tf.define_tensor([8], name="x")
    y = tf.pad(x, [(2, 0)])
    f.add_output(tf.sum(y, 0))
    x.cache_after()


def now() -> Definitions:
    kernel = rewritten(padded)
    return Definitions.of(kernel, kernel.definitions)


def chosen(side: Definitions) -> str:
    """The tensor whose elements are chosen."""
    return next(name for name, d in side.definitions.items() if side.cases(Access(name, tuple(sym(f"p{k}") for k in range(len(d.shape))))))


def test_a_choice_that_is_decided_is_seen_through() -> None:
    side = now()
    name = chosen(side)
    behind = side.seen(At(side, Access(name, (const(5),))), Facts())
    assert behind.operand == Access("x", (const(3),)), "through the choice, and the copy"
    assert is_neutral(side.seen(At(side, Access(name, (const(1),))), Facts()), 0.0, float32)


def test_an_open_choice_stays() -> None:
    side = now()
    access = Access(chosen(side), (sym("p"),))
    at = At(side, access)
    assert side.seen(at, Facts().with_range("p", 0, 9)) is at
    assert len(list(side.open_cases(access, Facts().with_range("p", 0, 9)))) == 2
    assert len(list(side.open_cases(access, Facts().with_range("p", 2, 9)))) == 1


def test_dtypes_and_points() -> None:
    side = now()
    assert side.dtype(Access("x", (const(0),))) is float32
    assert side.dtype(Immediate(1, int32)) is int32
    assert side.defined(Access("x", (const(0),))) is None
    assert points([const(3), sym("q")]) == {"i0": const(3), "i1": sym("q")}
    moved = side.at(IndexOf(sym("i0")), {"i0": const(4)})
    assert moved.operand == IndexOf(const(4))


def converted(f: tf.Fusion) -> None:
    """Three copies of a 16-bit input: in its dtype, wider, and narrower."""
    x = tf.define_tensor([8], dtype=tf.bfloat16, name="x")
    f.add_output(tf.sum(tf.cast(x, tf.float32), 0), tf.sum(tf.cast(x, tf.float8_e4m3), 0))
    x.cache_after()


def test_conversions_that_lose_nothing_are_seen_through_by_those_who_convert() -> None:
    kernel = rewritten(converted)
    side = Definitions.of(kernel, kernel.definitions)
    same, wide, narrow = (
        next(d.tensor for d in kernel.definitions if d.dtype is dtype and d.shape == (const(8),)) for dtype in (bfloat16, float32, tf.float8_e4m3)
    )
    x = Access("x", (const(5),))
    at = {name: At(side, Access(name, (const(5),))) for name in (same, wide, narrow)}
    assert side.seen(at[same], Facts()).operand == x, "computed in float32, and rounded back"
    assert side.seen(at[wide], Facts()) is at[wide]
    assert side.seen(at[wide], Facts(), is_converted=True).operand == x
    assert side.seen(at[narrow], Facts(), is_converted=True) is at[narrow]
