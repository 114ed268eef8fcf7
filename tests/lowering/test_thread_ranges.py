"""Extents, boxes and ranges: laws 5, 6, 7 and 9, each with a passing and a contrasting case."""

import pytest

import taskfuse as tf
from taskfuse import MemoryType
from taskfuse import ParallelType as P
from taskfuse.errors import LoweringError
from taskfuse.ir.tensor import AxisRef
from tests.lowering.running import Measured, agree, agrees, bind, body, conditions, numbers, refused


def branches(*extents: int | str, length: int | str = 4) -> tuple[tf.Fusion, list[tf.TensorView]]:
    """Independent outputs [extent, length], not bound."""
    with tf.Fusion("branches") as fusion:
        outs = [tf.neg(tf.define_tensor([e, length])) for e in extents]
        for o in outs:
            fusion.add_output(o)
    return fusion, outs


def side_by_side(ptype: P, *extents: int, other: P | None = None) -> tf.Fusion:
    """A task per extent, its outer axis bound to ``ptype``, the tasks a group parallelized on it."""
    fusion, outs = branches(*extents)
    for o in outs:
        bind(o, ptype, other or P.Serial)
    fusion.group([fusion.task([o]) for o in outs]).parallelize(ptype)
    return fusion


# -- law 5: extents -----------------------------------------------------------------------------------------------------------------


def test_the_extent_of_a_task_is_the_largest_of_its_tensors() -> None:
    fusion, (a, b) = branches(3, 5)
    bind(a, P.TIDx)
    bind(b, P.TIDx)
    fusion.task([a, b], "t")
    m = Measured(fusion)
    assert m.extent("t", P.TIDx) == "5"
    assert m.extent("t", P.TIDy) is None
    assert m.launch() == ("5", "1", "1")
    kernel = agrees(fusion, numbers(3, 4), numbers(5, 4))
    assert conditions(kernel) == [["threadIdx.x < 3"]]


def test_digits_multiply_and_separate_types_do_not() -> None:
    fusion, (a,) = branches(3)
    bind(a, P.TIDx, P.TIDx)
    fusion.task([a], "t")
    assert Measured(fusion).extent("t", P.TIDx) == "12"
    other, (b,) = branches(3)
    bind(b, P.TIDx, P.TIDy)
    other.task([b], "t")
    m = Measured(other)
    assert (m.extent("t", P.TIDx), m.extent("t", P.TIDy)) == ("3", "4")
    assert "neg(tv0[threadIdx.x//4, threadIdx.x % 4])" in str(agrees(fusion, numbers(3, 4)))
    agrees(other, numbers(3, 4))


def test_an_allocation_axis_binds_its_task_where_no_loop_axis_does() -> None:
    def build(spread: bool) -> tf.Fusion:
        with tf.Fusion("spread") as fusion:
            a = tf.neg(tf.define_tensor([8]))
            fusion.add_output(tf.copy(a))
        a.split(0, 2)
        a.set_allocation_domain(a.logical)
        if spread:
            AxisRef(a, a.logical[0]).parallelize(P.TIDx)
        fusion.task([a], "ta")
        return fusion

    assert Measured(build(True)).extent("ta", P.TIDx) == "8"
    assert Measured(build(False)).extent("ta", P.TIDx) is None


def test_an_extent_of_0_counts_1() -> None:
    fusion, (a, b) = branches(0, 2)
    bind(a, P.TIDx)
    bind(b, P.TIDx)
    fusion.group([fusion.task([a], "ta"), fusion.task([b], "tb")]).parallelize(P.TIDx)
    m = Measured(fusion)
    assert (m.extent("ta", P.TIDx), m.launch()[0]) == ("1", "3")
    agrees(fusion, numbers(0, 4), numbers(2, 4))


def test_a_parallelized_group_sums_and_any_other_takes_the_largest() -> None:
    side = side_by_side(P.TIDy, 3, 5, 2)
    assert Measured(side).extent("group1", P.TIDy) == "10"
    fusion, outs = branches(3, 5, 2)
    for o in outs:
        bind(o, P.TIDy)
    fusion.group([fusion.task([o]) for o in outs])
    assert Measured(fusion).extent("group1", P.TIDy) == "5"
    agrees(side, *(numbers(n, 4) for n in (3, 5, 2)))
    agrees(fusion, *(numbers(n, 4) for n in (3, 5, 2)))


def test_an_unbound_member_counts_1_in_a_sum_and_nothing_in_a_maximum() -> None:
    def build(parallel: bool) -> Measured:
        fusion, (a, b) = branches(3, 5)
        bind(a, P.TIDy)
        g = fusion.group([fusion.task([a], "ta"), fusion.task([b], "tb")], "g")
        if parallel:
            g.parallelize(P.TIDy)
        agrees(fusion, numbers(3, 4), numbers(5, 4))
        return Measured(fusion)

    m = build(True)
    assert (m.extent("tb", P.TIDy), m.extent("g", P.TIDy)) == (None, "4")
    m = build(False)
    assert (m.extent("tb", P.TIDy), m.extent("g", P.TIDy)) == (None, "3")


def test_a_group_of_unbound_members_is_unbound_unless_it_is_parallelized() -> None:
    def build(parallel: bool) -> Measured:
        fusion, (a, b) = branches(3, 5)
        g = fusion.group([fusion.task([a]), fusion.task([b])], "g")
        if parallel:
            g.parallelize(P.TIDy)
        return Measured(fusion)

    assert build(False).extent("g", P.TIDy) is None
    assert build(True).extent("g", P.TIDy) == "2"


def test_extents_may_be_symbolic_and_facts_simplify_them() -> None:
    with tf.Fusion("s") as fusion:
        x = tf.define_tensor([tf.dim("N", multiple_of=8), 4])
        a = tf.neg(x)
        fusion.add_output(a)
    a.split(0, 8)
    bind(a, P.BIDx, P.TIDx)
    kernel = agrees(fusion, numbers(24, 4))
    assert str(kernel.grid[0]) == "N//8"
    assert conditions(kernel) == []
    with tf.Fusion("s") as plain:
        x = tf.define_tensor(["N", 4])
        a = tf.neg(x)
        plain.add_output(a)
    a.split(0, 8)
    bind(a, P.BIDx, P.TIDx)
    kernel = agrees(plain, numbers(21, 4))
    assert str(kernel.grid[0]) == "ceildiv(N, 8)"
    assert conditions(kernel) == [["8*blockIdx.x + threadIdx.x < N"]]


def test_a_block_has_at_most_1024_threads() -> None:
    agrees(side_by_side(P.TIDy, 200, 56, other=P.TIDx), numbers(200, 4), numbers(56, 4), interleavings=(tf.Interleaving.ROUND_ROBIN,))
    assert refused(lambda: tf.lower(side_by_side(P.TIDy, 201, 56, other=P.TIDx)), LoweringError) == (
        "cannot lower branches: a block would have 4 * 257 * 1 threads, at least 1028; 1024 are possible\n"
        "note: tv1 of t1 binds 4 to TIDx\n"
        "note: tv3 of t2 binds 4 to TIDx\n"
        "note: group1 is parallel on TIDy: t1 201, t2 56\n"
        "note: tv1 of t1 binds 201 to TIDy\n"
        "note: tv3 of t2 binds 56 to TIDy\n"
        "help: bind fewer or smaller axes to thread indices: split them, and leave the outer part Serial"
    )


def test_a_block_has_at_most_64_threads_along_z() -> None:
    agrees(side_by_side(P.TIDz, 60, 4, other=P.TIDx), numbers(60, 4), numbers(4, 4), interleavings=(tf.Interleaving.ROUND_ROBIN,))
    assert refused(lambda: tf.lower(side_by_side(P.TIDz, 61, 4, other=P.TIDx)), LoweringError) == (
        "cannot lower branches: a block would have 65 threads along TIDz, at least 65; 64 are possible\n"
        "note: group1 is parallel on TIDz: t1 61, t2 4\n"
        "note: tv1 of t1 binds 61 to TIDz\n"
        "note: tv3 of t2 binds 4 to TIDz\n"
        "help: bind fewer or smaller axes to TIDz: split them, and leave the outer part Serial"
    )


@pytest.mark.parametrize(("members", "padded"), [(2, True), (3, False)])
def test_members_are_not_rounded_up_where_a_block_would_get_too_large(members: int, padded: bool) -> None:
    with tf.Fusion("chain") as fusion:
        tensors = [tf.neg(tf.define_tensor([5], name="x"))]
        while len(tensors) < members:
            tensors.append(tf.neg(tensors[-1]))
        fusion.add_output(tensors[-1])
    fusion.inline_most()
    fusion.group([fusion.task([tv]) for tv in tensors]).parallelize(P.TIDz)
    kernel = agrees(fusion, numbers(5))
    assert str(kernel.block[2]) == str(32 * members if padded else members)


def test_members_of_unknown_extent_are_not_rounded_up_along_z() -> None:
    """34 threads fit where twice two warps would not."""

    def build(ptype: P, **facts: int) -> tf.Fusion:
        with tf.Fusion("unknown") as fusion:
            x = tf.define_tensor([tf.dim("N", **facts)], name="x")
            a = tf.neg(x)
            b = tf.neg(a)
            fusion.add_output(b)
        bind(b, ptype)
        fusion.group([fusion.task([a]), fusion.task([b])]).parallelize(ptype)
        return fusion

    assert str(agrees(build(P.TIDz), numbers(33)).block[2]) == "N + 1"
    assert str(agrees(build(P.TIDz, max=32), numbers(31)).block[2]) == "64"
    assert str(agrees(build(P.TIDy), numbers(33)).block[1]) == "32*ceildiv(N, 32) + 32"


# -- law 6: boxes and ranges -------------------------------------------------------------------------------------------------------


def test_boxes_of_a_parallelized_group_follow_each_other() -> None:
    fusion = side_by_side(P.TIDy, 3, 5, 2)
    m = Measured(fusion)
    assert [m.box(t, P.TIDy) for t in ("t1", "t2", "t3")] == [("0", "3"), ("3", "5"), ("8", "2")]
    assert [m.range(t, P.TIDy) for t in ("t1", "t2", "t3")] == [("0", "3"), ("3", "5"), ("8", "2")]
    assert conditions(agrees(fusion, *(numbers(n, 4) for n in (3, 5, 2)))) == [
        [
            "threadIdx.y >= 0 && threadIdx.y < 3",
            "threadIdx.y - 3 >= 0 && threadIdx.y - 3 < 5",
            "threadIdx.y - 8 >= 0 && threadIdx.y - 8 < 2",
        ]
    ]


def test_boxes_of_any_other_group_start_where_it_starts_and_smaller_members_are_guarded() -> None:
    fusion, outs = branches(3, 5)
    for o in outs:
        bind(o, P.TIDy)
    fusion.group([fusion.task([o]) for o in outs])
    m = Measured(fusion)
    assert [m.box(t, P.TIDy) for t in ("t1", "t2")] == [("0", "5"), ("0", "5")]
    assert [m.range(t, P.TIDy) for t in ("t1", "t2")] == [("0", "3"), ("0", "5")]
    assert conditions(agrees(fusion, numbers(3, 4), numbers(5, 4))) == [["threadIdx.y < 3"]]


def test_indices_count_from_the_start_of_the_region() -> None:
    fusion = side_by_side(P.BIDx, 3, 5)
    text = body(agrees(fusion, numbers(3, 4), numbers(5, 4)))
    assert "tv1[blockIdx.x, i1] = neg(tv0[blockIdx.x, i1])" in text
    assert "tv3[blockIdx.x - 3, i3] = neg(tv2[blockIdx.x - 3, i3])" in text


def unbound_producer(memory: MemoryType | None, ptype: P) -> tf.Fusion:
    """ta makes a scalar row, unbound on ``ptype``; tb reads it on 5 indices."""
    with tf.Fusion("unbound") as fusion:
        x, y = tf.define_tensor([4]), tf.define_tensor([5, 4])
        a = tf.neg(x)
        b = tf.add(a, y)
        fusion.add_output(b)
    if memory is not None:
        a.set_memory_type(memory)
    bind(a, P.Unroll)
    bind(b, ptype, P.Unroll)
    fusion.task([a], "ta")
    fusion.task([b], "tb")
    return fusion


@pytest.mark.parametrize(
    ("memory", "ptype", "replicated"),
    [
        (None, P.TIDy, True),
        (MemoryType.Local, P.TIDy, True),
        (MemoryType.Shared, P.TIDy, False),
        (MemoryType.Global, P.TIDy, False),
        (None, P.BIDx, True),
        (MemoryType.Local, P.BIDx, True),
        (MemoryType.Shared, P.BIDx, True),
        (MemoryType.Global, P.BIDx, False),
    ],
)
def test_an_unbound_node_is_replicated_if_another_reads_its_private_memory_else_it_runs_on_the_first_index(
    memory: MemoryType | None, ptype: P, replicated: bool
) -> None:
    fusion = unbound_producer(memory, ptype)
    assert Measured(fusion).range("ta", ptype) == ("0", "5" if replicated else "1")
    agrees(fusion, numbers(4), numbers(5, 4))


def test_stores_to_memory_that_is_not_private_happen_at_the_first_index_only() -> None:
    def build(output: bool) -> tf.Fusion:
        with tf.Fusion("first") as fusion:
            x, y = tf.define_tensor([4]), tf.define_tensor([5, 4])
            a = tf.neg(x)
            c = tf.abs(a) if output else tf.add(a, 1.0)
            b = tf.add(a, y)
            fusion.add_output(b)
            if output:
                fusion.add_output(c)
            else:
                fusion.add_output(tf.add(c, y))
        for tv in fusion.tensors():
            if not tv.is_input:
                bind(tv, *((P.TIDy, P.Unroll) if tv.ndim == 2 else (P.Unroll,)))
        return fusion

    kernel = agrees(build(True), numbers(4), numbers(5, 4))
    assert conditions(kernel) == [["threadIdx.y == 0"]]
    assert conditions(agrees(build(False), numbers(4), numbers(5, 4))) == []


def test_a_boundary_is_not_read_from_private_memory_on_its_groups_type() -> None:
    """Unset memory counts as Local, except for a boundary of a group parallelized on the type."""

    def build(vertical: bool) -> Measured:
        fusion = unbound_producer(None, P.TIDy)
        g = fusion.group(list(fusion.tasks.root.members), "g")
        if vertical:
            g.parallelize(P.TIDy)
        agrees(fusion, numbers(4), numbers(5, 4))
        return Measured(fusion)

    m = build(False)
    assert m.range("ta", P.TIDy) == ("0", "5")
    m = build(True)
    assert m.box("ta", P.TIDy) == ("0", "32")  # law 9: a warp of its own
    assert m.range("ta", P.TIDy) == ("0", "32")
    assert m.range("tb", P.TIDy) == ("32", "32")


def test_an_unbound_member_on_its_groups_type_runs_on_one_index() -> None:
    """In a group parallelized on p its own slice is one index wide, however many its parent has."""
    fusion, (a, b) = branches(3, 5)
    bind(b, P.TIDy)
    fusion.group([fusion.task([a], "ta"), fusion.task([b], "tb")]).parallelize(P.TIDy)
    m = Measured(fusion)
    assert (m.box("ta", P.TIDy), m.box("tb", P.TIDy)) == (("0", "1"), ("1", "5"))
    assert conditions(agrees(fusion, numbers(3, 4), numbers(5, 4))) == [["threadIdx.y == 0", "threadIdx.y - 1 >= 0 && threadIdx.y - 1 < 5"]]


def test_a_value_reduced_over_a_thread_axis_is_replicated() -> None:
    def build(same: bool) -> tf.Fusion:
        with tf.Fusion("reduced") as fusion:
            x = tf.define_tensor([4, 8])
            s = tf.sum(x, 1)
            y = tf.sub(x, tf.expand_dims(s, 1))
            fusion.add_output(y)
        bind(s, P.TIDy, P.TIDx)
        bind(y, *((P.TIDy, P.TIDx) if same else (P.TIDx, P.TIDy)))
        return fusion

    assert "SHARED tv1:" not in str(agrees(build(True), numbers(4, 8)))
    assert "SHARED tv1:" in str(agrees(build(False), numbers(4, 8)))


# -- law 7: nesting -----------------------------------------------------------------------------------------------------------------


def test_one_type_at_three_levels() -> None:
    fusion, outs = branches(3, 5, 2, 4)
    for o in outs:
        bind(o, P.TIDy)
    t = [fusion.task([o]) for o in outs]
    inner = fusion.group(t[:2], "inner")
    middle = fusion.group([inner, t[2]], "middle")
    outer = fusion.group([middle, t[3]], "outer")
    for g in (inner, middle, outer):
        g.parallelize(P.TIDy)
    m = Measured(fusion)
    assert [m.extent(n, P.TIDy) for n in ("inner", "middle", "outer")] == ["8", "10", "14"]
    assert [m.box(n, P.TIDy) for n in ("t1", "t2", "t3", "t4")] == [("0", "3"), ("3", "5"), ("8", "2"), ("10", "4")]
    assert m.box("inner", P.TIDy) == ("0", "8")
    agrees(fusion, *(numbers(n, 4) for n in (3, 5, 2, 4)))


def test_one_type_at_two_levels_with_an_unparallelized_group_between() -> None:
    fusion, outs = branches(3, 5, 2, 4)
    for o in outs:
        bind(o, P.TIDy)
    t = [fusion.task([o]) for o in outs]
    inner = fusion.group(t[:2], "inner")
    middle = fusion.group([inner, t[2]], "middle")
    outer = fusion.group([middle, t[3]], "outer")
    inner.parallelize(P.TIDy)
    outer.parallelize(P.TIDy)
    m = Measured(fusion)
    assert [m.extent(n, P.TIDy) for n in ("inner", "middle", "outer")] == ["8", "8", "12"]
    assert [m.box(n, P.TIDy) for n in ("t1", "t2", "t3", "t4")] == [("0", "3"), ("3", "5"), ("0", "8"), ("8", "4")]
    agrees(fusion, *(numbers(n, 4) for n in (3, 5, 2, 4)))


def test_horizontal_in_vertical_in_horizontal_on_mixed_types() -> None:
    with tf.Fusion("nest") as fusion:
        x, y, z = tf.define_tensor([3, 4]), tf.define_tensor([5, 4]), tf.define_tensor([6, 4])
        a, b = tf.neg(x), tf.add(y, 1.0)
        c = tf.cat([a, b], dim=0)
        d = tf.neg(z)
        fusion.add_output(c)
        fusion.add_output(d)
    for tv in (a, b, c, d):
        bind(tv, P.TIDy, P.TIDx)
    h = fusion.group([fusion.task([a], "ta"), fusion.task([b], "tb")], "h")
    v = fusion.group([h, fusion.task([c], "tc")], "v")
    top = fusion.group([v, fusion.task([d], "td")], "top")
    h.parallelize(P.TIDy)
    v.parallelize(P.TIDz)
    top.parallelize(P.BIDx)
    m = Measured(fusion)
    assert [m.extent("h", P.TIDy), m.extent("v", P.TIDy), m.extent("top", P.TIDy)] == ["8", "8", "8"]
    assert (m.box("v", P.BIDx), m.box("td", P.BIDx)) == (("0", "1"), ("1", "1"))
    assert (m.box("h", P.TIDz), m.box("tc", P.TIDz), m.range("td", P.TIDz)) == (("0", "1"), ("1", "1"), ("0", "1"))
    agrees(fusion, numbers(3, 4), numbers(5, 4), numbers(6, 4))


# -- law 9: whole warps -------------------------------------------------------------------------------------------------------------


def pipeline(*shape: int, other: P = P.TIDz, ptypes: tuple[P, ...] = (P.Serial, P.TIDx)) -> tf.Fusion:
    """load -> compute through a channel, the group on ``other``."""
    with tf.Fusion("pipeline") as fusion:
        x = tf.define_tensor(list(shape))
        a = tf.neg(x)
        b = tf.add(a, 1.0)
        fusion.add_output(b)
    bind(a, *ptypes)
    bind(b, *ptypes)
    fusion.group([fusion.task([a], "load"), fusion.task([b], "compute")], "g").parallelize(other)
    return fusion


def test_members_that_wait_are_padded_to_warps() -> None:
    fusion = pipeline(2, 8)
    m = Measured(fusion)
    assert m.launch() == ("8", "1", "8")
    assert [m.box(n, P.TIDz) for n in ("load", "compute")] == [("0", "4"), ("4", "4")]
    assert m.aligned("load")
    kernel = agrees(fusion, numbers(2, 8))
    assert "INIT ch0.full[0] count 1" in str(kernel)


def test_members_that_do_not_wait_are_not_padded() -> None:
    m = Measured(side_by_side(P.TIDy, 3, 5, other=P.TIDx))
    assert m.launch() == ("4", "8", "1")


def test_no_padding_where_the_threads_below_do_not_divide_a_warp() -> None:
    fusion = pipeline(2, 12)
    m = Measured(fusion)
    assert m.launch() == ("12", "1", "2")
    assert not m.aligned("load")
    kernel = agrees(fusion, numbers(2, 12))
    assert "INIT ch0.full[0] count 12" in str(kernel)


def test_no_padding_where_the_threads_below_are_symbolic() -> None:
    with tf.Fusion("pipeline") as fusion:
        x = tf.define_tensor([2, "N"])
        a = tf.neg(x)
        b = tf.add(a, 1.0)
        fusion.add_output(b)
    bind(a, P.Serial, P.TIDx)
    bind(b, P.Serial, P.TIDx)
    fusion.group([fusion.task([a], "load"), fusion.task([b], "compute")]).parallelize(P.TIDz)
    m = Measured(fusion)
    assert m.launch() == ("N", "1", "2")
    assert not m.aligned("load")
    kernel = agrees(fusion, numbers(2, 8))
    assert "INIT ch0.full[0] count N" in str(kernel)
    agree(kernel, fusion, numbers(2, 32))


def test_a_register_budget_pads_to_warpgroups() -> None:
    plain, budgeted = pipeline(2, 32), pipeline(2, 32)
    next(n for n in budgeted.tasks.nodes if n.name == "load").registers(24)
    assert Measured(plain).launch() == ("32", "1", "2")
    m = Measured(budgeted)
    assert m.launch() == ("32", "1", "8")
    assert [m.range(n, P.TIDz) for n in ("load", "compute")] == [("0", "4"), ("4", "4")]
    assert m.aligned("load", 128)
    agrees(budgeted, numbers(2, 32), interleavings=(tf.Interleaving.LOW_FIRST, tf.Interleaving.HIGH_FIRST))


def test_padded_threads_belong_to_no_member() -> None:
    fusion = pipeline(2, 8, ptypes=(P.Serial, P.TIDx), other=P.TIDx)
    m = Measured(fusion)
    assert m.launch() == ("64", "1", "1")
    assert [m.box(n, P.TIDx) for n in ("load", "compute")] == [("0", "32"), ("32", "32")]
    kernel = agrees(fusion, numbers(2, 8))
    assert "IF threadIdx.x < 8:" in str(kernel)
    assert "IF threadIdx.x - 32 < 8:" in str(kernel)


def test_alignment_looks_at_the_lowest_dimension_that_a_region_does_not_span() -> None:
    def build(x: int, y: int) -> Measured:
        with tf.Fusion("aligned") as fusion:
            a = tf.neg(tf.define_tensor([y, x]))
            b = tf.neg(tf.define_tensor([y, 2 * x]))
            fusion.add_output(a)
            fusion.add_output(b)
        for tv in (a, b):
            bind(tv, P.TIDy, P.TIDx)
        fusion.task([a], "narrow")
        fusion.task([b], "wide")
        return Measured(fusion)

    assert build(32, 2).aligned("narrow")  # 0..31 of 64, in both rows
    assert build(32, 2).aligned("wide")
    assert not build(16, 2).aligned("narrow")  # 0..15 of 32: half a warp
    assert build(16, 2).aligned("wide")
    assert not build(8, 3).aligned("wide")  # 48 threads
    assert build(32, 2).aligned("wide", 128)
    assert not build(32, 2).aligned("narrow", 128)
