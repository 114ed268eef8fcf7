"""Definitions are compared with the fusion whenever it is lowered: those that lowering makes pass, and nothing else does."""

from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass, replace
from functools import partial
from typing import cast

import pytest

import taskfuse as tf
from taskfuse import ParallelType as P
from taskfuse.dtypes import DType
from taskfuse.errors import VerifyError
from taskfuse.ir.combine import COMBINES, Combine
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.ir.elementwise_function import Elementwise
from taskfuse.ir.scalar import Expr, const
from taskfuse.ir.types import PlaceSearch
from taskfuse.kir import Kernel
from taskfuse.kir.declarations import Param, ScalarParam, TensorParam
from taskfuse.kir.faithful import check_faithful
from taskfuse.kir.witness import Apply, Definition, Pick, Whole
from taskfuse.lowering import steps
from taskfuse.testing.definition_operators import DEFINITION_OPERATORS
from taskfuse.testing.options import Mix
from taskfuse.testing.value_faults import edit
from tests.random_cases import PAIRS, random_case_of

Build = Callable[[], list[tf.TensorView]]


def mapped() -> list[tf.TensorView]:
    """Functions of operands, transposed, sliced, broadcast; constants, a run-time scalar, an index."""
    x, y, z = (tf.define_tensor(["M", 5], name=name) for name in "xyz")
    a = tf.define_scalar(tf.float32, name="a")
    i = tf.iota(5)
    return [tf.exp(x) - y / (z + 2.5) * a, tf.permute(z, (1, 0)) * 3.0, tf.where(x < y, y, z[:, 1:2]), x + tf.cast(i, tf.float32)]


def reduced() -> list[tf.TensorView]:
    return [tf.matmul(tf.define_tensor([4, "K"], name="x"), tf.define_tensor(["K", 6], name="y"))]


def scanned() -> list[tf.TensorView]:
    return [tf.cumsum(tf.define_tensor([4, 5], name="x"), 1)]


def chosen() -> list[tf.TensorView]:
    x, y = tf.define_tensor([4, 5], name="x"), tf.define_tensor([4, 5], name="y")
    return [tf.cat([tf.exp(x), tf.sin(y)], 0), tf.pad(x, ((0, 0), (1, 2)))]


def found() -> list[tf.TensorView]:
    x, at = tf.define_tensor([7, 5], name="x"), tf.define_tensor([3], tf.int32, name="at")
    return [tf.take(tf.exp(x), at, axis=0)]


def assembled() -> list[tf.TensorView]:
    x, y = tf.define_tensor([4, 5], name="x"), tf.define_tensor([4, 5], name="y")
    return [tf.cat([tf.exp(x), tf.sin(y)], 0, form="scatter")]


def viewed() -> list[tf.TensorView]:
    """A view with storage of its own, one without, and one that is a result."""
    x = tf.define_tensor([4, 6], name="x")
    turned = tf.permute(tf.exp(x), (1, 0))
    turned.set_memory_type(tf.MemoryType.Shared)
    return [tf.sin(tf.reshape(turned, [24])), tf.reshape(tf.cos(x), [3, 8])]


def factored() -> list[tf.TensorView]:
    total = tf.sum(tf.define_tensor([4, 64], name="x"), axis=1)
    total.split(1, 8)
    total.rfactor([1])
    return [total]


def of(build: Build) -> tf.Fusion:
    with tf.Fusion("f") as fusion:
        for out in build():
            fusion.add_output(out)
    fusion.inline_most()
    return fusion


def roles() -> tf.Fusion:
    """A tensor that crosses to another role and is a result: the kernel has a copy of it."""
    with tf.Fusion("f") as fusion:
        x = tf.define_tensor([4, 32], name="x")
        y = tf.exp(x)
        z = tf.sin(y)
        fusion.add_output(y)
        fusion.add_output(z)
    group = fusion.group([fusion.task([y]), fusion.task([z])])
    for tv in (y, z):
        tv.axis(1).parallelize(P.TIDx)
    group.parallelize(P.TIDy)
    fusion.inline_most()
    return fusion


BUILDS = (mapped, reduced, scanned, chosen, found, assembled, viewed, factored)
MAKERS: dict[str, Callable[[], tf.Fusion]] = {**{b.__name__: partial(of, b) for b in BUILDS}, "roles": roles}


def changed(value: object, kernel: Kernel) -> Iterator[object]:
    """Every change of one part of a value: of a node by its fields, of several things one by one, one left out, neighbors exchanged."""
    match value:
        case Expr():
            yield value + 1
            yield const(7)
        case DType():
            yield next(d for d in (tf.float32, tf.int32, tf.float64) if d is not value)
        case Elementwise():
            yield next(o for o in ELEMENTWISE.values() if o is not value and o.arity == value.arity)
        case PlaceSearch():
            yield from (s for s in PlaceSearch if s is not value)
        case Combine():
            yield next(c for c in COMBINES.values() if c is not value)
        case str():
            names = (*(d.tensor for d in kernel.definitions), *(p.name for p in kernel.params), "nobody")
            yield from (n for n in names if n.partition(".")[0] != value.partition(".")[0])
        case None:  # an output with an array of its own
            yield "nobody"
        case bool():
            yield not value
        case int() | float():
            yield value + 1
            yield -value - 1.5
        case tuple():
            parts = cast("tuple[object, ...]", value)
            for k, part in enumerate(parts):
                yield from ((*parts[:k], new, *parts[k + 1 :]) for new in changed(part, kernel))
                yield (*parts[:k], *parts[k + 1 :])
                if k and parts[k - 1] != part:
                    yield (*parts[: k - 1], part, parts[k - 1], *parts[k + 1 :])
        case _:
            assert is_dataclass(value)
            assert not isinstance(value, type)
            for f in fields(value):
                yield from (replace(value, **{f.name: new}) for new in changed(getattr(value, f.name), kernel))


def refused(kernel: Kernel, fusion: tf.Fusion) -> bool:
    try:
        check_faithful(kernel, fusion)
    except VerifyError:
        return True
    return False


def mutants(kernel: Kernel) -> Iterator[Kernel]:
    """One definition changed in one place, left out, or another rule in its place; one argument changed."""
    for op in DEFINITION_OPERATORS:
        yield from op.apply(kernel)
    for k, d in enumerate(kernel.definitions):
        yield replace(kernel, definitions=(*kernel.definitions[:k], *kernel.definitions[k + 1 :]))
        for new in changed(d, kernel):
            if new != d:
                yield replace(kernel, definitions=(*kernel.definitions[:k], cast("Definition", new), *kernel.definitions[k + 1 :]))
        for rule in (Apply(ELEMENTWISE["copy"], (), d.dtype), Pick(()), Whole((), (), ())):
            yield replace(kernel, definitions=(*kernel.definitions[:k], replace(d, rule=rule), *kernel.definitions[k + 1 :]))
    given = tuple(p for p in kernel.params if isinstance(p, (TensorParam, ScalarParam)))
    for new in changed(given, kernel):
        if new != given:
            yield replace(kernel, params=(*cast("tuple[Param, ...]", new), *kernel.params[len(given) :]))


@pytest.mark.parametrize("name", MAKERS)
def test_every_change_of_a_definition_is_refused(name: str) -> None:
    fusion = MAKERS[name]()
    kernel = tf.lower(fusion)
    check_faithful(kernel, fusion)
    made = list(mutants(kernel))
    assert len(made) > 20
    if len(kernel.definitions) > 1:
        made.append(replace(kernel, definitions=kernel.definitions[::-1]))
    survivors = [edit(kernel, m) for m in made if not refused(m, fusion)]
    assert survivors == []


@pytest.mark.parametrize("mix", Mix, ids=lambda m: m.value)
def test_random_fusions(mix: Mix) -> None:
    """Lowering compares them; here a sample of their mutants."""
    for seed in PAIRS[mix]:
        case = random_case_of(seed, mix)
        if case.kernel is None:
            continue
        kernel = case.kernel
        check_faithful(kernel, case.fusion)
        survivors = [edit(kernel, m) for k, m in enumerate(mutants(kernel)) if k % 17 == seed % 17 and not refused(m, case.fusion)]
        assert survivors == [], seed


def test_roles_read_a_copy() -> None:
    fusion = roles()
    kernel = tf.lower(fusion)
    assert [d.tensor for d in kernel.definitions] == ["tv1", "tv1.b", "tv2"]


def test_what_lowering_would_say(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault of the code that writes definitions is found when the fusion is lowered, and names the tensor."""
    original = steps.definitions

    def shifted(fusion: tf.Fusion) -> tuple[Definition, ...]:
        first, *rest = original(fusion)
        assert isinstance(first.rule, Apply)
        return (replace(first, rule=replace(first.rule, op=ELEMENTWISE["cos"])), *rest)

    with tf.Fusion("f") as fusion:
        fusion.add_output(tf.exp(tf.define_tensor([4], name="x")))
    monkeypatch.setattr(steps, "definitions", shifted)
    with pytest.raises(VerifyError) as error:
        tf.compile(fusion, schedule=None)
    assert str(error.value) == (
        "the definitions of kernel 'f' are not those of its fusion: tv1: its function is cos, where the fusion has exp\n"
        "help: this is a fault of lowering, not of the schedule: report it with the fusion's text"
    )
