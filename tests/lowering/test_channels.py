"""Channels of vertical groups: endpoints, merging, arrival counts, stages and trips, copies of boundaries, nesting, distribution and turns."""

import pytest

import taskfuse as tf
from taskfuse import MemoryType
from taskfuse import ParallelType as P
from taskfuse.errors import LoweringError
from taskfuse.kir import walk
from taskfuse.kir.nodes import For
from taskfuse.kir.synchronization import Advance, Arrive, CursorInit, InitBarrier, Wait
from tests.lowering.faults import missed
from tests.lowering.running import agrees, bind, body, buffer, numbers, refused
from tests.thinning import in_turn

S, TX, TY, TZ, BX = P.Serial, P.TIDx, P.TIDy, P.TIDz, P.BIDx


def channels(kernel: tf.Kernel) -> dict[str, int]:
    """Channel -> slots."""
    return {m.name.removesuffix(".full"): m.slots for m in kernel.mbarriers if m.name.endswith(".full")}


def counts(kernel: tf.Kernel) -> dict[str, str]:
    """mbarrier array -> arrivals per phase."""
    return {s.barrier.name: str(s.count) for s in walk(kernel) if isinstance(s, InitBarrier)}


def pipeline(rows: int | str = 5, columns: int = 8, stages: int = 2, ptype: P = TZ, inline: int = 1) -> tf.Fusion:
    """load -> compute, a row per iteration."""
    with tf.Fusion("pipeline") as fusion:
        x = tf.define_tensor([rows, columns], name="x")
        a = tf.neg(x)
        b = tf.add(a, 1.0)
        fusion.add_output(b)
    bind(a, S, TX)
    bind(b, S, TX)
    fusion.group([fusion.task([a], "load"), fusion.task([b], "compute")], "g").parallelize(ptype)
    a.inline_at(inline)
    a.circular_buffer(stages)
    return fusion


# -- rings --------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stages", [1, 2, 3, 5])
@pytest.mark.parametrize("rows", [0, 1, 2, 3, 7])
def test_any_number_of_trips_over_any_number_of_stages(rows: int, stages: int) -> None:
    kernel = agrees(pipeline(rows, stages=stages), numbers(rows, 8))
    assert channels(kernel) == {"ch0": stages}
    if rows:
        assert [str(e) for e in buffer(kernel, "tv1").shape] == [str(stages), "8"]


def test_one_kernel_for_every_trip_count() -> None:
    fusion = pipeline("N", stages=3)
    with fusion:
        tf.dim("N", min=0)
    kernel = tf.lower(fusion)
    for rows in (1, 2, 3, 4, 9):
        for interleaving in (tf.Interleaving.LOW_FIRST, tf.Interleaving.HIGH_FIRST, tf.Interleaving.RANDOM):
            (out,) = kernel.simulate(numbers(rows, 8), interleaving=interleaving)
            assert (out == fusion.evaluate(numbers(rows, 8))[0]).all()


def test_without_a_serial_loop_there_is_one_trip_and_one_slot() -> None:
    kernel = agrees(pipeline(stages=4, inline=0), numbers(5, 8))
    assert channels(kernel) == {"ch0": 1}
    assert [str(e) for e in buffer(kernel, "tv1").shape] == ["1", "5", "8"]


def test_the_ring_turns_in_the_innermost_shared_loop_and_goes_on_over_the_outer_ones() -> None:
    with tf.Fusion("inner") as fusion:
        x = tf.define_tensor([3, 2, 8], name="x")
        a = tf.neg(x)
        b = tf.add(a, 1.0)
        fusion.add_output(b)
    bind(a, S, S, TX)
    bind(b, S, S, TX)
    fusion.group([fusion.task([a], "load"), fusion.task([b], "compute")]).parallelize(TZ)
    a.inline_at(2)
    a.circular_buffer(3)
    kernel = agrees(fusion, numbers(3, 2, 8))
    text = body(kernel)
    assert text.index("ch0.p = CURSOR") < text.index("in 0..3") < text.index("in 0..2") < text.index("WAIT ch0.empty")
    assert missed(kernel, fusion, numbers(3, 2, 8)) == []


def test_the_text_of_a_role() -> None:
    assert body(agrees(pipeline(5, 6), numbers(5, 6))) == (
        "# g: vertical on TIDz; no data enters; no data leaves\n"
        "IF threadIdx.z == 0:  # load\n"
        "  ch0.p = CURSOR(slots 2, slot 0, parity 1)\n"
        "  FOR i0 in 0..5:\n"
        "    WAIT ch0.empty[ch0.p.slot] parity ch0.p.parity\n"
        "    FOR threadIdx.x in TIDx{6}:\n"
        "      tv1[ch0.p.slot, threadIdx.x] = neg(x[i0, threadIdx.x])\n"
        "    ARRIVE ch0.full[ch0.p.slot]\n"
        "    ch0.p.advance(1)\n"
        "ELSE IF threadIdx.z == 1:  # compute\n"
        "  ch0.c = CURSOR(slots 2, slot 0, parity 0)\n"
        "  FOR i0 in 0..5:\n"
        "    WAIT ch0.full[ch0.c.slot] parity ch0.c.parity\n"
        "    FOR threadIdx.x in TIDx{6}:\n"
        "      tv2[i0, threadIdx.x] = add(tv1[ch0.c.slot, threadIdx.x], 1.0)\n"
        "    ARRIVE ch0.empty[ch0.c.slot]\n"
        "    ch0.c.advance(1)"
    )


# -- arrivals -----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("columns", "ptype", "count"),
    [(8, TZ, "1"), (32, TZ, "1"), (64, TZ, "2"), (6, TZ, "6"), (48, TZ, "48"), (6, TX, "1"), (33, TX, "2"), (40, TY, "40")],
)
def test_a_region_made_of_warps_arrives_once_per_warp_any_other_once_per_thread(columns: int, ptype: P, count: str) -> None:
    fusion = pipeline(3, columns, ptype=ptype)
    kernel = agrees(fusion, numbers(3, columns))
    assert counts(kernel) == {"ch0.full": count, "ch0.empty": count}


def test_empty_counts_all_consumers_and_full_the_producer() -> None:
    with tf.Fusion("fan") as fusion:
        x = tf.define_tensor([4, 8], name="x")
        a = tf.neg(x)
        b, c = tf.add(a, 1.0), tf.add(a, 2.0)
        fusion.add_output(b)
        fusion.add_output(c)
    for tv in (a, b, c):
        bind(tv, S, TX)
    fusion.group([fusion.task([tv]) for tv in (a, b, c)]).parallelize(TZ)
    a.inline_at(1)
    a.circular_buffer(2)
    kernel = agrees(fusion, numbers(4, 8))
    assert counts(kernel) == {"ch0.full": "1", "ch0.empty": "2"}
    assert [s.name for s in walk(kernel) if isinstance(s, CursorInit)] == ["ch0.p", "ch0.c0", "ch0.c1"]
    assert missed(kernel, fusion, numbers(4, 8)) == []


# -- endpoints ----------------------------------------------------------------------------------------------------------------------


def test_boundaries_with_equal_endpoints_and_loop_are_one_channel() -> None:
    def build(apart: bool) -> tf.Fusion:
        with tf.Fusion("merged") as fusion:
            x, y = tf.define_tensor([4, 8], name="x"), tf.define_tensor([4, 8], name="y")
            a, b = tf.neg(x), tf.neg(y)
            c = tf.add(a, b)
            fusion.add_output(c)
        for tv in (a, b, c):
            bind(tv, S, TX)
        members = [fusion.task([a]), fusion.task([b])] if apart else [fusion.task([a, b])]
        fusion.group([*members, fusion.task([c])]).parallelize(TZ)
        a.inline_at(1)
        b.inline_at(1)
        a.circular_buffer(3)
        b.circular_buffer(2)
        return fusion

    kernel = agrees(build(False), numbers(4, 8), numbers(4, 8, seed=1))
    assert channels(kernel) == {"ch0": 3}
    assert [str(buffer(kernel, n).shape[0]) for n in ("tv2", "tv3")] == ["3", "3"]
    assert sum(isinstance(s, Wait) for s in walk(kernel)) == 2
    kernel = agrees(build(True), numbers(4, 8), numbers(4, 8, seed=1))
    assert channels(kernel) == {"ch0": 3, "ch1": 2}


def test_boundaries_of_different_loops_are_two_channels() -> None:
    with tf.Fusion("loops") as fusion:
        x, y = tf.define_tensor([4, 8], name="x"), tf.define_tensor([8], name="y")
        b, a = tf.neg(y), tf.neg(x)
        c = tf.add(a, b)
        fusion.add_output(c)
    for tv in (a, c):
        bind(tv, S, TX)
    bind(b, TX)
    fusion.group([fusion.task([a, b]), fusion.task([c])]).parallelize(TZ)
    a.inline_at(1)
    a.circular_buffer(2)
    assert sorted(channels(agrees(fusion, numbers(4, 8), numbers(8))).values()) == [1, 2]


def test_the_endpoint_of_a_parallelized_horizontal_member_is_the_member() -> None:
    """The founding example: everybody in it waits and arrives, outside the dispatch below."""
    with tf.Fusion("cat") as fusion:
        x = tf.define_tensor([3, 8], name="x")
        a, b = tf.neg(x), tf.add(x, 1.0)
        c = tf.neg(tf.cat([a, b], dim=0))
        fusion.add_output(c)
    for tv in fusion.tensors():
        if not tv.is_input:
            bind(tv, TY, TX)
    h = fusion.group([fusion.task([a], "ta"), fusion.task([b], "tb")], "h")
    v = fusion.group([h, fusion.task([tv for tv in fusion.tensors() if not tv.is_input and tv not in {a, b}], "tc")], "v")
    h.parallelize(TY)
    v.parallelize(TZ)
    kernel = agrees(fusion, numbers(3, 8))
    assert channels(kernel) == {"ch0": 1}
    assert counts(kernel)["ch0.full"] == "48"
    text = body(kernel)
    assert text.index("# h\n") < text.index("WAIT ch0.empty") < text.index("# ta") < text.index("# tb") < text.index("ARRIVE ch0.full")


def unlike_arms(third: bool) -> tf.Fusion:
    """load -> horizontal [tb, tc, (td)] where td has no part in the channel's loop."""
    with tf.Fusion("arms") as fusion:
        x, y = tf.define_tensor([6, 4], name="x"), tf.define_tensor([4], name="y")
        a = tf.neg(x)
        b, c = tf.add(a, 1.0), tf.add(a, 2.0)
        fusion.add_output(b)
        fusion.add_output(c)
        d = tf.neg(y)
        fusion.add_output(d)
    for tv in (a, b, c):
        bind(tv, S, TX)
    bind(d, TX)
    arms = [fusion.task([b], "tb"), fusion.task([c], "tc")]
    ta, td = fusion.task([a], "ta"), fusion.task([d], "td")
    h = fusion.group([*arms, td] if third else arms, "h")
    fusion.group([ta, h], "v").parallelize(TZ)
    h.parallelize(TY)
    a.inline_at(1)
    a.circular_buffer(2)
    return fusion


@pytest.mark.parametrize("third", [False, True])
def test_arms_without_the_channels_loop_take_no_part(third: bool) -> None:
    kernel = agrees(unlike_arms(third), numbers(6, 4), numbers(4))
    assert len([s for s in walk(kernel) if isinstance(s, CursorInit)]) == (3 if third else 2)


def test_the_endpoint_goes_down_to_the_one_member_that_touches_the_tensor() -> None:
    with tf.Fusion("down") as fusion:
        x, y = tf.define_tensor([4, 8], name="x"), tf.define_tensor([4, 64], name="y")
        a = tf.neg(x)
        b, c = tf.add(a, 1.0), tf.neg(y)
        fusion.add_output(b)
        fusion.add_output(c)
    for tv in (a, b, c):
        bind(tv, S, TX)
    inner = fusion.group([fusion.task([b], "tb"), fusion.task([c], "tc")], "inner")
    outer = fusion.group([fusion.task([a], "ta"), inner], "outer")
    outer.parallelize(TZ)
    kernel = agrees(fusion, numbers(4, 8), numbers(4, 64))
    text = body(kernel)
    assert text.index("# tb") < text.index("WAIT ch0.full") < text.index("ARRIVE ch0.empty") < text.index(f"{c.name}[")
    inner.parallelize(TY)
    agrees(fusion, numbers(4, 8), numbers(4, 64))


# -- sections of a channel follow the order -------------------------------------------------------------------------------------------


def test_tensors_are_not_merged_if_one_is_used_before_the_other_is_made() -> None:
    """a, loop {b, d = a + b}, c, e: one channel for a and c would have d wait for c, and c for the ring of b."""
    with tf.Fusion("merge") as fusion:
        x = tf.define_tensor([4, 8], name="x")
        a, b, c = tf.neg(x), tf.add(x, 1.0), tf.add(x, 2.0)
        d, e = tf.add(a, b), tf.neg(c)
        fusion.add_output(d)
        fusion.add_output(e)
    for tv in (a, b, c, d, e):
        bind(tv, S, TX)
    fusion.group([fusion.task([a, b, c]), fusion.task([d, e])]).parallelize(TZ)
    b.inline_at(1)
    assert len(channels(agrees(fusion, numbers(4, 8)))) == 3


def test_tensors_are_not_merged_if_one_loop_holds_a_use_of_one_and_the_fill_of_the_other() -> None:
    """p, loop {r, q, y = p + r}, z = q + 1: in the loop's first trip y comes before the second trip's q."""
    with tf.Fusion("unit") as fusion:
        x = tf.define_tensor([2, 3, 4], name="x")
        p, r = tf.neg(x), tf.add(x, 1.0)
        q, y = tf.add(r, 1.0), tf.add(p, r)
        z = tf.add(q, 1.0)
        fusion.add_output(y)
        fusion.add_output(z)
    fusion.group([fusion.task([p, r, q]), fusion.task([y, z])]).parallelize(TZ)
    r.inline_at(2)
    p.inline_at(1)
    q.inline_at(1)
    agrees(fusion, numbers(2, 3, 4))


def test_a_horizontal_endpoint_is_not_held_up_by_another_arms_ring() -> None:
    with tf.Fusion("held") as fusion:
        x = tf.define_tensor([4, 8], name="x")
        a, b = tf.neg(x), tf.add(x, 1.0)
        d = tf.add(a, b)
        fusion.add_output(d)
    for tv in (a, b, d):
        bind(tv, S, TX)
    h = fusion.group([fusion.task([a], "ta"), fusion.task([b], "tb")], "h")
    fusion.group([h, fusion.task([d], "td")], "v").parallelize(TZ)
    h.parallelize(TY)
    b.inline_at(1)
    agrees(fusion, numbers(4, 8))


def test_a_bound_loop_does_not_widen_the_section() -> None:
    with tf.Fusion("bound") as fusion:
        x, y = tf.define_tensor([8, 4], name="x"), tf.define_tensor([3], name="y")
        a = tf.neg(x)
        b = tf.add(a, 1.0)
        d = tf.add(a, b)
        e = tf.neg(y)
        fusion.add_output(d)
        fusion.add_output(e)
    for tv in (a, b, d):
        bind(tv, TX, P.Unroll)
    fusion.group([fusion.task([a, b]), fusion.task([d, e])]).parallelize(TZ)
    b.inline_at(2)
    a.inline_at(1)
    agrees(fusion, numbers(8, 4), numbers(3))


# -- copies -------------------------------------------------------------------------------------------------------------------------


def test_a_boundary_that_is_an_output_gets_a_copy() -> None:
    with tf.Fusion("output") as fusion:
        x = tf.define_tensor([5, 8], name="x")
        a = tf.neg(x)
        b = tf.add(a, 1.0)
        fusion.add_output(a)
        fusion.add_output(b)
    bind(a, S, TX)
    bind(b, S, TX)
    fusion.group([fusion.task([a]), fusion.task([b])]).parallelize(TZ)
    fusion.inline_most()
    kernel = agrees(fusion, numbers(5, 8))
    assert buffer(kernel, f"{a.name}.b").memory is MemoryType.Shared
    assert a.name not in {buf.name for buf in kernel.buffers}


@pytest.mark.parametrize("where", ["member", "outside", "both", "neither"])
def test_a_boundary_that_is_read_elsewhere_gets_a_copy(where: str) -> None:
    with tf.Fusion("copies") as fusion:
        x = tf.define_tensor([5, 8], name="x")
        a = tf.neg(x)
        b = tf.add(a, 1.0)
        fusion.add_output(b)
        mine = [tf.add(a, 2.0)] if where in ("member", "both") else []
        others = [tf.add(a, 3.0)] if where in ("outside", "both") else []
        for o in mine + others:
            fusion.add_output(o)
    for tv in (a, b, *mine, *others):
        bind(tv, P.Unroll, TX)
    fusion.group([fusion.task([a, *mine]), fusion.task([b])]).parallelize(TZ)
    kernel = agrees(fusion, numbers(5, 8))
    assert (f"{a.name}.b" in str(kernel)) == (where != "neither")


def test_copies_at_two_levels() -> None:
    """A tensor read in another member of the inner group and in another of the outer one, on one type."""
    with tf.Fusion("levels") as fusion:
        x = tf.define_tensor([3, 8], name="x")
        a = tf.neg(x)
        b, c = tf.add(a, 1.0), tf.add(a, 2.0)
        fusion.add_output(b)
        fusion.add_output(c)
    for tv in (a, b, c):
        bind(tv, P.Unroll, TX)
    inner = fusion.group([fusion.task([a]), fusion.task([b])])
    outer = fusion.group([inner, fusion.task([c])])
    inner.parallelize(TZ)
    outer.parallelize(TZ)
    kernel = agrees(fusion, numbers(3, 8))
    assert len(channels(kernel)) == 2


# -- nesting ------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("types", "first"), in_turn([(TY, TZ), (TZ, TZ), (TX, TX), (TZ, TY)], [False, True]))
def test_a_vertical_group_in_a_vertical_group(types: tuple[P, P], first: bool) -> None:
    inner_type, outer_type = types
    with tf.Fusion("nested") as fusion:
        x = tf.define_tensor([4, 8], name="x")
        a = tf.neg(x)
        b = tf.add(a, 1.0)
        c = tf.add(b, 2.0)
        fusion.add_output(c)
    for tv in (a, b, c):
        bind(tv, S, TX)
    t = [fusion.task([tv]) for tv in (a, b, c)]
    inner = fusion.group(t[:2] if first else t[1:], "inner")
    outer = fusion.group([inner, t[2]] if first else [t[0], inner], "outer")
    inner.parallelize(inner_type)
    outer.parallelize(outer_type)
    a.inline_at(1)
    b.inline_at(1)
    a.circular_buffer(2)
    kernel = agrees(fusion, numbers(4, 8))
    assert channels(kernel) == {"ch0": 2, "ch1": 1}
    # The role in the middle arrives twice in a row: the second meeting of its warp is not needed.
    assert len(missed(kernel, fusion, numbers(4, 8))) <= 1


def test_a_reading_loop_that_roles_of_the_consumer_share() -> None:
    """The outer channel turns in the outer loop, the inner one in a loop below it that the outer producer has no part in."""
    with tf.Fusion("shared") as fusion:
        x = tf.define_tensor([3, 2, 4], name="x")
        a = tf.neg(x)
        b = tf.add(a, 1.0)
        c = tf.add(b, 1.0)
        fusion.add_output(c)
    for tv in (a, b, c):
        bind(tv, S, S, TX)
    inner = fusion.group([fusion.task([b]), fusion.task([c])])
    outer = fusion.group([fusion.task([a]), inner])
    inner.parallelize(TY)
    outer.parallelize(TZ)
    b.inline_at(2)
    a.inline_at(1)
    agrees(fusion, numbers(3, 2, 4))


def test_a_channel_inside_a_loop_of_its_groups_parent() -> None:
    """The dispatch stands in a loop that another member in sequence shares: cursors go on from trip to trip."""
    with tf.Fusion("inside") as fusion:
        x = tf.define_tensor([5, 8], name="x")
        z = tf.neg(x)
        a = tf.add(z, 1.0)
        b = tf.add(a, 1.0)
        fusion.add_output(b)
    for tv in (z, a, b):
        bind(tv, S, TX)
    v = fusion.group([fusion.task([a], "ta"), fusion.task([b], "tb")], "v")
    fusion.group([fusion.task([z], "tz"), v], "all")
    v.parallelize(TZ)
    a.inline_at(1)
    z.inline_at(1)
    a.circular_buffer(2)
    kernel = agrees(fusion, numbers(5, 8))
    text = body(kernel)
    assert text.index("CURSOR") < text.index("in 0..5") < text.index("# ta")


def test_a_chain_of_roles() -> None:
    with tf.Fusion("chain") as fusion:
        x = tf.define_tensor([6, 8], name="x")
        tvs = [tf.neg(x)]
        for k in range(4):
            tvs.append(tf.add(tvs[-1], float(k)))
        fusion.add_output(tvs[-1])
    for tv in tvs:
        bind(tv, S, TX)
    fusion.group([fusion.task([tv]) for tv in tvs]).parallelize(TZ)
    fusion.inline_most()
    for k, tv in enumerate(tvs[:-1]):
        tv.circular_buffer(1 + k % 3)
    assert list(channels(agrees(fusion, numbers(6, 8))).values()) == [1, 2, 3, 1]


def test_a_reduction_through_a_channel() -> None:
    with tf.Fusion("reduction") as fusion:
        x = tf.define_tensor([3, 4, 8], name="x")
        a = tf.neg(x)
        s = tf.sum(a, 1)
        y = tf.add(s, 1.0)
        fusion.add_output(y)
    for tv in (a, s):
        bind(tv, S, S, TX)
    bind(y, S, TX)
    fusion.group([fusion.task([a]), fusion.task([s]), fusion.task([y])]).parallelize(TZ)
    s.inline_at(1)
    a.inline_at(1)
    a.circular_buffer(2)
    s.circular_buffer(2)
    agrees(fusion, numbers(3, 4, 8))


# -- distributed channels -----------------------------------------------------------------------------------------------------------


def distributed(
    tiles: int = 4, steps: int = 3, columns: int = 32, instances: int = 2, stages: int = 2, ptype: P = TY, pingpong: bool = False
) -> tuple[tf.Fusion, tf.TensorView, tf.TensorView]:
    """A tile loop split by ``instances``: Serial in the loader, bound in the consumer."""
    with tf.Fusion("pingpong") as fusion:
        x = tf.define_tensor([tiles, steps, columns], name="x")
        a = tf.neg(x)
        b = tf.add(a, 1.0)
        fusion.add_output(b)
    for tv in (a, b):
        tv.split(0, instances)
        tv.axis(3).parallelize(TX)
    b.axis(1).parallelize(ptype)
    a.inline_at(3)
    a.circular_buffer(stages)
    consumer = fusion.task([b], "consumer")
    group = fusion.group([fusion.task([a], "load"), consumer], "g").parallelize(TY)
    if pingpong:
        group.pingpong(b.axis(1))
    return fusion, a, b


@pytest.mark.parametrize("pingpong", [False, True])
@pytest.mark.parametrize(("tiles", "steps", "stages"), [(4, 3, 2), (5, 3, 2), (1, 1, 1), (6, 1, 3), (2, 4, 3), (0, 2, 2), (3, 2, 1)])
def test_instances_share_a_channel(tiles: int, steps: int, stages: int, pingpong: bool) -> None:
    fusion, _, _ = distributed(tiles, steps, stages=stages, pingpong=pingpong)
    kernel = agrees(fusion, numbers(tiles, steps, 32))
    assert counts(kernel)["ch0.empty"] == "1"
    assert counts(kernel)["ch0.c.order"] == "1"


@pytest.mark.parametrize(("columns", "instances"), [(8, 4), (8, 2), (8, 3), (16, 2), (6, 2), (40, 2)])
def test_instances_that_are_no_whole_warps_arrive_by_thread(columns: int, instances: int) -> None:
    fusion, _, _ = distributed(4, 2, columns, instances)
    kernel = agrees(fusion, numbers(4, 2, columns))
    assert counts(kernel)["ch0.empty"] == str(columns)


def test_a_turn_is_needed() -> None:
    fusion, _, _ = distributed(4, 3)
    kernel = agrees(fusion, numbers(4, 3, 32))
    found = missed(kernel, fusion, numbers(4, 3, 32))
    assert not [what for what in found if "ch0.full" in what or "ch0.empty" in what]


def test_the_text_of_an_instance() -> None:
    fusion, _, _ = distributed(4, 3)
    text = body(agrees(fusion, numbers(4, 3, 32)))
    own = "ch0.c.advance(3*(threadIdx.y - 1))"
    assert own in text or "ch0.c.advance(3*threadIdx.y - 3)" in text
    consumer = text.split("# consumer")[1]
    order = ["WAIT ch0.c.order[", "WAIT ch0.full[", "ARRIVE ch0.empty[", "ARRIVE ch0.c.order[", "ch0.c.round.advance(1)"]
    assert [consumer.index(word) for word in order] == sorted(consumer.index(word) for word in order)
    assert sum(isinstance(s, Advance) and s.cursor == "ch0.c" for s in walk(tf.lower(fusion))) == 3


def test_take_turns_moves_the_pass_behind_the_rest_of_the_iteration() -> None:
    def build(pingpong: bool) -> str:
        with tf.Fusion("late") as fusion:
            x = tf.define_tensor([4, 3, 32], name="x")
            a = tf.neg(x)
            s = tf.sum(a, 1)
            y = tf.add(s, 1.0)
            fusion.add_output(y)
        for tv in (a, s, y):
            tv.split(0, 2)
            tv.axis(len(tv.loop) - 1).parallelize(TX)
        s.axis(1).parallelize(TY)
        y.axis(1).parallelize(TY)
        s.inline_at(2)
        a.inline_at(2)
        g = fusion.group([fusion.task([a], "load"), fusion.task([s, y], "consumer")], "g")
        g.parallelize(TY)
        if pingpong:
            g.pingpong(s.axis(1))
        text = body(agrees(fusion, numbers(4, 3, 32)))
        return text.split("# consumer")[1]

    early, late = build(False), build(True)
    assert early.index("ARRIVE ch0.c.order[") < early.index("tv3[")
    assert late.index("ARRIVE ch0.c.order[") > late.index("tv3[")


def test_an_arrival_of_another_channel_does_not_hold_a_turn() -> None:
    """b's own channel to c is filled by both instances, which share a warp."""
    with tf.Fusion("held") as fusion:
        x = tf.define_tensor([2, 2, 2], name="x")
        a = tf.neg(x)
        b = tf.add(a, 1.0)
        c = tf.add(b, 1.0)
        fusion.add_output(c)
    for tv in (a, b, c):
        tv.axis(2).parallelize(TX)
    for tv in (b, c):
        tv.axis(0).parallelize(TY)
    fusion.group([fusion.task([tv]) for tv in (a, b, c)]).parallelize(TZ)
    a.inline_at(2)
    agrees(fusion, numbers(2, 2, 2))


def test_a_channel_that_is_distributed_for_one_consumer_only() -> None:
    with tf.Fusion("one") as fusion:
        x = tf.define_tensor([4, 2, 32], name="x")
        a = tf.neg(x)
        b, c = tf.add(a, 1.0), tf.add(a, 2.0)
        fusion.add_output(b)
        fusion.add_output(c)
    for tv in (a, b, c):
        tv.split(0, 2)
        tv.axis(3).parallelize(TX)
    b.axis(1).parallelize(TY)
    a.inline_at(3)
    a.circular_buffer(2)
    fusion.group([fusion.task([tv]) for tv in (a, b, c)]).parallelize(TY)
    kernel = agrees(fusion, numbers(4, 2, 32))
    assert counts(kernel)["ch0.empty"] == "2"


def test_loops_that_roles_bind_otherwise_are_refused() -> None:
    """Bound in the producer, Serial in the consumer: their trips would differ."""
    with tf.Fusion("unlike") as fusion:
        x = tf.define_tensor([4, 6, 8], name="x")
        a = tf.neg(x)
        b = tf.add(a, 1.0)
        fusion.add_output(b)
    bind(a, TY, S, TX)
    bind(b, S, S, TX)
    fusion.group([fusion.task([a]), fusion.task([b])], "g").parallelize(TZ)
    agrees(fusion, numbers(4, 6, 8))
    a.inline_at(2)
    assert refused(lambda: tf.lower(fusion), LoweringError) == (
        "cannot lower tv1: it shares a loop with tv2, but its axis 0 is TIDy and that of tv2 is Serial\nhelp: bind both alike, or inline tv1 at 0 or less"
    )


def test_arrivals_and_waits_pair_up() -> None:
    kernel = tf.lower(pipeline(5, 8))
    assert [s.barrier.name for s in walk(kernel) if isinstance(s, Wait)] == ["ch0.empty", "ch0.full"]
    assert [s.barrier.name for s in walk(kernel) if isinstance(s, Arrive)] == ["ch0.full", "ch0.empty"]


# -- loops that a horizontal group does not bind alike ------------------------------------------------------------------------------


@pytest.mark.parametrize("group", [TY, TX])
@pytest.mark.parametrize("bound", ["b", "c", "bc"])
def test_arms_of_a_dispatch_have_copies_of_a_loop_that_they_do_not_bind_alike(group: P, bound: str) -> None:
    """Rows are Serial in the producer and in one reader, and TIDy in the other, or in both: every role goes through rows, then columns."""
    with tf.Fusion("mixed") as fusion:
        x = tf.define_tensor([4, 3], name="x")
        a = tf.neg(x)
        readers = {"b": tf.abs(a), "c": tf.add(a, 1.0)}
        for tv in readers.values():
            fusion.add_output(tv)
    both = fusion.group([fusion.task([tv], name) for name, tv in readers.items()])
    fusion.group([fusion.task([a], "a"), both]).parallelize(TZ)
    both.parallelize(group)
    fusion.inline_most()
    for name in bound:
        readers[name].axis(0).parallelize(TY)
    kernel = agrees(fusion, numbers(4, 3))
    text = body(kernel)
    inside = text[text.index("# group1") :]
    alike = len(bound) == 2 and group is not TY
    assert inside.count("in 0..3") == (1 if alike else 2)
    assert alike or missed(kernel, fusion, numbers(4, 3)) == []


def test_roles_below_a_horizontal_group_keep_the_order_of_loops() -> None:
    """One member of the horizontal group is vertical itself, and binds rows to the horizontal group's type in its second role."""
    with tf.Fusion("mixed") as fusion:
        x = tf.define_tensor([4, 3], name="x")
        a = tf.neg(x)
        b, c = tf.abs(a), tf.neg(a)
        d = tf.neg(c)
        fusion.add_output(b)
        fusion.add_output(d)
    ta, tb, tc, td = (fusion.task([tv], name) for tv, name in zip((a, b, c, d), "abcd", strict=True))
    inner = fusion.group([tc, td])
    middle = fusion.group([tb, inner])
    outer = fusion.group([ta, middle])
    outer.parallelize(TY)
    middle.parallelize(TY)
    inner.parallelize(TZ)
    fusion.inline_most()
    d.axis(0).parallelize(TY)
    kernel = agrees(fusion, numbers(4, 3))
    stops = [str(s.stop) for s in walk(kernel) if isinstance(s, For)]
    assert stops == ["4", "3", "4", "3", "4", "3", "3"]


def scanned(inner: int, *, apart: bool) -> tf.Fusion:
    """Instances take rows in turns; what they read is scanned in the same task, or in another one that shares all loops."""
    with tf.Fusion("scanned") as fusion:
        x = tf.define_tensor([tf.dim("N", min=0), 2, inner], name="x")
        made = tf.sign(x)
        fusion.add_output(tf.cummax(tf.sigmoid(made), 2))
    read, out = fusion.tensors()[-2:]
    for tv in (made, read, out):
        tv.axis(1).parallelize(P.TIDz)
    fusion.inline_most()
    made.axis(1).parallelize(P.Serial)
    made.circular_buffer(2)
    made.set_memory_type(MemoryType.Shared)
    use = fusion.group([fusion.task([read]), fusion.task([out])]) if apart else fusion.task([read, out])
    fusion.group([fusion.task([made]), use]).parallelize(P.TIDz)
    return fusion


@pytest.mark.parametrize(("inner", "apart"), [(1, True), (1, False), (3, False)])
def test_turns_and_slots_are_taken_from_outside_in(inner: int, apart: bool) -> None:
    """A loop of one trip is left out, so that slot and turn are waited for in one block."""
    fusion = scanned(inner, apart=apart)
    for rows in (0, 1, 3):
        kernel = agrees(fusion, numbers(rows, 2, inner))
    kernel.verify().require()
    text = str(kernel)
    assert text.index("WAIT ch0.c.order") < text.index("WAIT ch0.full")
    assert text.index("ARRIVE ch0.empty[ch0.c.slot]") < text.index("ARRIVE ch0.c.order")


def test_a_role_inside_of_a_loop_of_an_instance_takes_no_turns() -> None:
    assert (
        refused(lambda: tf.lower(scanned(3, apart=True)), LoweringError)
        == """\
cannot lower t1: its instances on TIDz take turns in a channel, and its code stands in a loop inside theirs that tv3 shares
help: put tv3 into the same task, or share fewer loops with it"""
    )
