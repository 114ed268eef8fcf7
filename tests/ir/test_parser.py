"""From records to a fusion, and the round trip of random ones."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import taskfuse.ops as tf
from taskfuse.dtypes import bfloat16, float16, float32
from taskfuse.errors import FusionError, ParseError, ScheduleError, ShapeError, TaskError
from taskfuse.ir.dims import Dim
from taskfuse.ir.evaluate import evaluate
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.parser import parse_fusion
from taskfuse.ir.printer import fusion_to_text
from taskfuse.ir.scalar import sym
from taskfuse.ir.tasks import Group, Node
from taskfuse.ir.tensor import TensorView
from taskfuse.ir.types import MemoryType
from taskfuse.ir.types import ParallelType as P
from taskfuse.schedule import layouts
from taskfuse.schedule.copy import copy_fusion
from taskfuse.schedule.order import LoopItem, complete, sequence
from taskfuse.schedule.shared_loops import SharedLoops
from tests.ir.same import HEAD, Y, Z, check_round_trip, name


def nest(items: Iterable[Any]) -> list[object]:
    """The sequential nest by names."""
    return [nest(i.body) if isinstance(i, LoopItem) else i.tv.name for i in items]


def test_text_by_hand() -> None:
    """Comments, line ends inside brackets, other axis names and another order of lines and clauses are fine; printing makes them canonical."""
    text = """
# a comment
FUSION hand
INPUT x: float32[
    B, 16]
DIM B min 2   # the batch

y: float32[B, 16] = sin(x)
TASK t = y
SCHEDULE y: loop [block:BIDx, rows | tail]; split(a0, 4) -> block, rows; memory Global; merge(a1, rest) -> tail; foreign rest: 0x3 of x.a1
OUTPUT y
"""
    fusion = parse_fusion(text.replace("foreign rest: 0x3 of x.a1", "memory Local", 0))
    assert fusion_to_text(fusion) == (
        """\
FUSION hand
DIM B min 2
INPUT x: float32[B, 16]
y: float32[B, 16] = sin(x)
OUTPUT y
SCHEDULE y: foreign a2: 3 of x.a1; split(a0, 4) -> a3, a4; merge(a1, a2) -> a5; loop [a3:BIDx, a4 | a5]; memory Global
TASK t = y"""
    )
    check_round_trip(fusion)


def test_the_parsed_fusion_computes_the_same_and_goes_on_alike() -> None:
    with Fusion() as fusion:
        x = tf.define_tensor(["S", 8], name="tv2")
        alpha = tf.define_scalar(name="tv3")
        y = tf.softmax(tf.mul(x, alpha), 1)
        fusion.add_output(tf.sum(tf.flip(y, 1), 0))
    parsed = parse_fusion(fusion_to_text(fusion))
    data = np.linspace(-1, 1, 24, dtype=np.float32).reshape(3, 8)
    for a, b in zip(evaluate(fusion, [data, 0.5]), evaluate(parsed, [data, 0.5]), strict=True):
        assert np.array_equal(a, b)
    assert name(tf.neg(x)) == name(tf.neg(parsed.inputs[0]))
    with fusion, parsed:
        assert tf.define_scalar().name == "s1"
    check_round_trip(fusion)


def test_locations_point_into_the_text() -> None:
    fusion = parse_fusion("FUSION f\nINPUT x: float32[4]\ny: float32[4] = sin(x)")
    assert str(fusion.tensor("y").location) == "<fusion text>:3:1"
    definition = fusion.tensor("y").definition
    assert definition is not None
    assert str(definition.location) == "<fusion text>:3:1"


def test_tasks_that_are_lawful_only_together() -> None:
    """Until t2 claims it, tv1 follows tv2 into t1, and the cycle t1 -> tv3 -> t1 breaks law 3: laws are checked when all tasks are there."""
    with Fusion() as fusion:
        out = tf.sum(tf.define_tensor(["B", 16], dtype=bfloat16), 0)
    (total,) = (tv for tv in fusion.tensors() if fusion.owner(tv) is out)
    fusion.task([out])
    fusion.task([total])
    total.cache_after()
    fusion.check()
    assert "TASK t1 = tv2\nTASK t2 = tv1, tv3" in fusion_to_text(fusion)
    check_round_trip(fusion)


UNARY: tuple[Callable[[TensorView], TensorView], ...] = (
    tf.sin,
    tf.neg,
    tf.exp,
    tf.copy,
    lambda x: tf.sum(x, 0),
    lambda x: tf.sum(x, -1, keepdims=True),
    lambda x: tf.softmax(x, -1),
    lambda x: tf.flip(x),
    lambda x: tf.cumsum(x, -1),
    lambda x: tf.take(x, tf.argmax(x, 0), 0),
)
SHAPING: tuple[Callable[[TensorView], TensorView], ...] = (
    lambda x: tf.permute(x, tuple(reversed(range(x.ndim)))),
    lambda x: tf.expand_dims(x, 0),
    lambda x: tf.reshape(x, (-1,)),
    lambda x: tf.pad(x, [(1, 2)] * x.ndim),
    lambda x: tf.mul(tf.cast(x, float16), 2.5),
    lambda x: x[..., 1:] if x.ndim else x[...],
)
BINARY: tuple[Callable[[TensorView, TensorView], TensorView], ...] = (
    tf.add,
    tf.div,
    lambda a, b: tf.cat([a, b], 0),
    lambda a, b: tf.cat([a, b], 0, form=tf.CatForm.SCATTER),
    tf.matmul,
    lambda a, b: tf.where(tf.gt(a, 0), b, 1.0),
)


@st.composite
def fusions(draw: st.DrawFn) -> Fusion:
    """A random graph, partition, group tree and schedule; calls that the laws refuse are left out."""

    def pick(items: Iterable[Any]) -> Any:
        return draw(st.sampled_from(list(items)))

    with Fusion(pick(("f", "a name"))) as fusion:
        shape = [pick(("B", 8, tf.dim("S", multiple_of=4, max=64))), pick((16, "T", 1))]
        values = [tf.define_tensor(shape, dtype=pick((float32, bfloat16))), tf.define_tensor(shape)]
        if draw(st.booleans()):
            values.append(tf.mul(values[0], tf.define_scalar(name=pick((None, "alpha")))))
        for _ in range(draw(st.integers(2, 6))):
            try:
                values.append(pick(BINARY)(pick(values), pick(values)) if draw(st.booleans()) else pick(UNARY + SHAPING)(pick(values)))
            except ShapeError:
                continue
        for tv in values[2:]:
            if not tv.uses and not tv.is_output:
                fusion.add_output(tv)
    for _ in range(draw(st.integers(0, 3))):
        claimable = [tv for tv in fusion.tensors() if not tv.is_input and tv.task is None]
        if claimable:
            attempt(partial(fusion.task, draw(st.lists(st.sampled_from(claimable), min_size=1, max_size=3, unique=True))))
    for _ in range(draw(st.integers(0, 3))):
        loose = fusion.tasks.root.members
        if loose:
            members = draw(st.lists(st.sampled_from(loose), min_size=1, max_size=3, unique=True))
            attempt(partial(group_on, fusion, members, pick((P.TIDx, P.TIDy, P.BIDx))))
    for _ in range(draw(st.integers(0, 4)) * 4):
        attempt(lambda: schedule_something(draw, fusion))
    return fusion


def group_on(fusion: Fusion, members: list[Node], ptype: P) -> None:
    fusion.group(members).parallelize(ptype)


def attempt(call: Callable[[], object]) -> None:
    try:
        call()
    except (ScheduleError, TaskError, ValueError):
        return


def schedule_something(draw: st.DrawFn, fusion: Fusion) -> None:
    computed = [t for t in fusion.tensors() if not t.is_input]
    tv = draw(st.sampled_from(computed if computed and draw(st.booleans()) else fusion.tensors()))
    k, m = draw(st.integers(0, 3)), draw(st.integers(0, 3))
    match draw(st.integers(0, 17)):
        case 0 | 1:
            tv.split(k, draw(st.sampled_from((2, 3, 4))), inner=draw(st.booleans()))
        case 2:
            tv.merge(k, m)
        case 3:
            tv.reorder({k: m})
        case 4 | 5:
            tv.axis(k).parallelize(draw(st.sampled_from((P.BIDx, P.TIDx, P.TIDy, P.Unroll, P.Vectorize, P.Serial))))
        case 6:
            tv.inline_at(k)
        case 7:
            fusion.inline_most()
        case 8:
            copy = tv.cache_after().split(-1, 4)
            copy.axis(-1).parallelize(P.Vectorize)
        case 9:
            tv.cache_before()
        case 10:
            tv = draw(st.sampled_from([t for t in fusion.tensors() if any(a.is_reduction for a in t.loop)] or [tv]))
            reduced = [a.is_reduction for a in tv.loop].index(True)
            tv.split(reduced, 4).rfactor([reduced + draw(st.integers(0, 1))])
        case 11:
            tv.set_memory_type(draw(st.sampled_from(MemoryType)))
        case 12:
            tv.circular_buffer(draw(st.integers(1, 4)))
        case 13:
            tv.propagate(draw(st.lists(st.sampled_from(fusion.tensors()), min_size=1, max_size=3)), upto=draw(st.sampled_from((None, 1, 2))))
        case 14:
            tv.set_allocation_domain(draw(st.sampled_from((layouts.rowmajor(), layouts.padded(1), layouts.swizzled(32)))))
        case 15:
            tv.split(1, 4).split(0, 4).swizzle(1, 3)
        case 16:
            columns = tv.axis(1).extent
            tv.rasterize([0, 1], [sym("i0") // columns, sym("i0") % columns])
        case _:
            groups = [n for n in fusion.tasks.nodes if isinstance(n, Group)]
            draw(st.sampled_from(groups)).pingpong(tv.axis(k)) if groups else tv.reorder({k: m})


def broken_law(fusion: Fusion) -> str | None:
    try:
        fusion.check()
    except TaskError as error:
        return error.message
    return None


@given(fusions())
@settings(max_examples=150)
def test_round_trip(fusion: Fusion) -> None:
    broken = broken_law(fusion)
    if broken is not None:  # calls after `task` and `group` may break a law: the text shows it, and reading it back says so
        with pytest.raises(TaskError) as caught:
            parse_fusion(fusion_to_text(fusion))
        assert caught.value.message == broken
        return
    parsed = check_round_trip(fusion)
    try:
        order = nest(sequence(fusion, complete(fusion), SharedLoops.of(fusion)))
    except ScheduleError:
        return
    assert nest(sequence(parsed, complete(parsed), SharedLoops.of(parsed))) == order


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("FUSION f\nDIM S, T, S", "line 2, column 11: dimension 'S' is given twice"),
        ("FUSION f\nINPUT x: float32[-1]", "line 2, column 7: extent -1 of x is negative"),
        ("FUSION f\nINPUT x: float32[4]\ny: float32[] = reduce add of copy(x[i0]) over i0: -4 init 0.0", "line 3, column 1: extent -4 of y is negative"),
        ("FUSION f\nDIM S max 4 max 5", "line 2, column 13: 'max' of dimension 'S' is given twice"),
        ("FUSION f\nDIM S max N max S", "line 2, column 13: 'max' of dimension 'S' is given twice"),
        ("FUSION f\nDIM i0", "line 2, column 5: 'i0' is a symbol of index maps, not a dimension"),
        ("FUSION f\nINPUT x: float32[S]", "line 2, column 7: there is no dimension 'S': declare it with DIM"),
        (HEAD + "SCALAR alpha: int32", "line 5, column 8: there is already a value named 'alpha'"),
        (HEAD + "INPUT x: int32[]", "line 5, column 7: there is already a value named 'x'"),
        (HEAD + "alpha: float32[] = copy(1.0)", "line 5, column 1: there is already a value named 'alpha'"),
        (HEAD + "y: float32[S, 4] = sin(q)", "line 5, column 24: there is no tensor 'q'"),
        (HEAD + "y: float32[S, 4] = sin(y)", "line 5, column 24: y is defined below this line"),
        (HEAD + "y: float32[S] = sin(x)", "line 5, column 21: x has 2 axes, the iteration space has 1: give the index"),
        (HEAD + "y: float32[S] = sin(x[i0])", "line 5, column 21: x has 2 axes, the index has 1"),
        (HEAD + "y: float32[S] = sin(x[i0, i1])", "line 5, column 21: there is no dimension 'i1': declare it with DIM"),
        (HEAD + "y: float32[S, 4] = sin(x if i0 < Q)", "line 5, column 24: there is no dimension 'Q': declare it with DIM"),
        (HEAD + "y: int64[S, 4] = copy(index(Q))", "line 5, column 1: there is no dimension 'Q': declare it with DIM"),
        (HEAD + "y: float32[S, 4] = sin(alpha[i0])", "line 5, column 24: 'alpha' is a scalar and has no index"),
        (HEAD + "y: float32[S, 4] = scan add of x along i2", "line 5, column 40: y has 2 axes, there is no i2"),
        (HEAD + "y: float32[S, 4] = gather(x[v1, i1], v0 = x of S)", "line 5, column 27: there is no dimension 'v1': declare it with DIM"),
        (HEAD + "y: float32[S, 4] = gather(x[v0, i1], v0 = x[v0, 0] of S)", "line 5, column 43: there is no dimension 'v0': declare it with DIM"),
        (HEAD + "y: float32[S, 4] = gather(x[v0, i1], v0 = x of Q)", "line 5, column 1: there is no dimension 'Q': declare it with DIM"),
        (HEAD + "y: float32[S, 4] = assemble(x -> [i0])", "line 5, column 29: y has 2 axes, the place of x has 1"),
        (HEAD + "y: float32[S, 4] = assemble(x -> [i0, i2])", "line 5, column 29: there is no dimension 'i2': declare it with DIM"),
        (
            HEAD + "y: float32[S] root [S, 4 reduction] = copy(x)",
            "line 5, column 1: y has a root domain of its own: its SCHEDULE line must give the logical domain",
        ),
        (
            HEAD + "y: float32[S] root [S, 4 reduction] = copy(x)\nSCHEDULE y: logical [a1]",
            "line 5, column 1: the logical domain of y is [4], its shape [S]",
        ),
        (HEAD + "y: float32[S, 4] = sin(x) for q", "line 5, column 31: there is no tensor 'q'"),
        (HEAD + "y: float32[S, 4] = sin(x) from q", "line 5, column 32: there is no tensor 'q'"),
        # outputs and order
        (HEAD + "OUTPUT q", "line 5, column 8: there is no tensor 'q'"),
        (Y + "ORDER x", "line 6, column 1: ORDER leaves out y"),
        (Y + "ORDER x, y, x", "line 6, column 13: ORDER names x twice"),
        (Y + "ORDER x, q", "line 6, column 10: there is no tensor 'q'"),
        # schedules
        (Y + "SCHEDULE q: stages 2", "line 6, column 10: there is no tensor 'q'"),
        (Y + "SCHEDULE y: stages 2\nSCHEDULE y: stages 3", "line 7, column 10: y has a SCHEDULE line already"),
        (Y + "SCHEDULE y: loop [a0, a0]", "line 6, column 23: axis 'a0' is given twice"),
        (Y + "SCHEDULE y: loop [a0:TIDx, a1]; bind [a0:TIDy]", "line 6, column 39: axis 'a0' is bound to TIDx already"),
        (Y + "SCHEDULE y: logical [a0, a1]", "line 6, column 10: y has no root domain of its own: its shape is the logical domain"),
        # tasks
        (Y + "TASK t = q", "line 6, column 10: there is no tensor 'q'"),
        (Y + "GROUP g = t", "line 6, column 11: there is no task or group 't' above this line"),
        (Y + "TASK t = y\nGROUP g = t pingpong y.a7", "line 7, column 22: y has no axis 'a7'"),
    ],
)
def test_records_that_are_no_fusion(text: str, error: str) -> None:
    with pytest.raises(ParseError) as caught:
        parse_fusion(text)
    assert str(caught.value) == error


@pytest.mark.parametrize(
    ("text", "kind", "message", "location"),
    [
        (Y + "OUTPUT y, y into x", FusionError, "fusion 'f': y is an output already, and has its array", "<fusion text>:6:11"),
        (Y + "OUTPUT x strides [4, 1]", FusionError, "fusion 'f': x is an input, and has its array", "<fusion text>:6:8"),
        (Y + "OUTPUT y strides [1]", FusionError, "fusion 'f': (1,) are not strides of y [S, 4]", "<fusion text>:6:8"),
        (Y + "TASK t = x", TaskError, "t: x is an input: it is not computed, so no task contains it", "<fusion text>:6:6"),
        (Y + "TASK t = y registers 12", TaskError, "t: 12 registers", "<fusion text>:6:6"),
        (Y + "TASK t = y\nTASK t = y", TaskError, "t: there is already a node of this name", "<fusion text>:7:6"),
        (Z + "w: float32[S, 4] = exp(z)\nTASK t = y, w\nTASK u = z", TaskError, "root: its members depend on each other in a cycle", "<fusion text>:8:6"),
        (Y + "TASK t = y\nGROUP g = t on Serial", TaskError, "g: a group cannot be parallelized on Serial", "<fusion text>:7:7"),
    ],
)
def test_laws_of_the_fusion_are_located_in_the_text(text: str, kind: type[FusionError | TaskError], message: str, location: str) -> None:
    with pytest.raises(kind) as caught:
        parse_fusion(text)
    assert caught.value.message == message
    assert str(caught.value.location) == location
    assert f"  --> {location.rsplit(':', 1)[0]}" in str(caught.value)


POSITION = """\
FUSION f
DIM N, pos min 0 max N - 4 multiple_of 2, M max 7
INTEGER pos
INPUT x: float32[N, M]
y: float32[pos + 4, M] = sin(x)
OUTPUT y
"""


def test_integers_and_bounds_by_other_dimensions() -> None:
    fusion = parse_fusion(POSITION)
    assert fusion.integers == ["pos"]
    assert fusion.dims["pos"] == Dim("pos", 0, None, 2, sym("N") - 4)
    assert str(fusion) == POSITION.rstrip()
    assert str(copy_fusion(fusion)[0]) == str(fusion)


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("DIM N max Q", "dimension 'N' is at most Q: 'Q' is not one of its dimensions"),
        ("DIM N max M, M max N + 1", "the bound M of dimension 'N' depends on itself"),
        ("DIM N\nINTEGER N, N", "there is already an argument named 'N'"),
    ],
)
def test_bounds_and_integers_that_are_refused(line: str, error: str) -> None:
    with pytest.raises(FusionError, match=error):
        parse_fusion(f"FUSION f\n{line}")


BOUNDED = """\
FUSION late
INPUT x: float32[6, 8]
totals: float32[6, 8] = scan add of x along i1 since i0 - 2
before: float32[6, 8] = scan add of x along i1 exclusive since i0 - 2
y: float32[6] = reduce add of copy(x) over i1: 8 init 0.0 since i1 >= i0 - 2 until i1 < i0 + 1
z: float32[6] = reduce add of copy(x) over i1: 8 init 0.0 rescaled i1 by totals since i1 >= i0 - 2
OUTPUT totals, before, y, z
"""


def test_terms_that_start_and_end() -> None:
    fusion = parse_fusion(BOUNDED)
    assert str(fusion) == BOUNDED.rstrip()
    assert str(copy_fusion(fusion)[0]) == str(fusion)
    x = np.random.default_rng(0).integers(-3, 4, (6, 8)).astype(np.float32)
    i, j = np.mgrid[:6, :8]
    late = np.where(j >= i - 2, x, 0)
    sums, z = np.cumsum(late, axis=1), np.zeros(6, np.float32)
    for step in range(8):
        z = np.where(step >= np.arange(6) - 2, z * sums[:, step] + x[:, step], z)
    for found, wanted in zip(evaluate(fusion, (x,)), (sums, sums - late, np.where(j <= i, late, 0).sum(axis=1), z), strict=True):
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize(
    ("old", "new", "error"),
    [
        ("since i1 >= i0 - 2 until", "since i0 >= 2 until", "the terms of y cannot start there: these are not its reduction axes, in order"),
        ("since i1 >= i0 - 2 until", "since i1 >= i1 until", "a bound is not a function of the element alone"),
        ("until i1 < i0 + 1", "until i1 < i0, i1 < 3", "these are not its reduction axes, in order"),
        ("exclusive since i0 - 2", "exclusive since i1", "before cannot start there: its start is not a function of the other axes"),
        ("exclusive since i0 - 2", "exclusive since i2", "i2"),
    ],
)
def test_bounds_of_terms_that_are_refused(old: str, new: str, error: str) -> None:
    assert old in BOUNDED
    with pytest.raises(ParseError, match=error):
        parse_fusion(BOUNDED.replace(old, new))
