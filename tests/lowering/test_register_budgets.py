"""Register budgets of roles: law 10."""

import warnings

import pytest

import taskfuse as tf
from taskfuse import ParallelType as P
from taskfuse.errors import LoweringError, TaskfuseWarning
from taskfuse.ir.tasks import Node
from taskfuse.kir import walk
from taskfuse.kir.nodes import For
from taskfuse.kir.synchronization import SetMaxNReg
from tests.lowering.running import agrees, bind, numbers, refused

FEW = (tf.Interleaving.LOW_FIRST, tf.Interleaving.HIGH_FIRST, tf.Interleaving.RANDOM)


def pipeline(length: int = 32) -> tuple[tf.Fusion, Node, Node]:
    """load -> compute, [2, length] elements, the inner axis on TIDx, the group on TIDz."""
    with tf.Fusion("pipeline") as fusion:
        x = tf.define_tensor([2, length])
        a = tf.neg(x)
        b = tf.add(a, 1.0)
        fusion.add_output(b)
    bind(a, P.Serial, P.TIDx)
    bind(b, P.Serial, P.TIDx)
    load, compute = fusion.task([a], "load"), fusion.task([b], "compute")
    fusion.group([load, compute], "g").parallelize(P.TIDz)
    return fusion, load, compute


def budgets(kernel: tf.Kernel) -> list[int]:
    return [s.registers for s in walk(kernel) if isinstance(s, SetMaxNReg)]


def test_each_role_sets_its_budget_first() -> None:
    fusion, load, compute = pipeline(128)
    load.registers(24)
    compute.registers(240)
    kernel = agrees(fusion, numbers(2, 128), interleavings=FEW)
    assert budgets(kernel) == [24, 240]
    text = str(kernel)
    assert "IF threadIdx.z == 0:  # load\n  SETMAXNREG 24\n" in text
    assert "ELSE IF threadIdx.z == 1:  # compute\n  SETMAXNREG 240\n" in text


def test_the_budget_is_the_whole_boxs_before_the_guard() -> None:
    fusion, load, _ = pipeline(32)
    load.registers(24)
    kernel = agrees(fusion, numbers(2, 32), interleavings=FEW)
    assert str(kernel.block[2]) == "8"
    assert "IF threadIdx.z >= 0 && threadIdx.z < 4:  # load\n  SETMAXNREG 24\n" in str(kernel)


def sum_of(load_count: int, compute_count: int) -> tf.Fusion:
    """128 * 2 * 3 threads: two warpgroups that load, two that compute, two without a budget."""
    with tf.Fusion("budgets") as fusion:
        x, y = tf.define_tensor([2, 128]), tf.define_tensor([128])
        a = tf.neg(x)
        b = tf.add(a, 1.0)
        c = tf.add(tf.neg(y), 0.0)
        fusion.add_output(b)
        fusion.add_output(c)
        d = tf.add(b, c)
        fusion.add_output(d)
    for tv in (a, b, d):
        bind(tv, P.TIDy, P.TIDx)
    for tv in fusion.tensors():
        if tv.ndim == 1 and not tv.is_input:
            bind(tv, P.TIDx)
    load, compute = fusion.task([a], "load"), fusion.task([b], "compute")
    rest = fusion.task([tv for tv in fusion.tensors() if not tv.is_input and tv not in {a, b}], "rest")
    fusion.group([load, compute, rest], "g").parallelize(P.TIDz)
    load.registers(load_count)
    compute.registers(compute_count)
    return fusion


def test_the_sum_over_all_warpgroups_is_what_the_launch_gives() -> None:
    """6 warpgroups of 128 threads: 80 registers each at launch (65,536 / 768, rounded down to 8), 480 in all; two stay at 80."""
    assert budgets(agrees(sum_of(24, 136), numbers(2, 128), numbers(128), interleavings=FEW[:1])) == [24, 136]
    assert refused(lambda: tf.lower(sum_of(32, 136)), LoweringError) == (
        "cannot lower budgets: the roles' registers sum to 496 over 6 warpgroups; the launch gives 80 to each, 480 in all\n"
        "note: load: 32 registers, 2 warpgroups\n"
        "note: compute: 136 registers, 2 warpgroups\n"
        "help: give the roles that move data fewer registers"
    )


def test_one_budget_per_role() -> None:
    with tf.Fusion("nested") as fusion:
        x = tf.define_tensor([2, 128])
        a = tf.neg(x)
        b = tf.add(a, 1.0)
        c = tf.add(b, 1.0)
        fusion.add_output(c)
    for tv in (a, b, c):
        bind(tv, P.Serial, P.TIDx)
    ta, tb, tc = (fusion.task([tv], n) for tv, n in ((a, "ta"), (b, "tb"), (c, "tc")))
    inner = fusion.group([tb, tc], "inner")
    outer = fusion.group([ta, inner], "outer")
    inner.parallelize(P.TIDy)
    outer.parallelize(P.TIDz)
    inner.registers(40)
    assert budgets(agrees(fusion, numbers(2, 128), interleavings=FEW[:1])) == [40]
    tb.registers(24)
    assert refused(lambda: tf.lower(fusion), LoweringError) == (
        "cannot lower tb: registers(24): inner around it has a budget already\nhelp: give one budget per role, where the role begins"
    )


def test_roles_of_one_group_have_budgets() -> None:
    with tf.Fusion("twice") as fusion:
        x = tf.define_tensor([2, 128])
        a = tf.neg(x)
        b = tf.add(a, 1.0)
        c = tf.add(b, 1.0)
        d = tf.add(c, 1.0)
        fusion.add_output(d)
    for tv in (a, b, c, d):
        bind(tv, P.Serial, P.TIDx)
    ta, tb, tc, td = (fusion.task([tv], tv.name) for tv in (a, b, c, d))
    one, two = fusion.group([ta, tb], "one"), fusion.group([tc, td], "two")
    one.parallelize(P.TIDy)
    two.parallelize(P.TIDy)
    tb.registers(40)
    assert budgets(tf.lower(fusion)) == [40]
    td.registers(24)
    assert refused(lambda: tf.lower(fusion), LoweringError) == (
        f"cannot lower {td.name}: registers(24): a warpgroup changes its registers once, and roles of one have budgets already\n"
        "help: give budgets to the roles of one group"
    )


def test_a_dispatch_under_a_loop_sets_no_budget() -> None:
    def build(budget: int | None) -> tf.Fusion:
        with tf.Fusion("loop") as fusion:
            x = tf.define_tensor([3, 128])
            a = tf.neg(x)
            b, c = tf.add(a, 1.0), tf.add(a, 2.0)
            fusion.add_output(b)
            fusion.add_output(c)
        for tv in (a, b, c):
            bind(tv, P.Serial, P.TIDx)
        tb, tc = fusion.task([b], "tb"), fusion.task([c], "tc")
        fusion.task([a], "ta")
        fusion.group([tb, tc], "g").parallelize(P.TIDz)
        a.inline_at(1)
        if budget is not None:
            tb.registers(budget)
        return fusion

    kernel = agrees(build(None), numbers(3, 128), interleavings=FEW[:1])
    assert any(isinstance(s, For) for s in kernel.body)
    assert refused(lambda: tf.lower(build(24)), LoweringError) == (
        "cannot lower tb: registers(24): its dispatch stands under a loop\nhelp: give one budget per role, where the role begins"
    )


def test_a_budget_of_threads_that_are_no_whole_warpgroups_is_left_out_with_a_warning() -> None:
    fusion, load, _ = pipeline(12)
    load.registers(24)
    with pytest.warns(TaskfuseWarning) as caught:
        kernel = tf.lower(fusion)
    assert [str(w.message) for w in caught] == ["registers(24) of load is omitted: its threads are not provably whole warpgroups"]
    assert budgets(kernel) == []
    fusion, load, _ = pipeline(32)
    load.registers(24)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert budgets(tf.lower(fusion)) == [24]


def test_budgets_do_not_change_the_result_of_a_distributed_channel() -> None:
    with tf.Fusion("pingpong") as fusion:
        x = tf.define_tensor([4, 3, 128])
        a = tf.neg(x)
        b = tf.add(a, 1.0)
        fusion.add_output(b)
    for tv in (a, b):
        tv.split(0, 2)
        tv.axis(3).parallelize(P.TIDx)
    b.axis(1).parallelize(P.TIDy)
    a.inline_at(3)
    a.circular_buffer(2)
    load, consumer = fusion.task([a], "load"), fusion.task([b], "consumer")
    fusion.group([load, consumer]).parallelize(P.TIDy)
    load.registers(24)
    consumer.registers(104)
    assert budgets(agrees(fusion, numbers(4, 3, 128), interleavings=FEW)) == [24, 104]


@pytest.mark.parametrize("node", ["group", "task"])
def test_a_budget_belongs_to_a_role(node: str) -> None:
    fusion, load, compute = pipeline(128)
    g = fusion.tasks.root.members[0]
    if node == "group":
        g.registers(40)
    else:
        with fusion:
            y = tf.neg(tf.define_tensor([4], name="y"))
            fusion.add_output(y)
        fusion.task([y], "alone").registers(40)
    assert refused(lambda: tf.lower(fusion), LoweringError) == (
        f"cannot lower {'g' if node == 'group' else 'alone'}: registers(40): it is not a member of a parallelized group\n"
        "help: give the budget to a role: a member of a vertical group"
    )
    assert (load.budget, compute.budget) == (None, None)


def kept(words: int, threads: int = 256) -> tuple[tf.Fusion, Node, Node]:
    """load -> compute, each of so many threads, the second keeping so many words in registers."""
    with tf.Fusion("kept") as fusion:
        x = tf.define_tensor([2, words, threads])
        a = tf.neg(x)
        b = tf.add(a, 1.0)
        c = tf.copy(b)
        fusion.add_output(c)
    for tv in (a, b, c):
        bind(tv, P.Serial, P.Serial, P.TIDx)
    a.inline_at(1)
    b.inline_at(1)
    load, compute = fusion.task([a], "load"), fusion.task([b, c], "compute")
    fusion.group([load, compute], "g").parallelize(P.TIDz)
    return fusion, load, compute


@pytest.mark.parametrize(("words", "threads", "found"), [(64, 256, [72, 184]), (8, 256, []), (64, 128, [])])
def test_chosen_budgets_follow_what_roles_keep(words: int, threads: int, found: list[int]) -> None:
    """Four warpgroups have 128 registers per thread at launch; two have 255, more than ``setmaxnreg`` is given here."""
    fusion, load, compute = kept(words, threads)
    load.registers()
    compute.registers()
    kernel = agrees(fusion, numbers(2, words, threads), interleavings=FEW[:1])
    assert budgets(kernel) == found
    assert str(fusion).count("registers chosen") == 2
    assert str(tf.parse_fusion(str(fusion))) == str(fusion)


@pytest.mark.parametrize(("given", "found"), [(24, [24, 232]), (200, [200, 56])])
def test_a_chosen_budget_takes_what_is_left(given: int, found: list[int]) -> None:
    """Of 512 registers for four warpgroups."""
    fusion, load, compute = kept(64)
    load.registers(given)
    compute.registers()
    assert budgets(tf.lower(fusion)) == found
