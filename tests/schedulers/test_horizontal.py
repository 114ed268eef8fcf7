"""``tf.horizontal``: fusions side by side compute what each of them does; names, sharing, and what they cost in one kernel."""

import re
import warnings
from collections.abc import Callable, Sequence

import numpy as np
import pytest

import taskfuse as tf
from examples import block_roles, founding, pipeline
from taskfuse import ParallelType as P
from taskfuse.errors import TaskfuseError, TaskfuseWarning
from taskfuse.ir.types import MemoryType
from taskfuse.kir import walk
from taskfuse.kir.synchronization import Barrier, BarrierScope
from taskfuse.schedulers.horizontal_cost import duration
from taskfuse.testing import seeded_case
from tests.errors import text_of
from tests.proofs import proved, sizes_of
from tests.schedulers.members import computed, numbers, pointwise, row_sum, softmax


def lowered(fusion: tf.Fusion) -> tf.Kernel:
    return proved(tf.lower(fusion))


# -- what they compute ------------------------------------------------------------------------------------------------------------------


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
        a, b = seeded_case(seed), seeded_case(seed + 1)
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


# -- members that nobody scheduled ------------------------------------------------------------------------------------------------------


def plain(math: Callable[..., tf.TensorView], *shapes: Sequence[int | str], name: str = "plain") -> tf.Fusion:
    with tf.Fusion(name) as fusion:
        fusion.add_output(math(*(tf.define_tensor(s, name=f"x{k}") for k, s in enumerate(shapes))))
    return fusion


def normalized(rows: int | str, columns: int, name: str = "normalized") -> tf.Fusion:
    return plain(lambda x: tf.softmax(x, axis=1), [rows, columns], name=name)


def test_fusions_without_a_schedule_are_scheduled_and_stay_as_they_are() -> None:
    members = [
        plain(lambda x, y: tf.tanh(2 * x + y), [12, 512], [12, 512], name="pointwise"),
        normalized(5, 1024),
        plain(lambda x: tf.exp(x.T), [40, 36], name="turned"),
        plain(lambda x: tf.sum(x, axis=1), [7, 4096], name="sums"),
        plain(lambda x: tf.cat([tf.sin(x), tf.cos(x)], 0), [3, 64], name="parts"),
        row_sum(3, 100, threads=64),
    ]
    before = list(map(str, members))
    kernel = lowered(tf.horizontal(members))
    assert list(map(str, members)) == before
    arguments = [numbers([tuple(int(str(e)) for e in tv.shape) for tv in m.inputs]) for m in members]
    outs = kernel.simulate(*(a for given in arguments for a in given))
    for out, member, given in zip(outs, members, arguments, strict=True):
        np.testing.assert_allclose(out, member.evaluate(*given)[0], rtol=2e-5, atol=1e-6)


def test_their_blocks_fit_together() -> None:
    """Alone they have blocks of 512 and 16 x 8 threads, of which the most along each are 4096."""
    members = [normalized(64, 16384, "wide"), plain(lambda x: tf.sum(x, axis=1), [4096, 64], name="narrow")]
    alone = [tf.lower(copy).block for m in members for copy in [tf.copy_fusion(m)[0]] if tf.schedulers.auto(copy)]
    assert [tuple(map(str, block)) for block in alone] == [("512", "1", "1"), ("16", "8", "1")]
    x, y, _ = (int(str(e)) for e in tf.lower(tf.horizontal(members, force=True)).block)
    assert x * y <= 1024


def test_a_common_height_where_threads_along_x_do_not_do() -> None:
    """Rows of 32 elements: eight threads have one, and a block has several rows."""
    kernel = lowered(tf.horizontal([normalized(4096, 32, "short"), normalized(512, 4096, "long")], force=True))
    x, y, _ = (int(str(e)) for e in kernel.block)
    assert y > 1
    assert x * y <= 1024


def test_blocks_that_wait_for_one_another_are_left_to_themselves() -> None:
    """Alone the blocks of the long sum meet in a barrier of the grid; among so many others they could not all be resident."""
    long = plain(lambda x: tf.sum(x, axis=1), [1, 1 << 20], name="long")
    alone, _ = tf.copy_fusion(long)
    tf.schedulers.auto(alone)
    assert tf.lower(alone).is_cooperative
    kernel = lowered(tf.horizontal([long, plain(tf.exp, [1 << 22], name="others")], force=True))
    assert not kernel.is_cooperative
    horizontal_cost = tf.horizontal_cost([alone, plain(tf.exp, [1 << 22], name="others")])
    assert not horizontal_cost.pays
    assert re.search("blocks of long wait for one another, so that all [0-9]+ have to be resident at once: 132 are sure to be$", horizontal_cost.explain())


def test_a_member_that_is_several_kernels_is_refused() -> None:
    split = plain(lambda x: tf.sum(tf.stack([tf.sin(x), tf.cos(x)], 0, form="scatter"), axis=0), [8, 8], name="split")
    assert text_of(lambda: tf.horizontal([split, softmax()])).startswith("one kernel for fusion 'split' is not supported: no scheduler takes it\n")


def test_resident_blocks_leave_every_member_its_registers() -> None:
    """The threads of a multiprocessor that a member asks for are those of its blocks; of joint blocks there are as many as the least allows."""
    rows = [normalized(64, 1024, f"rows{k}") for k in range(3)]
    joined = tf.horizontal(rows)
    threads = int(str(tf.lower(joined).block[0]))
    assert joined.residents * threads == 2048
    assert tf.lower(joined).residents == joined.residents
    few, many = row_sum(8, 256, "few", threads=256), row_sum(8, 256, "many", threads=64)
    few.resident_blocks(4)
    many.resident_blocks(8)
    assert tf.horizontal([few, many], force=True).residents == 64 * 8 // 256
    silent = row_sum(8, 256, "silent", threads=128)
    assert tf.horizontal([few, silent], force=True).residents == 1


# -- what a block has -------------------------------------------------------------------------------------------------------------------


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


# -- names ------------------------------------------------------------------------------------------------------------------------------


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


# -- sharing ----------------------------------------------------------------------------------------------------------------------------


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
        "fusion 'horizontal': 'x' is shared, but not one kind of thing\nnote: f: dimension\nnote: softmax: input\nhelp: give them different names"
    )


# -- the estimate -----------------------------------------------------------------------------------------------------------------------


def test_many_small_ones_gain() -> None:
    horizontal_cost = tf.horizontal_cost([pointwise(5000, f"p{k}") for k in range(8)])
    assert horizontal_cost.pays
    assert horizontal_cost.us > 7 * 2.5  # the launches, at least


def test_a_large_one_beside_one_that_fills_a_multiprocessor_does_not() -> None:
    large, wide = pointwise(1 << 26, "large"), softmax(528, 32768, "wide", threads=1024)
    text = text_of(lambda: tf.horizontal([large, wide]))
    assert text.startswith("fusion 'horizontal': side by side its members are not expected to be faster than one after another\nnote: ")
    assert text.endswith(
        "us lost\nhelp: leave out the member that costs the others most, give it fewer threads, registers or bytes of Shared memory, or force=True"
    )
    assert tf.horizontal([large, wide], force=True).outputs
    assert not tf.horizontal_cost([large, wide]).pays


def test_registers_that_would_spill_are_a_reason() -> None:
    fat, wide = softmax(4, 32 * 150, "fat", threads=32), pointwise(4096, "wide", threads=1024)
    horizontal_cost = tf.horizontal_cost([fat, wide])
    assert [m.name for m in horizontal_cost.spilled] == ["fat"]
    assert horizontal_cost.us > 0
    assert not horizontal_cost.pays
    assert "fat would spill: a thread of a block of 1024 has at most 64 registers" in horizontal_cost.explain()


def test_sizes_are_named_as_in_the_new_fusion() -> None:
    members = [pointwise("N", "a"), pointwise("N", "b")]
    few, many = (tf.horizontal_cost(members, sizes={"a_N": n, "b_N": 64}) for n in (64, 1 << 24))
    assert [m.blocks for m in few.members] == [1, 1]
    assert many.members[0].blocks == (1 << 24) // 64
    assert many.alone[0] > few.alone[0]
    assert "sizes has 'N', which is not a dimension of it" in text_of(lambda: tf.horizontal_cost(members, sizes={"N": 3}))


def test_waves_fill_with_the_next_members_blocks() -> None:
    """Two members of half a wave each take the time of one, side by side; each block moves as many bytes."""
    half = tf.horizontal_cost([pointwise(64 * 66, "a", 64), pointwise(64 * 66, "b", 64)]).members
    assert duration(half, 1) == pytest.approx(duration(half[:1], 1))
    assert duration([*half, *half], 1) == pytest.approx(2 * duration(half, 1))
