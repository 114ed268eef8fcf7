"""``tf.horizontal``: fusions side by side compute what each of them does; names, sharing, and what they cost in one kernel."""

import re
import warnings
from collections.abc import Callable

import numpy as np
import pytest

import taskfuse as tf
from examples import block_roles, founding, pipeline
from taskfuse import ParallelType as P
from taskfuse.errors import TaskfuseError, TaskfuseWarning
from taskfuse.ir.types import MemoryType
from taskfuse.kir import walk
from taskfuse.kir.synchronization import Barrier, BarrierScope
from tests.errors import text_of
from tests.proofs import proved, sizes_of
from tests.random_cases import random_case_of
from tests.schedulers.members import computed, numbers, pointwise, row_sum, softmax
from tests.schedulers.side_by_side import lowered, normalized


def test_members_compute_what_they_do_alone() -> None:
    members = [pointwise(), softmax(), row_sum(threads=64), softmax(2, 250, "wide", threads=128)]
    kernel = lowered(tf.horizontal(members))
    arguments = numbers([(1000,), (1000,), (3, 100), (3, 100), (2, 250)])
    alone = [m.evaluate(*a) for m, a in zip(members, (arguments[:2], *([a] for a in arguments[2:])), strict=True)]
    for seed in range(3):
        for out, (ref,) in zip(kernel.simulate(*arguments, seed=seed), alone, strict=True):
            np.testing.assert_allclose(out, ref, rtol=2e-6)
    assert (str(kernel.grid[0]), str(kernel.block[0])) == (str(16 + 3 + 3 + 2), "128")


def test_members_keep_their_groups_and_roles() -> None:
    members = [founding.build(), pipeline.build(), founding.build(blocks=2, stages=2), block_roles.build(2, 2)]
    joined = tf.horizontal(members, name="everything", force=True)
    members_group = next(g for g in joined.tasks.groups() if g.name == "members")
    assert [m.name for m in members_group.members] == ["cat_1_group3", "pipeline_roles", "cat_2_group3", "block_roles_roles"]
    kernel = tf.lower(joined)
    rng = np.random.default_rng(0)
    cat, x, scale = rng.uniform(0.1, 1, (3, 1, 8)), rng.standard_normal((2, 70)), rng.standard_normal(70)
    gates, rows = rng.standard_normal((4, 70)), rng.standard_normal((4, 3, 70))
    arguments = [a.astype(np.float32) for a in (cat, x, scale, cat, gates, rows)]
    proved(kernel, sizes_of(kernel, arguments))
    alone = [r for m, a in zip(members, (arguments[:1], arguments[1:3], arguments[3:4], arguments[4:]), strict=True) for r in m.evaluate(*a)]
    for out, ref in zip(kernel.simulate(*arguments), alone, strict=True):
        np.testing.assert_allclose(out, ref, rtol=3e-5, atol=1e-6)


@pytest.mark.parametrize("first", range(0, 24, 8))
def test_random_fusions_side_by_side(first: int) -> None:
    """What lowers alone lowers beside another one, unless a block gets too large, and gives the same bits."""
    for seed in range(first, first + 8, 2):
        a, b = random_case_of(seed), random_case_of(seed + 1)
        if a.kernel is None or b.kernel is None:
            continue
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore", TaskfuseWarning)
            joined = tf.horizontal([a.fusion, b.fusion], force=True)
            x, y = a.arguments(), b.arguments()
            n, m = len(a.fusion.inputs), len(b.fusion.inputs)
            try:
                kernel = tf.lower(joined)
                outs = kernel.simulate(*x[:n], *y[:m], *x[n:], *y[m:], seed=seed)
            except TaskfuseError as error:
                if not re.search("at least [0-9]+; 1024 are possible|a block has at most 1024", str(error)):
                    raise
                continue
            for out, alone in zip(outs, (*a.kernel.simulate(*x), *b.kernel.simulate(*y)), strict=True):
                np.testing.assert_array_equal(out, alone)
            proved(kernel, sizes_of(kernel, [*x[:n], *y[:m], *x[n:], *y[m:]]))
            for case in (a, b):
                assert case.kernel is not None
                proved(case.kernel, case.sizes)
            assert str(tf.lower(tf.parse_fusion(str(joined)))) == str(kernel)


def test_one_fusion_twice() -> None:
    member = softmax()
    before = str(member)
    joined = tf.horizontal([member, member])
    assert str(member) == before
    assert [tv.name for tv in joined.inputs] == ["softmax_1_x", "softmax_2_x"]
    x, y = numbers([(3, 100), (3, 100)])
    for out, given in zip(lowered(joined).simulate(x, y + 1), (x, y + 1), strict=True):
        np.testing.assert_allclose(out, member.evaluate(given)[0], rtol=2e-6)


def test_resident_blocks_leave_every_member_its_registers() -> None:
    """The threads of a multiprocessor that a member asks for are those of its blocks; of joint blocks there are as many as the least allows."""
    rows = [normalized(1 << 16, 1024, f"rows{k}") for k in range(3)]  # blocks for all multiprocessors
    joined = tf.horizontal(rows)
    lowered = tf.lower(joined)
    assert 1024 < joined.residents * int(str(lowered.block[0])) <= 2048
    assert tf.lower(joined).residents == joined.residents
    few, many = row_sum(8, 256, "few", threads=256), row_sum(8, 256, "many", threads=64)
    few.resident_blocks(4)
    many.resident_blocks(8)
    assert tf.horizontal([few, many], force=True).residents == 64 * 8 // 256
    silent = row_sum(8, 256, "silent", threads=128)
    assert tf.horizontal([few, silent], force=True).residents == 1


def test_shared_memory_is_the_most_of_a_member_not_the_sum() -> None:
    def staged(columns: int) -> tf.Fusion:
        with tf.Fusion("staged") as fusion:
            x = tf.define_tensor([4, columns], name="x")
            fusion.add_output(tf.exp(x))
        copy = x.cache_after()
        for tv in computed(fusion):
            tv.axis(0).parallelize(P.BIDx)
            tv.split(1, 32).axis(2).parallelize(P.TIDx)
        copy.set_memory_type(MemoryType.Shared).inline_at(1)
        return fusion

    kernel = lowered(tf.horizontal([staged(64), staged(512), staged(256)]))
    offsets = {b.name: str(b.offset) for b in kernel.buffers if b.memory is MemoryType.Shared}
    assert len(offsets) == 3
    assert set(offsets.values()) == {"0"}


def test_members_of_different_blocks_have_the_same_barriers() -> None:
    members = [row_sum(3 + k, 100, f"sum{k}", threads=64) for k in range(18)] + [pointwise(threads=128)]
    kernel = lowered(tf.horizontal(members))
    named = [s for s in walk(kernel) if isinstance(s, Barrier) and s.scope is BarrierScope.NAMED]
    assert len(named) == 18
    assert {str(s.id) for s in named} == {"1"}
    assert not kernel.mbarriers


def test_barriers_of_one_block_stay_apart() -> None:
    """Two members on threads, inside one of two on blocks: as many ids as wait in one block."""
    with tf.Fusion("pair") as pair:
        x = tf.define_tensor([3, 128], name="x")
        sums = [tf.sum(x, axis=1), tf.sum(tf.exp(x), axis=1)]
        for tv in sums:
            pair.add_output(tv)
    for tv in computed(pair):
        tv.axis(0).parallelize(P.BIDx)
        tv.split(1, 64).axis(2).parallelize(P.TIDx)
    pair.inline_most()
    tasks = [pair.task([sums[0]], "plain"), pair.task([*(t for t in computed(pair) if t not in set(sums)), sums[1]], "raised")]
    pair.group(tasks, "both").parallelize(P.TIDx)
    kernel = lowered(tf.horizontal([pair, row_sum(threads=64), pair]))
    named = {str(s.id) for s in walk(kernel) if isinstance(s, Barrier) and s.scope is BarrierScope.NAMED}
    assert named == {"1", "2"}


def test_a_name_that_one_member_has_stays() -> None:
    joined = tf.horizontal([pointwise(), row_sum("M", "N"), softmax("M", 64)])
    assert [tv.name for tv in joined.inputs] == ["pointwise_x", "y", "row_sum_x", "softmax_x"]
    assert list(joined.dims) == ["row_sum_M", "N", "softmax_M"]
    assert [m.name for m in next(g for g in joined.tasks.groups() if g.name == "members").members] == ["pointwise", "row_sum", "softmax"]


def test_names_never_meet() -> None:
    with tf.Fusion("a") as first:
        first.add_output(tf.exp(tf.define_tensor(["x"], name="a_x")))
    with tf.Fusion("a") as second:
        second.add_output(tf.exp(tf.define_tensor([4], name="x")))
    with tf.Fusion("a_1") as third:
        third.add_output(tf.exp(tf.define_tensor(["a_1_x"], name="tv1")))
    joined = tf.horizontal([first, second, third], force=True)
    names = [tv.name for tv in joined.tensors()] + list(joined.dims) + [n.name for n in joined.tasks.nodes]
    assert len({*(tv.name for tv in joined.tensors()), *joined.dims}) == len(joined.tensors()) + len(joined.dims)
    assert all(re.fullmatch(r"[A-Za-z_]\w*", name) for name in names)
    lowered(joined)


def test_extents_that_values_count_in_are_renamed() -> None:
    def rows() -> tf.Fusion:
        with tf.Fusion("rows") as fusion:
            table, index = tf.define_tensor(["N", 4], name="x"), tf.define_tensor(["M"], dtype=tf.int32, name="y")
            fusion.add_output(tf.take(table, index, axis=0))
        return fusion

    joined = tf.horizontal([rows(), rows()], force=True)
    assert list(joined.dims) == ["rows_1_N", "rows_1_M", "rows_2_N", "rows_2_M"]
    tables = numbers([(5, 4), (7, 4)])
    arguments = [tables[0], np.array([0, 4, -1], np.int32), tables[1], np.array([6, -7], np.int32)]
    for found, wanted in zip(lowered(joined).simulate(*arguments), (tables[0][[0, 4, 4]], tables[1][[6, 0]]), strict=True):
        assert (found == wanted).all()


def test_a_shared_input_is_read_by_all() -> None:
    members = [softmax("M", 96), row_sum("R", 96), softmax(tf.dim("M", multiple_of=2), 96, "other")]
    joined = tf.horizontal(members, shared=["x"])
    assert list(map(repr, joined.inputs)) == ["x: float32[softmax_M, 96]"]
    (dim,) = joined.dims.values()
    assert dim.multiple_of == 2  # what one member knows of it holds for all
    (x,) = numbers([(4, 96)])
    for out, member in zip(lowered(joined).simulate(x), members, strict=True):
        np.testing.assert_allclose(out, member.evaluate(x)[0], rtol=2e-6)


def test_shared_dimensions_and_scalars() -> None:
    def scaled(name: str) -> tf.Fusion:
        with tf.Fusion(name) as fusion:
            x, k = tf.define_tensor(["N"], name="x"), tf.define_scalar(tf.float32, "k")
            fusion.add_output(x * k)
        return fusion

    joined = tf.horizontal([scaled("one"), scaled("two")], shared=["N", "k"], force=True)
    assert (list(joined.dims), [s.name for s in joined.scalars]) == (["N"], ["k"])
    x, y = numbers([(5,), (5,)])
    for out, given in zip(tf.lower(joined).simulate(x, y, 3.0), (x, y), strict=True):
        np.testing.assert_array_equal(out, given * 3)


REFUSED: list[tuple[Callable[[], object], str]] = [
    (
        lambda: tf.horizontal([softmax()]),
        "fusion 'horizontal': 1 fusion given\nhelp: give two or more: they run side by side",
    ),
    (
        lambda: tf.horizontal([softmax(), row_sum()], shared=["z"]),
        "fusion 'horizontal': 'z' is shared, but no fusion has an input, scalar or dimension of that name\nhelp: share names that two or more fusions have",
    ),
    (
        lambda: tf.horizontal([softmax("M"), row_sum()], shared=["M"]),
        "fusion 'horizontal': 'M' is shared, but only softmax has an input, scalar or dimension of that name\nhelp: share names that two or more fusions have",
    ),
    (
        lambda: tf.horizontal([softmax("x_", 64), row_sum()], shared=["x"]),
        "fusion 'horizontal': input 'x' is shared, but not the same in all fusions\n"
        "note: so far x: float32[x_, 64]\nnote: row_sum: x: float32[3, 100]\nhelp: give them different names",
    ),
    (
        lambda: tf.horizontal([softmax(3, 64), softmax(tf.dim("M", min=4), 64, "tall")], shared=["x"]),
        "fusion 'horizontal': M of tall is 3 by a shared input\nnote: tf.dim('M', min=4)\nhelp: share no input whose extents it does not take",
    ),
    (
        lambda: tf.horizontal([softmax(tf.dim("M", max=3)), softmax(tf.dim("M", min=4), 100, "tall")], shared=["M"]),
        "fusion 'horizontal': no value of M suits all fusions\nnote: tf.dim('M', max=3)\nnote: tall: tf.dim('M', min=4)\n"
        "help: share no dimension that they know different facts of",
    ),
]


@pytest.mark.parametrize(("call", "text"), REFUSED)
def test_refusals(call: Callable[[], object], text: str) -> None:
    assert text_of(call) == text


def test_one_name_for_two_kinds_of_thing_cannot_be_shared() -> None:
    with tf.Fusion("f") as f:
        f.add_output(tf.exp(tf.define_tensor(["x"], name="a")))
    assert text_of(lambda: tf.horizontal([f, softmax()], shared=["x"])) == (
        "fusion 'horizontal': 'x' is shared, but its definitions differ in kind\nnote: f: dimension\nnote: softmax: input\nhelp: give them different names"
    )


def product(m: int, n: int, k: int) -> tf.Fusion:
    with tf.Fusion("product") as fusion:
        a, b = (tf.define_tensor([rows, k], dtype=tf.bfloat16, name=name) for rows, name in ((m, "a"), (n, "b")))
        fusion.add_output(tf.cast(tf.matmul(a, b.T, dtype=tf.float32), tf.bfloat16))
    return fusion


def test_matrix_products_are_one_list_of_tiles() -> None:
    """All blocks walk it; arguments and outputs are in the order of the fusions, whatever the order of the list."""
    fusions = [product(256, 128, 64), product(128, 384, 512)]
    assert tf.horizontal_cost(fusions).pays
    joined = tf.horizontal(fusions, name="both")
    assert [str(tv) for tv in joined.inputs] == [
        *("product_1_a: bfloat16[256, 64]", "product_1_b: bfloat16[128, 64]"),
        *("product_2_a: bfloat16[128, 512]", "product_2_b: bfloat16[384, 512]"),
    ]
    proved(tf.lower(joined))
    assert [g.name for g in joined.tasks.groups() if g.ptype is not None] == ["roles"]


def test_tf_compile_makes_one_list_of_the_products_of_a_fusion() -> None:
    with tf.Fusion("two") as fusion:
        for name, n, k in (("q", 128, 64), ("k", 64, 192)):
            x, w = (tf.define_tensor([rows, k], dtype=tf.bfloat16, name=f"{kind}{name}") for rows, kind in ((130, "x"), (n, "w")))
            fusion.add_output(tf.cast(tf.matmul(x, w.T, dtype=tf.float32), tf.bfloat16))
    run = tf.compile(fusion, backend="sim")
    assert run.schedule is not None
    assert run.schedule.scheduler == "products"
