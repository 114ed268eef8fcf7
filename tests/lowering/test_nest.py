"""Where dispatch stands, its conditions, and unparallelized groups in sequence: law 8."""

import taskfuse as tf
from taskfuse import ParallelType as P
from taskfuse.kir import walk
from taskfuse.kir.nodes import For, If, Stmt
from tests.lowering.running import agrees, bind, body, conditions, numbers


def two(*ptypes: P, extents: tuple[int, int] = (3, 3), length: int = 4) -> tuple[tf.Fusion, list[tf.TensorView]]:
    """Two independent outputs with equal bindings."""
    with tf.Fusion("two") as fusion:
        outs = [tf.neg(tf.define_tensor([e, length], name=f"x{k}")) for k, e in enumerate(extents)]
        for o in outs:
            fusion.add_output(o)
    for o in outs:
        bind(o, *ptypes)
    return fusion, outs


def shared_loop(consumers: P, group: P) -> tf.Fusion:
    """A producer inlined at a loop of extent 3 into two consumers, which are members of a horizontal group."""
    with tf.Fusion("shared") as fusion:
        x = tf.define_tensor([3, 4], name="x")
        a = tf.neg(x)
        b, c = tf.add(a, 1.0), tf.add(a, 2.0)
        fusion.add_output(b)
        fusion.add_output(c)
    for tv in (a, b, c):
        bind(tv, consumers, P.TIDx)
    fusion.task([a], "ta")
    g = fusion.group([fusion.task([b], "tb"), fusion.task([c], "tc")], "g")
    fusion.inline_most([a])
    g.parallelize(group)
    return fusion


def inside_loops(root: tuple[Stmt, ...]) -> list[If]:
    return [s for f in walk(root) if isinstance(f, For) for s in walk(f.body) if isinstance(s, If) and len(s.branches) > 1]


# -- where a horizontal dispatch stands ---------------------------------------------------------------------------------------------


def test_a_horizontal_dispatch_stands_inside_common_loops() -> None:
    fusion = shared_loop(P.Serial, P.TIDy)
    kernel = agrees(fusion, numbers(3, 4))
    assert len(inside_loops(kernel.body)) == 1
    assert sum(isinstance(s, For) for s in walk(kernel)) == 1


def test_a_horizontal_dispatch_stands_inside_common_loops_bound_to_another_type_and_outside_those_bound_to_its_own() -> None:
    other = body(agrees(shared_loop(P.BIDx, P.TIDy), numbers(3, 4)))
    assert other.index("FOR blockIdx.x in BIDx{3}") < other.index("# tb") < other.index("# tc")
    assert other.count("BIDx{3}") == 1
    own = body(agrees(shared_loop(P.TIDy, P.TIDz), numbers(3, 4)))
    assert own.count("TIDy{3}") == 1

    fusion, _ = two(P.TIDy, P.TIDx)
    fusion.group([fusion.task([tv]) for tv in fusion.outputs]).parallelize(P.TIDy)
    text = body(agrees(fusion, numbers(3, 4), numbers(3, 4)))
    assert text.index("# t1") < text.index("TIDy{3}") < text.index("# t2")
    assert text.count("TIDy{3}") == 2


def test_loops_that_members_do_not_share_stand_in_their_arms() -> None:
    fusion, _ = two(P.Serial, P.TIDx)
    fusion.group([fusion.task([tv]) for tv in fusion.outputs]).parallelize(P.TIDy)
    kernel = agrees(fusion, numbers(3, 4), numbers(3, 4))
    assert inside_loops(kernel.body) == []
    assert sum(isinstance(s, For) for s in walk(kernel)) == 2


# -- where a vertical dispatch stands -----------------------------------------------------------------------------------------------


def pipeline(*ptypes: P, stages: int = 2) -> tf.Fusion:
    """load -> compute over [3, 5, 4], all inlined, on TIDz."""
    with tf.Fusion("pipeline") as fusion:
        x = tf.define_tensor([3, 5, 4], name="x")
        a = tf.neg(x)
        b = tf.add(a, 1.0)
        fusion.add_output(b)
    bind(a, *ptypes)
    bind(b, *ptypes)
    fusion.group([fusion.task([a], "load"), fusion.task([b], "compute")], "g").parallelize(P.TIDz)
    a.inline_at(2)
    a.circular_buffer(stages)
    return fusion


def test_a_vertical_dispatch_stands_outside_serial_loops_which_each_role_copies() -> None:
    kernel = agrees(pipeline(P.Serial, P.Serial, P.TIDx), numbers(3, 5, 4))
    assert inside_loops(kernel.body) == []
    assert [str(s.stop) for s in walk(kernel) if isinstance(s, For)] == ["3", "5", "3", "5"]


def test_a_vertical_dispatch_stands_inside_bound_loops_as_long_as_no_serial_loop_is_outside() -> None:
    text = body(agrees(pipeline(P.BIDx, P.Serial, P.TIDx), numbers(3, 5, 4)))
    assert text.count("BIDx{3}") == 1
    assert text.index("BIDx{3}") < text.index("# load") < text.index("in 0..5") < text.index("# compute")
    text = body(agrees(pipeline(P.Serial, P.BIDx, P.TIDx), numbers(3, 5, 4)))
    assert text.count("BIDx{5}") == 2
    assert text.index("# load") < text.index("in 0..3") < text.index("BIDx{5}") < text.index("# compute")


def test_a_vertical_dispatch_stands_outside_loops_bound_to_its_own_type() -> None:
    with tf.Fusion("own") as fusion:
        x = tf.define_tensor([3, 4], name="x")
        a = tf.neg(x)
        b = tf.add(a, 1.0)
        fusion.add_output(b)
    for tv in (a, b):
        bind(tv, P.TIDx, P.Serial)
    fusion.group([fusion.task([a], "load"), fusion.task([b], "compute")]).parallelize(P.TIDx)
    a.inline_at(1)
    text = body(agrees(fusion, numbers(3, 4)))
    assert text.index("# load") < text.index("FOR threadIdx.x in TIDx{3}") < text.index("# compute") < text.index("FOR threadIdx.x - 32 in TIDx{3}")


# -- guards -------------------------------------------------------------------------------------------------------------------------


def test_conditions_of_one_index_and_of_several() -> None:
    fusion, _ = two(P.TIDy, P.TIDx, extents=(1, 3))
    fusion.group([fusion.task([tv]) for tv in fusion.outputs]).parallelize(P.TIDy)
    assert conditions(agrees(fusion, numbers(1, 4), numbers(3, 4))) == [["threadIdx.y == 0", "threadIdx.y - 1 >= 0 && threadIdx.y - 1 < 3"]]


def test_the_guard_of_a_region_stands_inside_its_arm() -> None:
    fusion, (a, b) = two(P.Serial, P.TIDx)
    for o in (a, b):
        o.axis(0).parallelize(P.TIDy)
    fusion.group([fusion.task([a], "ta"), fusion.task([b], "tb")], "g").parallelize(P.TIDz)
    with fusion:
        c = tf.neg(tf.define_tensor([7, 4], name="y"))
        fusion.add_output(c)
    bind(c, P.TIDy, P.TIDx)
    fusion.task([c], "tc")
    kernel = agrees(fusion, numbers(3, 4), numbers(3, 4), numbers(7, 4))
    assert conditions(kernel) == [["threadIdx.y < 3"], ["threadIdx.z == 0", "threadIdx.z == 1"], ["threadIdx.z == 0"]]


def test_a_member_smaller_than_its_box_is_guarded_inside_the_dispatch() -> None:
    with tf.Fusion("guard") as fusion:
        outs = [tf.neg(tf.define_tensor([e, 4], name=f"x{e}")) for e in (2, 5, 3)]
        for o in outs:
            fusion.add_output(o)
            bind(o, P.TIDy, P.TIDx)
    t = [fusion.task([o]) for o in outs]
    inner = fusion.group(t[:2])
    fusion.group([inner, t[2]]).parallelize(P.TIDy)
    kernel = agrees(fusion, numbers(2, 4), numbers(5, 4), numbers(3, 4))
    assert conditions(kernel) == [["threadIdx.y >= 0 && threadIdx.y < 5", "threadIdx.y - 5 >= 0 && threadIdx.y - 5 < 3"], ["threadIdx.y < 2"]]


# -- groups that are not parallelized -----------------------------------------------------------------------------------------------


def test_an_unparallelized_group_runs_its_members_one_after_another() -> None:
    fusion, outs = two(P.TIDy, P.TIDx)
    fusion.group([fusion.task([o]) for o in outs])
    kernel = agrees(fusion, numbers(3, 4), numbers(3, 4))
    assert conditions(kernel) == []
    text = body(kernel)
    assert text.index("neg(x0") < text.index("neg(x1")


def test_members_in_sequence_share_a_loop_that_encloses_both() -> None:
    with tf.Fusion("sequence") as fusion:
        x = tf.define_tensor([3, 4], name="x")
        a = tf.neg(x)
        b = tf.add(a, 1.0)
        fusion.add_output(b)
    bind(a, P.Serial, P.TIDx)
    bind(b, P.Serial, P.TIDx)
    fusion.group([fusion.task([a]), fusion.task([b])])
    a.inline_at(1)
    kernel = agrees(fusion, numbers(3, 4))
    assert sum(isinstance(s, For) for s in walk(kernel)) == 1


def test_a_parallelized_group_in_a_sequence_is_dispatched_in_its_place() -> None:
    with tf.Fusion("place") as fusion:
        x = tf.define_tensor([3, 4], name="x")
        a = tf.neg(x)
        b, c = tf.add(a, 1.0), tf.add(a, 2.0)
        d = tf.add(b, c)
        fusion.add_output(d)
    for tv in (a, b, c, d):
        bind(tv, P.TIDy, P.TIDx)
    ta = fusion.task([a], "ta")
    g = fusion.group([fusion.task([b], "tb"), fusion.task([c], "tc")], "g")
    g.parallelize(P.TIDy)
    fusion.group([ta, g, fusion.task([d], "td")], "all")
    text = body(agrees(fusion, numbers(3, 4)))
    assert text.index("neg(x") < text.index("# tb") < text.index("# tc") < text.index(f"{d.name}[")


def test_a_group_of_one_member_is_a_dispatch_with_one_arm() -> None:
    fusion, (a, _) = two(P.TIDx, P.Serial, extents=(3, 5))
    fusion.group([fusion.task([a], "ta")], "g").parallelize(P.TIDx)
    kernel = agrees(fusion, numbers(3, 4), numbers(5, 4))
    assert conditions(kernel) == [["threadIdx.x < 3"], ["threadIdx.x >= 0 && threadIdx.x < 3"]]


def test_blocks_dispatch_like_threads() -> None:
    fusion, outs = two(P.BIDx, P.TIDx, extents=(2, 5))
    fusion.group([fusion.task([o]) for o in outs]).parallelize(P.BIDx)
    kernel = agrees(fusion, numbers(2, 4), numbers(5, 4))
    assert str(kernel.grid[0]) == "7"
    assert conditions(kernel) == [["blockIdx.x >= 0 && blockIdx.x < 2", "blockIdx.x - 2 >= 0 && blockIdx.x - 2 < 5"]]


def test_the_note_says_what_orders_the_data() -> None:
    text = str(tf.lower(pipeline(P.Serial, P.Serial, P.TIDx)))
    assert "# g: vertical on TIDz; no data enters; no data leaves" in text
    text = str(tf.lower(shared_loop(P.Serial, P.TIDy)))
    assert "# g: horizontal on TIDy; what enters stays with its thread; no data leaves" in text
