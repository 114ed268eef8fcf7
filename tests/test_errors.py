"""Whole texts of errors that no test beside the code at fault pins: mistakes in calls, in arguments, in kernels."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import taskfuse as tf
from taskfuse import ParallelType as P
from taskfuse import errors
from taskfuse.errors import TaskfuseError
from taskfuse.sim.barriers import MbarrierCell
from taskfuse.sim.fault import Fault
from tests.errors import text, untyped
from tests.sim.kernels import error, kernel


def refused(call: Callable[[], Any]) -> str:
    with pytest.raises(TaskfuseError) as caught:
        call()
    assert caught.value.location is None or caught.value.location.file == __file__
    return text(caught.value)


class Case:
    """x: float32[N, 32], a = exp(x), b = sin(a), s = b.sum(1); b and s are outputs."""

    def __init__(self) -> None:
        self.fusion = tf.Fusion("case")
        with self.fusion:
            self.x = tf.define_tensor(["N", 32], name="x")
            self.a = tf.exp(self.x)
            self.b = tf.sin(self.a)
            self.s = self.b.sum(1)
            self.k = tf.define_scalar(tf.int8, name="k")
            self.fusion.add_output(self.b)
            self.fusion.add_output(self.s)


# Values that type checkers refuse: what a call says when nobody ran one.
WRONG: Any = "wrong"
HALF: Any = 2.5
NOTHING: Any = None
POSITION = "use an axis in [-2, 1]"
INTEGER = 'use an integer, or an expression such as 4*tf.scalar.sym("S")'


SCHEDULING_CALLS: list[tuple[Callable[[Case], object], str]] = [
    (lambda c: c.b.axis(WRONG), f"axis(tv2): 'wrong' is not a position of an axis\nhelp: {POSITION}"),
    (lambda c: c.b.axis(7), f"axis(tv2): axis 7 is out of range: the loop domain has 2 axes\nhelp: {POSITION}"),
    (lambda c: c.b.split(HALF, 4), f"split(tv2): 2.5 is not a position of an axis\nhelp: {POSITION}"),
    (lambda c: c.b.merge(0, WRONG), f"merge(tv2): 'wrong' is not a position of an axis\nhelp: {POSITION}"),
    (lambda c: c.b.split(0, WRONG), f"split(tv2): 'wrong' is not a factor\nhelp: {INTEGER}"),
    (lambda c: c.b.split(0, HALF), f"split(tv2): 2.5 is not a factor\nhelp: {INTEGER}"),
    (lambda c: c.b.rasterize([0], [WRONG]), f"rasterize(tv2): 'wrong' is not a map\nhelp: {INTEGER}"),
    (lambda c: c.b.rasterize([0], [tf.scalar.sym("i0")], extent=WRONG), f"rasterize(tv2): 'wrong' is not an extent\nhelp: {INTEGER}"),
    (
        lambda c: c.b.axis(0).parallelize(WRONG),
        "parallelize(tv2): 'wrong' is not a parallel type\nhelp: use a member of ParallelType, such as ParallelType.TIDx",
    ),
    (
        lambda c: c.b.axis(0).parallelize(P.Mma),
        "parallelize(tv2): an axis is bound to Mma only by an atom that executes it\nhelp: tv2.set_atom(atom, axes)",
    ),
    (
        lambda c: c.a.set_memory_type(WRONG),
        "set_memory_type(tv1): 'wrong' is not a memory type\nhelp: use MemoryType.Local, MemoryType.Shared, MemoryType.Cluster, MemoryType.Global",
    ),
    (lambda c: c.a.circular_buffer(HALF), "circular_buffer(tv1): 2.5 is not a number of slots\nhelp: use an integer such as 2"),
]


@pytest.mark.parametrize(
    ("call", "expected"),
    SCHEDULING_CALLS,
)
def test_scheduling_calls(call: Callable[[Case], Any], expected: str) -> None:
    case = Case()
    before = str(case.fusion)
    assert refused(lambda: call(case)) == expected
    assert str(case.fusion) == before


def test_integers_of_numpy_are_integers() -> None:
    case = Case()
    numbers: list[Any] = [np.int64(0), np.int64(1), np.int32(2), np.int8(4)]  # type checkers know them as SupportsIndex
    zero, one, two, four = numbers
    case.b.split(one, four).axis(one).parallelize(P.TIDx)
    case.a.circular_buffer(two)
    assert [str(a.extent) for a in case.b.loop] == ["N", "8", "4"]
    assert case.a.schedule.stages == 2
    with case.fusion:
        shape: Any = [np.int64(4), "N"]
        assert repr(tf.define_tensor(shape, name="y")) == "y: float32[4, N]"
    assert tf.sum(case.b, zero).ndim == 1


FUSIONS_TASKS_AND_GROUPS: list[tuple[Callable[[Case], object], str]] = [
    (lambda c: c.fusion.task([WRONG]), "t1: 'wrong' is not a tensor\nhelp: a task consists of tensors, a group of tasks and groups"),
    (
        lambda c: c.fusion.group(untyped([c.a])),
        "group1: tv1: float32[N, 32] is neither a task nor a group\nhelp: a group consists of tasks and groups: fusion.task([tensor]) makes a task",
    ),
    (
        lambda c: c.fusion.group([c.fusion.task([c.a], "only")], "pair").parallelize(WRONG),
        "pair: 'wrong' is not a parallel type\nhelp: use a member of ParallelType, such as ParallelType.TIDy",
    ),
    (lambda c: c.fusion.task([c.a], "only").registers(41), "only: 41 registers\nhelp: setmaxnreg takes a multiple of 8 from 24 to 256"),
    (lambda c: c.fusion.add_output(WRONG), "fusion 'case': 'wrong' is not a tensor\nhelp: give tensors: add_output(a, b)"),
    (lambda c: c.fusion.add_output(c.k), "fusion 'case': k: int8 is not a tensor\nhelp: give tensors: add_output(a, b)"),
    (
        lambda c: c.fusion.add_output(c.x, strides=[1]),
        "fusion 'case': x is an input, and has its array\nhelp: return tf.copy(x) beside it",
    ),
    (
        lambda c: c.fusion.task(untyped(c.a)),
        "fusion 'case': tv1 is one tensor, not a sequence\nhelp: write [tv1] where several tensors are wanted, tv1[k] for a part of it",
    ),
    (
        lambda c: tf.cat(untyped(c.a)),
        "fusion 'case': tv1 is one tensor, not a sequence\nhelp: write [tv1] where several tensors are wanted, tv1[k] for a part of it",
    ),
    (
        lambda c: 0 < c.a < 1,
        "fusion 'case': tv4 has no truth value: its elements are not known yet\nhelp: choose elements with tf.where, combine conditions with & and |; "
        "ask whether two are one tensor with `is`",
    ),
    (lambda c: tf.compile(c.fusion, WRONG), "backend 'wrong' is not supported: there is no such backend\nhelp: use one of auto, cuda, sim"),
]


@pytest.mark.parametrize(
    ("call", "expected"),
    FUSIONS_TASKS_AND_GROUPS,
)
def test_fusions_tasks_and_groups(call: Callable[[Case], Any], expected: str) -> None:
    assert refused(lambda: call(Case())) == expected


class Chain:
    """x: float32[N, 32], a = exp(x), b = sin(a), s = b.sum(1), c = cat(a, b); b, s and c are outputs."""

    def __init__(self) -> None:
        with tf.Fusion("chain") as self.fusion:
            self.x = tf.define_tensor(["N", 32], name="x")
            self.a = tf.exp(self.x)
            self.b = tf.sin(self.a)
            self.s = self.b.sum(1)
            self.c = tf.cat([self.a, self.b], 0)
            for tv in (self.b, self.s, self.c):
                self.fusion.add_output(tv)

    def split(self) -> "Chain":
        self.c.split(0, 4)
        return self


def small() -> tf.Fusion:
    with tf.Fusion("small") as fusion:
        fusion.add_output(tf.exp(tf.define_tensor([4], name="x")))
    return fusion


SMALL = np.ones(4, np.float32)
NO_CALLS = "give it a fusion without scheduling calls"
ITS_FUSION = "give the fusion that it was defined in"
S = tf.schedulers


CALLS_OF_AUTOMATIC_SCHEDULES: list[tuple[Callable[[Chain], object], str]] = [
    (lambda c: c.a.recompute([]), "recompute(tv1): no reader is given\nhelp: its readers are tv2, tv4"),
    (lambda c: c.a.recompute([WRONG]), "recompute(tv1): 'wrong' is not a tensor\nhelp: its readers are tv2, tv4"),
    (lambda c: c.a.recompute([c.s]), "recompute(tv1): tv3 does not read it\nhelp: its readers are tv2, tv4"),
    (lambda c: c.b.recompute([c.s, c.c]), "recompute(tv2): tv3 and tv4 do not run over the same extents\nhelp: call it once for each"),
    (lambda c: c.a.duplicate([WRONG]), "duplicate(tv1): 'wrong' is not a tensor\nhelp: its readers are tv2, tv4"),
    (lambda c: c.a.cache_after(c.a), "cache_after(tv1): tv1 does not read it\nhelp: its readers are tv2, tv4"),
    (lambda c: c.a.cache_after(c.b, 1), "cache_after(tv1): operand 1 of tv2 is another tensor\nhelp: it is at 0"),
    (lambda c: c.a.cache_after(operand=0), "cache_after(tv1): operand 0 is given without its reader\nhelp: give reader= as well"),
    (
        lambda c: tf.segment(c.fusion, [[c.a, c.b, c.s, c.c]], views=[[c.a]]),
        "fusion 'chain': tv1 is not a view with strides\nhelp: name slices, and reshaped or permuted tensors",
    ),
    (
        lambda c: tf.segment(c.fusion, [[c.a, c.b, c.s, c.c]], views=[]),
        "fusion 'chain': there are 1 segments and views of 0\nhelp: give a list for each segment, empty if it takes no views",
    ),
    (
        lambda c: c.a.scatter(),
        "scatter(tv1): it is not a concatenation of parts that fill it along one axis, nor ragged rows of tiles\n"
        "help: tf.cat, tf.stack and tf.grouped_matmul make one",
    ),
    (lambda c: c.split().c.scatter(), "scatter(tv4): tv4 is scheduled already\nhelp: scatter first"),
    (lambda c: c.fusion.resident_blocks(33), "fusion 'chain': 33 resident blocks of a multiprocessor\nhelp: use 1 to 32"),
    (lambda c: c.fusion.resident_blocks(HALF), "fusion 'chain': 2.5 resident blocks of a multiprocessor\nhelp: use 1 to 32"),
    (lambda c: tf.segment(c.fusion, [["tv9"]]), "fusion 'chain': there is no tensor named 'tv9'"),
    (
        lambda c: tf.segment(c.fusion, ["tv1"]),
        "fusion 'chain': 'tv1' is one name, not a sequence\nhelp: write ['tv1'] for a segment of one tensor",
    ),
    (lambda c: tf.segment(c.fusion, [small().outputs]), "fusion 'chain': tv1: float32[4] is not a tensor of it\nhelp: name its tensors"),
    (
        lambda c: tf.segment(c.fusion, [[c.a]]),
        "fusion 'chain': tv2 is in no segment\nhelp: name every tensor that the outputs need and that is neither an input nor a view",
    ),
    (lambda c: tf.segment(c.fusion, [[c.a], [c.a, c.b]]), "fusion 'chain': tv1 is in segments 0 and 1\nhelp: name each tensor once"),
    (
        lambda c: tf.segment(c.fusion, [[c.a, c.c], [c.b, c.s]]),
        "fusion 'chain': the segments [tv1, tv4] and [tv2, tv3] depend on each other\nhelp: merge them, or segment the fusion elsewhere",
    ),
    (
        lambda c: tf.segment(c.split().fusion, [[c.a, c.b, c.s, c.c]]),
        "fusion 'chain': it has a schedule already\nhelp: segment a fusion without scheduling calls; the segments are scheduled",
    ),
]


@pytest.mark.parametrize(
    ("call", "expected"),
    CALLS_OF_AUTOMATIC_SCHEDULES,
)
def test_calls_of_automatic_schedules(call: Callable[[Chain], Any], expected: str) -> None:
    assert refused(lambda: call(Chain())) == expected


AUTOMATIC_SCHEDULES: list[tuple[Callable[[Chain], object], str]] = [
    (
        lambda c: tf.compile(c.fusion, schedule=WRONG),
        "schedule 'wrong' is not supported: there is no such choice\nhelp: use 'auto', or None to take the fusion as it is",
    ),
    (
        lambda c: tf.compile(c.fusion, sizes={"Q": 3}),
        "a schedule of fusion 'chain' is not supported: sizes has 'Q', which is not a dimension of it\nhelp: its dimensions are: N",
    ),
    (lambda c: S.auto(c.split().fusion), f"an automatic schedule of fusion 'chain' is not supported: it has a schedule already\nhelp: {NO_CALLS}"),
    (
        lambda c: S.auto(tf.Fusion("empty")),
        "an automatic schedule of fusion 'empty' is not supported: it has no outputs\nhelp: fusion.add_output(tensor)",
    ),
    (lambda c: S.fallback(c.split().fusion), f"a fallback schedule of fusion 'chain' is not supported: it has a schedule already\nhelp: {NO_CALLS}"),
    (
        lambda c: S.pointwise(c.fusion),
        "a pointwise schedule of fusion 'chain' is not supported: tv3 is a reduction\nhelp: tf.schedulers.auto asks other schedulers",
    ),
    (lambda c: tf.compile(untyped(c.a)), f"tf.compile of tv1: float32[N, 32] is not supported: it is not a fusion\nhelp: {ITS_FUSION}"),
    (lambda c: tf.compile(WRONG), "tf.compile of 'wrong' is not supported: it is not a fusion\nhelp: give a tf.Fusion"),
    (lambda c: tf.lower(untyped(c.a)), f"tf.lower of tv1: float32[N, 32] is not supported: it is not a fusion\nhelp: {ITS_FUSION}"),
    (lambda c: S.auto(untyped(c.a)), f"tf.schedulers.auto of tv1: float32[N, 32] is not supported: it is not a fusion\nhelp: {ITS_FUSION}"),
    (lambda c: S.tune(untyped(c.a)), f"tf.schedulers.tune of tv1: float32[N, 32] is not supported: it is not a fusion\nhelp: {ITS_FUSION}"),
    (lambda c: tf.horizontal(untyped(c.fusion)), "fusion 'horizontal': a Fusion is not a sequence of fusions\nhelp: give two or more in a list"),
    (lambda c: tf.horizontal([c.fusion, WRONG]), "fusion 'horizontal': 'wrong' is not a fusion\nhelp: give fusions, with or without schedules"),
    (lambda c: tf.horizontal([c.fusion, tf.Fusion("empty")]), "fusion 'horizontal': empty computes nothing\nhelp: leave it out"),
    (lambda c: tf.Fusion("empty").partition(), "fusion 'empty': it computes nothing\nhelp: add an output first"),
    (
        lambda c: S.tune(c.split().fusion, scheduler=S.pointwise),
        "a search for a schedule of fusion 'chain' is not supported: it has a schedule already\nhelp: tune a fusion without scheduling calls",
    ),
    (
        lambda c: S.tune(small(), SMALL, scheduler=S.pointwise),
        "a search for a schedule of fusion 'small' is not supported: its arguments are on the host\nhelp: pass arrays on a GPU, or a timer",
    ),
    (
        lambda c: S.tune(small(), SMALL, scheduler=S.pointwise, configs=[], timer=WRONG, remember=False),
        "a search for a schedule of fusion 'small' is not supported: configs= is empty\nhelp: leave it out: what the scheduler chooses from is measured then",
    ),
]


@pytest.mark.parametrize(
    ("call", "expected"),
    AUTOMATIC_SCHEDULES,
)
def test_automatic_schedules(call: Callable[[Chain], Any], expected: str) -> None:
    assert refused(lambda: call(Chain())) == expected


@pytest.mark.parametrize(
    ("kind", "wanted"),
    [
        ("matmul", "MatmulConfig"),
        ("simt_gemm", "SimtGemmConfig"),
        ("reduction", "RowConfig"),
        ("normalization", "RowConfig"),
        ("cat", "CatConfig"),
        ("transpose", "TransposeConfig"),
        ("pointwise", "PointwiseConfig"),
        ("fallback", "FallbackConfig"),
    ],
)
def test_what_no_scheduler_takes(kind: str, wanted: str) -> None:
    scheduler = getattr(S, kind)
    assert refused(lambda: scheduler(Chain().a)) == f"tf.schedulers.{kind} of tv1: float32[N, 32] is not supported: it is not a fusion\nhelp: {ITS_FUSION}"
    config = f"a {kind} schedule of fusion 'small' is not supported: config is 'wrong', not a {wanted}\nhelp: give a tf.schedulers.{wanted}, or None"
    assert refused(lambda: scheduler(small(), WRONG)) == config


def test_recompute_comes_before_inlining() -> None:
    with tf.Fusion("pair") as fusion:
        a = tf.exp(tf.define_tensor([4], name="x"))
        fusion.add_output(tf.sin(a))
    fusion.inline_most()
    assert refused(lambda: a.recompute(fusion.outputs)) == "recompute(tv1): tv1 is inlined into tv2 at 1\nhelp: recompute first, or tv1.inline_at(0)"


def test_a_task_that_is_refused_leaves_nothing() -> None:
    case = Case()
    refused(lambda: case.fusion.task([case.a, WRONG], "t"))
    assert case.a.task is None
    assert case.fusion.task([case.a], "t").tensors == [case.a]


def test_a_budget_belongs_to_a_role() -> None:
    case = Case()
    case.fusion.inline_most()
    case.fusion.task([case.b], "use").registers(40)
    assert (
        refused(lambda: tf.lower(case.fusion))
        == "cannot lower use: registers(40): it is not a member of a parallelized group\nhelp: give the budget to a role: a member of a vertical group"
    )


EXTENT = "use a name such as 'S' or an expression such as '4*S'"
OPERANDS = "use tensors, run-time scalars and Python numbers: float(x), int(x)"


OPS: list[tuple[Callable[[tf.TensorView], object], str]] = [
    (
        lambda x: tf.define_tensor(["N+"]),
        f"define_tensor: 'N+' is not an extent: line 1, column 3: expected an expression, found end of text\nhelp: {EXTENT}",
    ),
    (
        lambda x: tf.define_tensor([tf.dim("N", multiple_of=4)]),
        "fusion 'ops': dimension 'N' is given twice with different facts: tf.dim('N', min=0) and tf.dim('N', multiple_of=4)",
    ),
    (lambda x: tf.sum(x, HALF), "sum: 2.5 is not an axis\nhelp: use an axis in [-2, 1]"),
    (lambda x: tf.softmax(x, WRONG), "softmax: 'wrong' is not an axis\nhelp: use an axis in [-2, 1]"),
    (
        lambda x: untyped(np.ones(32, np.float32)) + x,
        "add: an array [32] is not an operand\nhelp: declare an input with tf.define_tensor, and give the array to the call",
    ),
    (lambda x: WRONG * x, f"mul: str is not an operand\nhelp: {OPERANDS}"),
]


@pytest.mark.parametrize(
    ("call", "expected"),
    OPS,
)
def test_ops(call: Callable[[tf.TensorView], Any], expected: str) -> None:
    with tf.Fusion("ops"):
        x = tf.define_tensor([tf.dim("N", min=0), 32], name="x")
        assert refused(lambda: call(x)) == expected


def test_one_extent_is_the_shape_of_a_vector() -> None:
    with tf.Fusion("shapes"):
        assert [repr(tf.define_tensor(shape).shape) for shape in (8, "NM", "4*S")] == ["(8,)", "(NM,)", "(4*S,)"]


def test_inputs_outside_of_a_fusion() -> None:
    expected = "fusion '?': no fusion is open here\nhelp: make inputs and constants inside `with tf.Fusion(...) as fusion:`"
    assert refused(lambda: tf.define_tensor([3])) == expected


def test_names_of_symbols() -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        tf.scalar.sym("a b")
    assert str(caught.value) == "'a b' is not a symbol name: letters, digits and _, in parts joined by dots"


def test_a_foreign_loop_that_may_be_empty() -> None:
    with tf.Fusion("empty") as fusion:
        x = tf.define_tensor([tf.dim("N", min=0), 8], name="x")
        w = tf.exp(tf.define_tensor([8], name="w"))
        y = x + w
        fusion.add_output(y)
    assert refused(lambda: y.propagate([w], upto=1)) == (
        "propagate(tv3): tv2 would share a loop over an axis that it lacks and whose extent N may be 0: it would not be computed at all\n"
        "help: declare the extent with tf.dim(..., min=1), or leave the target out"
    )


# -- arguments -------------------------------------------------------------------------------------------------------------------------


def scaled() -> tf.Fusion:
    with tf.Fusion("scaled") as fusion:
        x = tf.define_tensor(["4*S"], name="x")
        fusion.add_output(x * tf.define_scalar(tf.int8, name="k"))
    fusion.inline_most()
    return fusion


def test_extents_are_solved_by_kernels_as_by_fusions() -> None:
    fusion = scaled()
    x = np.arange(8, dtype=np.float32)
    for (found,) in (fusion.evaluate(x, 2), tf.lower(fusion).simulate(x, 2), tf.compile(fusion)(x, 2)):
        np.testing.assert_array_equal(found, 2 * x)
    assert refused(lambda: fusion.evaluate(x[:6], 2)) == "input 0 of fusion 'scaled': dimension 0 of x is 4*S, which cannot be 6"
    assert refused(lambda: tf.lower(fusion).simulate(x[:6], 2)) == "input 0 of fusion 'scaled': axis 0 of 'x' has extent 6, which 4*S cannot be"


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (300, "which cannot hold 300"),
        (2.5, "which cannot hold 2.5"),
        (np.int64(3), "got int64[]"),
        (np.zeros(2, np.int8), "got int8[2]"),
        ("3", "got <U1[]"),
        (None, "got object[]"),
    ],
)
def test_run_time_scalars(value: Any, reason: str) -> None:
    fusion = scaled()
    expected = f"input 1 of fusion 'scaled': k is int8, {reason}"
    x = np.zeros(4, np.float32)
    assert refused(lambda: fusion.evaluate(x, value)) == expected
    assert refused(lambda: tf.lower(fusion).simulate(x, value)) == expected


def test_the_byte_order_of_an_array() -> None:
    fusion = scaled()
    x = np.zeros(4, ">f4")
    help = "\nhelp: pass it converted to float32"
    assert refused(lambda: fusion.evaluate(x, 1)) == "input 0 of fusion 'scaled': x is float32, the array is >f4" + help
    assert refused(lambda: tf.lower(fusion).simulate(x, 1)) == "input 0 of fusion 'scaled': 'x' has dtype >f4, not float32" + help


# -- kernels ---------------------------------------------------------------------------------------------------------------------------


def test_faults_of_barriers_say_the_state() -> None:
    barrier = "MBARRIER m[2]"
    init = "IF threadIdx.x < 2:\n  INIT m[threadIdx.x] count 3\nSYNC block\n"
    assert error(kernel(init + "ARRIVE m[0]", barrier)) == (
        "k: mbarrier m[0]: 32 arrivals while 3 are pending\n"
        "note: statement: ARRIVE m[0]\n"
        "note: block (0, 0, 0), thread (0, 0, 0)\n"
        "note: phase 0: 3 arrivals expected, 0 bytes pending"
    )
    far = "ARRIVE m[threadIdx.x//8]"
    assert error(kernel(init.replace("3", "8") + far, barrier)) == (
        f"k: mbarrier 'm' has no slot 2\nnote: statement: {far}\nnote: block (0, 0, 0), thread (16, 0, 0)\nnote: slots 0..1"
    )


def test_bytes_of_a_barrier_are_bounded() -> None:
    cell = MbarrierCell("m[0]")
    cell.init(2, 0)
    with pytest.raises(Fault) as caught:
        cell.arrive(1, lambda agents: None, expect=1 << 20)
    assert caught.value.reason == "mbarrier m[0]: 1048576 bytes pending, outside -2^20+1..2^20-1"


def test_a_fault_of_a_collective_says_the_register() -> None:
    declarations = ("SHARED s: float16[8, 8, 8] align 16", "LOCAL a: float16[8]")
    store = "STMATRIX s[threadIdx.x//8, threadIdx.x % 8, 0] <- a[4]"
    assert error(kernel(store, *declarations)) == (
        "k: stmatrix needs 8 registers of Local 'a', which does not have them\n"
        f"note: statement: {store}\n"
        "note: block (0, 0, 0), thread (0, 0, 0)\n"
        "note: first register 4"
    )


def test_values_in_errors_are_short() -> None:
    assert errors.shown("x") == "'x'"
    assert errors.shown([0] * 26) == str([0] * 26)
    assert errors.shown(list(range(1000))) == "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19,... (list)"
    assert errors.shown(np.zeros((2, 2))) == "array([[0., 0.],        [0., 0.]])"


def test_errors_do_not_print_whole_lists_and_kernels() -> None:
    case, long = Case(), untyped(list(range(1000)))
    case.fusion.inline_most()
    kernel = untyped(tf.lower(case.fusion))
    calls = (
        lambda: tf.lower(long),
        lambda: tf.compile(kernel, backend=long),
        lambda: tf.schedulers.attention(kernel),
        lambda: tf.exp(long),
        lambda: tf.cast(case.x, kernel),
        lambda: case.b.split(kernel, 4),
        lambda: case.b.axis(0).parallelize(kernel),
        lambda: case.fusion.task([kernel]),
        lambda: case.fusion.add_output(long),
        lambda: kernel.simulate(long, seed=kernel),
    )
    for call in calls:
        assert max(map(len, refused(call).splitlines())) < 200
