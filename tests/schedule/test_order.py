"""The one total order: contiguity of loops and nodes, its errors, and seeds that give other orders with equal results."""

import pytest

import taskfuse as tf
from taskfuse import ParallelType as P
from taskfuse.schedule.order import Item, LoopItem, OrderError, TensorItem, check, complete, is_vertical, positions, sequence
from taskfuse.schedule.shared_loops import SharedLoops
from tests.lowering.running import agrees, bind, numbers, refused


def sequenced(fusion: tf.Fusion, seed: int | None = None) -> tuple[Item, ...]:
    """The items of the nest."""
    return sequence(fusion, complete(fusion), SharedLoops.of(fusion), seed)


def nest(fusion: tf.Fusion, seed: int | None = None) -> list[object]:
    """The nest as nested lists of tensor names."""

    def text(items: tuple[Item, ...]) -> list[object]:
        found: list[object] = []
        for item in items:
            match item:
                case LoopItem():
                    found.append(text(item.body))
                case TensorItem():
                    found.append(item.tv.name)
        return found

    return text(sequenced(fusion, seed))


def order(fusion: tf.Fusion, seed: int | None = None) -> list[str]:
    return [tv.name for tv in positions(sequenced(fusion, seed))]


def contiguous(names: list[str], order: list[str]) -> bool:
    at = [order.index(n) for n in names]
    return max(at) - min(at) == len(at) - 1


def two_chains() -> tuple[tf.Fusion, list[tf.TensorView]]:
    """a1 -> a2 and b1 -> b2, made in turn: a1, b1, a2, b2."""
    with tf.Fusion("chains") as fusion:
        x, y = tf.define_tensor([3, 4], name="x"), tf.define_tensor([3, 4], name="y")
        a1, b1 = tf.neg(x), tf.neg(y)
        a2, b2 = tf.add(a1, 1.0), tf.add(b1, 1.0)
        fusion.add_output(a2)
        fusion.add_output(b2)
    return fusion, [a1, b1, a2, b2]


def test_the_default_order_is_that_in_which_tensors_were_made() -> None:
    fusion, tvs = two_chains()
    assert order(fusion) == [tv.name for tv in tvs]


def test_results_that_need_no_reduction_come_before_it() -> None:
    """With what only they need: what they read is not live across the reduction."""
    with tf.Fusion("f") as fusion:
        x = tf.define_tensor([4, 8], name="x")
        a = tf.exp(x).named("a")
        total = tf.sum(a, 1, keepdims=True).named("total")
        scaled = (a / total).named("scaled")
        square = (a * a).named("square")
        other = tf.neg(square).named("other")
        last = tf.sin(scaled).named("last")
        fusion.add_output(scaled, last, other)
    found = order(fusion)
    assert found.index("square") < found.index("other") < min(k for k, name in enumerate(found) if name not in ("a", "square", "other"))
    assert found.index("scaled") < found.index("last")
    agrees(fusion, numbers(4, 8), tolerance=1e-5)


def test_a_task_is_contiguous() -> None:
    fusion, (a1, b1, a2, b2) = two_chains()
    fusion.task([a1, a2])
    fusion.task([b1, b2])
    assert order(fusion) == [tv.name for tv in (a1, a2, b1, b2)]


def test_every_node_is_contiguous_whatever_the_seed() -> None:
    with tf.Fusion("nodes") as fusion:
        xs = [tf.define_tensor([2], name=f"x{k}") for k in range(4)]
        first = [tf.neg(x) for x in xs]
        second = [tf.add(a, 1.0) for a in first]
        for o in second:
            fusion.add_output(o)
    t = [fusion.task([a, b]) for a, b in zip(first, second, strict=True)]
    fusion.group(t[:2])
    fusion.group(t[2:])
    found = {tuple(order(fusion, seed)) for seed in range(12)}
    assert len(found) > 1
    for names in map(list, found):
        assert all(contiguous([a.name, b.name], names) for a, b in zip(first, second, strict=True))
        assert contiguous([tv.name for k in (0, 1) for tv in (first[k], second[k])], names)


def test_a_task_that_needs_another_one_comes_after_it() -> None:
    """Its first tensors need nothing, so they might come first: then the other could not come, and the search would try all of their orders."""
    with tf.Fusion("late") as fusion:
        x = tf.define_tensor([2], name="x")
        early = [tf.mul(x, float(k)) for k in range(12)]
        other = tf.neg(x)
        last = tf.add(other, 1.0)
        for e in early:
            last = tf.add(last, e)
        fusion.add_output(last)
    tensors = [tv for tv in fusion.tensors() if not tv.is_input]
    first, rest = fusion.task([other]), fusion.task([tv for tv in tensors if tv is not other])
    fusion.group([fusion.group([first, rest])])
    assert order(fusion)[0] == other.name


@pytest.mark.parametrize("reverse", [False, True])
def test_members_of_a_horizontal_group_come_in_the_order_of_the_group(reverse: bool) -> None:
    fusion, (a1, b1, a2, b2) = two_chains()
    pair = [fusion.task([a1, a2]), fusion.task([b1, b2])]
    fusion.group(pair[::-1] if reverse else pair)
    assert order(fusion) == [tv.name for tv in ((b1, b2, a1, a2) if reverse else (a1, a2, b1, b2))]


@pytest.mark.parametrize("seed", [None, 0, 1, 2, 3])
def test_no_seed_changes_who_has_a_ring_first(seed: int | None) -> None:
    fusion, (a1, b1, _, _) = two_chains()
    for tv in (a1, b1):
        tv.circular_buffer(2, "ring")
    names = order(fusion, seed)
    assert names.index(a1.name) < names.index(b1.name)
    uses = [next(iter(tv.uses)).output.name for tv in (a1, b1)]
    assert names.index(uses[0]) < names.index(uses[1])


def test_members_of_a_vertical_group_may_interleave_and_others_may_not() -> None:
    def build(vertical: bool) -> tuple[tf.Fusion, list[tf.TensorView]]:
        with tf.Fusion("phases") as fusion:
            x, y = tf.define_tensor([3, 4], name="x"), tf.define_tensor([5, 4], name="y")
            a, b = tf.neg(x), tf.neg(y)
            c, d = tf.add(a, 1.0), tf.add(b, 1.0)
            fusion.add_output(c)
            fusion.add_output(d)
        for tv in (a, b, c, d):
            bind(tv, P.Serial, P.TIDx)
        g = fusion.group([fusion.task([a, b], "load"), fusion.task([c, d], "work")])
        if vertical:
            g.parallelize(P.TIDz)
        return fusion, [a, b, c, d]

    fusion, (a, b, c, d) = build(True)
    a.inline_at(1)
    b.inline_at(1)
    assert nest(fusion) == [[[a.name], [c.name]], [[b.name], [d.name]]]
    agrees(fusion, numbers(3, 4), numbers(5, 4))
    fusion, (a, b, c, d) = build(False)
    assert [n for n in order(fusion)] == [a.name, b.name, c.name, d.name]
    assert refused(lambda: a.inline_at(1), OrderError) == (
        f"inline_at({a.name}): load and work would share a loop that does not enclose all code of load\n"
        f"note: {b.name} of load stands outside the loop over axis 0 of {a.name}\n"
        f"help: inline {a.name} at 0 or less, or group differently"
    )
    fusion.inline_most()
    assert a.schedule.inline == b.schedule.inline == 0
    agrees(fusion, numbers(3, 4), numbers(5, 4))


def test_loops_are_contiguous() -> None:
    fusion, (a1, b1, a2, b2) = two_chains()
    fusion.inline_most()
    assert nest(fusion) == [[[a1.name, a2.name]], [[b1.name, b2.name]]]


def test_two_members_of_a_role_share_a_loop_that_encloses_all_code_of_both() -> None:
    """The passing twin of the error above: there is no code outside the loop."""
    with tf.Fusion("pair") as fusion:
        x = tf.define_tensor([3, 4], name="x")
        a = tf.neg(x)
        c = tf.add(a, 1.0)
        fusion.add_output(c)
    fusion.group([fusion.task([a], "load"), fusion.task([c], "work")])
    a.inline_at(1)
    assert nest(fusion) == [[[a.name], [c.name]]]
    agrees(fusion, numbers(3, 4))


def test_a_value_must_be_complete_before_a_loop_that_reads_it() -> None:
    def build() -> tuple[tf.Fusion, list[tf.TensorView]]:
        with tf.Fusion("complete") as fusion:
            x = tf.define_tensor([3, 4], name="x")
            a = tf.neg(x)
            b = tf.add(a, 1.0)
            s = tf.sum(a, 1)
            c = tf.add(b, tf.expand_dims(s, 1))
            fusion.add_output(c)
        return fusion, [a, b, s, c]

    fusion, (a, b, s, c) = build()
    for tv in (b, s, a):
        tv.inline_at(1)
    agrees(fusion, numbers(3, 4))
    fusion, (a, b, s, c) = build()
    a.inline_at(1)
    assert refused(lambda: s.inline_at(1), OrderError) == (
        f"inline_at({a.name}, {s.name}): {b.name} must be complete before {c.name} reads it, but inlining puts both into one loop\n"
        f"note: the loop is axis 0 of {b.name} and of {c.name}; {b.name} is inlined at 0\n"
        f"help: inline {a.name}, {s.name} at 0 or less, or group differently"
    )
    assert s.schedule.inline == 0


def test_loops_must_not_depend_on_each_other_in_a_cycle() -> None:
    def build(turned: bool) -> tuple[tf.Fusion, list[tf.TensorView]]:
        with tf.Fusion("cycle") as fusion:
            x = tf.define_tensor([3, 4], name="x")
            p = tf.neg(x)
            q = tf.add(p, 1.0)
            r = tf.copy(tf.flip(q, 0)) if turned else tf.copy(q)
            t = tf.add(p, r)
            fusion.add_output(t)
        return fusion, [p, q, r, t]

    fusion, tvs = build(False)
    fusion.inline_most()
    assert [tv.schedule.inline for tv in tvs] == [2, 2, 2, 0]
    agrees(fusion, numbers(3, 4))
    fusion, (p, q, r, t) = build(True)
    assert refused(lambda: p.inline_at(1), OrderError) == (
        f"inline_at({p.name}): the loops that inlining makes depend on each other in a cycle\n"
        f"note: no order is possible among {p.name}, {t.name}, {q.name}, {r.name}\n"
        f"help: inline {p.name} at 0 or less, or group differently"
    )
    fusion.inline_most()
    assert p.schedule.inline == 0
    agrees(fusion, numbers(3, 4))


@pytest.mark.parametrize("seed", range(6))
def test_other_seeds_give_other_orders_and_equal_results(seed: int) -> None:
    fusion, _ = two_chains()
    for tv in fusion.tensors():
        if not tv.is_input:
            bind(tv, P.TIDy, P.TIDx)
    fusion.inline_most()
    agrees(fusion, numbers(3, 4), numbers(3, 4), options=tf.LoweringOptions(order_seed=seed), interleavings=(tf.Interleaving.RANDOM,))


def test_a_seed_gives_the_same_order_every_time_and_seeds_differ() -> None:
    fusion, _ = two_chains()
    texts = [str(tf.lower(fusion, tf.LoweringOptions(order_seed=seed))) for seed in range(8)]
    again = [str(tf.lower(fusion, tf.LoweringOptions(order_seed=seed))) for seed in range(8)]
    assert texts == again
    assert len(set(texts)) > 1
    assert str(tf.lower(fusion)) == str(tf.lower(fusion))


def test_check_accepts_what_lowers() -> None:
    fusion, _ = two_chains()
    fusion.inline_most()
    check(fusion)


def test_roles() -> None:
    with tf.Fusion("roles") as fusion:
        x = tf.define_tensor([4], name="x")
        a = tf.neg(x)
        b = tf.add(a, 1.0)
        c = tf.add(b, 1.0)
        fusion.add_output(c)
    ta, tb, tc = (fusion.task([tv], n) for tv, n in ((a, "ta"), (b, "tb"), (c, "tc")))
    inner = fusion.group([tb, tc], "inner")
    outer = fusion.group([ta, inner], "outer")
    outer.parallelize(P.TIDz)
    assert (is_vertical(outer), is_vertical(inner)) == (True, False)
    tree = complete(fusion)
    assert [n.name for n in tree.path(c)] == ["root", "outer", "inner", "tc"]
    assert [n.name for n in tree.roles(tree.path(c))] == ["root", "root", "inner", "inner"]
