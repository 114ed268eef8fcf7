"""What is put together in one kernel, and what is cut."""

from types import SimpleNamespace
from typing import cast

import pytest

import taskfuse as tf
from taskfuse.errors import UnsupportedError
from taskfuse.ir.storage import made_from, needed
from taskfuse.ops.merge import merged
from taskfuse.schedule.copy import copy_fusion
from taskfuse.schedulers import segment_search
from taskfuse.schedulers.budget import Budget, Work
from taskfuse.schedulers.segment_search import Search
from taskfuse.schedulers.segment_ways import KnownCandidates
from taskfuse.schedulers.segmenter import choose_segments
from taskfuse.target import DEFAULT
from tests.schedulers.oracle import array, checked


def test_what_scans_cannot_share_is_cut() -> None:
    with tf.Fusion("scans") as fusion:
        x = tf.define_tensor(["N", "M"], name="x")
        c = tf.cumsum(x, 1)
        fusion.add_output(c.max(0))
        fusion.add_output(tf.cumsum(c, 0).sum())
        fusion.add_output(tf.flip(c, 1))
    assert len(checked(fusion, [array(5, 4)]).steps) > 2
    with pytest.raises(UnsupportedError, match=r"reduces tv1, whose elements a thread computes one after another|which cannot be computed again"):
        tf.schedulers.fallback(fusion)
    with tf.Fusion("two") as fusion:
        x = tf.define_tensor([4, 5], name="x")
        fusion.add_output(tf.cumsum(tf.cumsum(x, 0), 1))
    with pytest.raises(UnsupportedError, match="tv2 needs scans of different axes"):
        tf.schedulers.fallback(fusion)


def test_recomputation_that_multiplies_is_cut() -> None:
    with tf.Fusion("nested") as fusion:
        x = tf.define_tensor([2], name="x")
        for _ in range(4):
            x = tf.cat([tf.exp(x), tf.sin(x), tf.flip(tf.cos(x), 0)], 0)
        fusion.add_output(x)
    with pytest.raises(UnsupportedError, match="reads its operands at too many points"):
        tf.schedulers.pointwise(fusion)
    assert len(choose_segments(fusion).steps) > 1


def test_a_product_for_tensor_cores_is_cut_off_however_much_it_computes() -> None:
    with tf.Fusion("prologue") as fusion:
        a, b = (tf.define_tensor([4096, 4096], dtype=tf.bfloat16, name=name) for name in "ab")
        fusion.add_output(a @ tf.relu(b))
    assert [step.schedule.scheduler for step in choose_segments(fusion).steps] == ["pointwise", "matmul"]


def test_small_products_of_one_level_are_one_list_of_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of two branches that have no tensor in common. Large ones stay kernels of their own, and so do those beyond the most products of a list."""

    def schedulers(size: int, branches: int = 2) -> list[str]:
        with tf.Fusion("branches") as fusion:
            for _ in range(branches):
                a, b, c = (tf.define_tensor([size, size], dtype=tf.bfloat16) for _ in range(3))
                fusion.add_output(tf.cumsum(a @ b, 1) @ c)
        return [step.schedule.scheduler for step in choose_segments(fusion).steps]

    assert schedulers(256) == ["products", "scan", "scan", "products"]
    assert schedulers(4096) == ["matmul", "matmul", "scan", "scan", "matmul", "matmul"]
    monkeypatch.setattr(segment_search, "MOST_PRODUCTS", 2)
    assert sorted(schedulers(256, 3)) == ["matmul"] * 2 + ["products"] * 2 + ["scan"] * 3


def test_reductions_of_the_same_axes_are_walked_together() -> None:
    with tf.Fusion("gradients") as fusion:
        w = tf.define_tensor([128], name="w")
        g = tf.cast(tf.define_tensor([4, 128, 128], dtype=tf.bfloat16, name="dy"), tf.float32)
        x = tf.define_tensor([4, 128, 128], name="x")
        scaled, normal = g * w, x * tf.rsqrt(tf.mean(tf.square(x), 2, keepdims=True) + 1e-5)
        data = scaled - normal * tf.mean(scaled * normal, 2, keepdims=True)
        bias, weight = tf.sum(g, (0, 1)), tf.sum(g * normal, (0, 1))
        fusion.add_output(data, bias, weight)
    steps = choose_segments(fusion).steps
    assert any({bias.name, weight.name} <= {*step.tensors} for step in steps)


def test_a_tensor_moves_where_nothing_is_lost_and_its_reader_can_then_be_merged() -> None:
    """A segmentation loss: a sum of all elements, and three for each image, which walk their rows together once what one of them sums is computed there."""
    with tf.Fusion("loss") as fusion:
        x = tf.cast(tf.define_tensor([16, 65536], dtype=tf.bfloat16, name="x"), tf.float32)
        t = tf.define_tensor([16, 65536], name="t")
        p = tf.sigmoid(x)
        entropy = tf.sum(tf.maximum(x, 0.0) - x * t + tf.log1p(tf.exp(-tf.abs(x))) * (p * t + (1 - p) * (1 - t)))
        both, ours, theirs = tf.sum(p * t, 1), tf.sum(p, 1), tf.sum(t, 1)
        fusion.add_output(entropy + tf.sum(both / (ours + theirs)))
    steps = choose_segments(fusion).steps
    assert any({both.name, ours.name, theirs.name} <= {*step.tensors} for step in steps)
    assert len(steps) == 3


def test_what_makes_elements_narrower_is_done_where_they_are_made() -> None:
    """Rows that a product makes are images where they are read: what is stored is rounded."""
    with tf.Fusion("rounded") as fusion:
        x, w = tf.define_tensor([8192, 512], dtype=tf.bfloat16, name="x"), tf.define_tensor([512, 2048], dtype=tf.bfloat16, name="w")
        y = tf.reshape(x @ w, [8, 32, 32, 2048])
        g = tf.define_tensor([8, 32, 32, 2048], dtype=tf.bfloat16, name="g")
        for factor in (y, tf.exp(tf.cast(y, tf.float32))):
            fusion.add_output(tf.sum(tf.cast(factor * g, tf.float32), 3))
    found = choose_segments(fusion)
    assert max(size for _, size in found.crossing) == 8192 * 2048 * 2


def test_steps_that_read_a_table_at_what_they_compute_begin_as_one_segment() -> None:
    """Rows that are merged by bisection, twice, in which several steps read each place: two kernels, however little may be spent."""
    with tf.Fusion("rows") as fusion:
        rows = tf.define_tensor([64, 4, 4], tf.uint32, name="rows")
        fusion.add_output(merged(merged(rows, 8), 16))
    assert len(choose_segments(fusion, budget=Budget(0.0)).steps) == 2


WALK = """\
FUSION walk
INPUT q: bfloat16[32, 1024, 64]
INPUT k: bfloat16[32, 256, 64]
t0: float32[32, 1024, 256] = reduce add of mul(q[i0, i1, i3], k[i0, i2, i3]) over i3: 64 init 0.0
t1: bfloat16[32, 1024, 256] = cast(t0)
t2: bfloat16[4, 8, 1024, 256] = view reshape(t1[8*i0 + i1, i2, i3])
INPUT x: bfloat16[4, 8, 1024, 256]
t3: bfloat16[4, 8, 1024, 256] = mul(t2, x)
t4: float32[4, 8, 1024] = reduce add of copy(t3) over i3: 256 init 0.0
t5: bfloat16[4, 8, 1024, 256] = mul(t4[i0, i1, i2], x)
t6: bfloat16[4, 8, 1024, 256] = add(t5, t3)
t7: bfloat16[32768, 256] = view reshape(t6[i0//8192, i0//1024 % 8, i0 % 1024, i1])
INPUT w: bfloat16[256, 64]
t8: float32[32768, 64] = reduce add of mul(t7[i0, i2], w[i2, i1]) over i2: 256 init 0.0
OUTPUT t8
"""


def test_a_walk_that_has_only_a_price_is_not_put_together() -> None:
    """What a scheduler offers for two products with a sum between them turns out to be impossible; without a budget nothing takes it apart again."""
    fusion, spent = tf.parse_fusion(WALK), Budget(0.0, lambda: 0.0)
    assert Search(fusion, None, DEFAULT, None, spent, KnownCandidates(None, DEFAULT, spent)).us < 100


def test_what_saves_a_write_and_a_read_is_merged_before_what_shares_an_input() -> None:
    """Differences of neighbors in two directions read one input, of more bytes than each of them; as one kernel they could not be summed where they are."""
    with tf.Fusion("variation") as fusion:
        x = tf.define_tensor([24, 512, 512], name="x")
        fusion.add_output(tf.abs(x[:, 1:] - x[:, :-1]).sum() + tf.abs(x[:, :, 1:] - x[:, :, :-1]).sum())
    found = choose_segments(fusion)
    assert [step.schedule.scheduler for step in found.steps] == ["reduction", "reduction"]


class Counting(Budget):
    """Counts the pairs that are tried."""

    pairs = 0

    def spend(self, work: Work, size: int) -> None:
        super().spend(work, size)
        self.pairs += work is Work.PAIR


def test_a_search_that_begins_with_the_segments_of_another_form() -> None:
    """A tensor that the other form lacks stands with its readers, so that little is left to merge."""
    with tf.Fusion("norm") as fusion:
        g = tf.cast(tf.define_tensor([64, 128], dtype=tf.bfloat16, name="g"), tf.float32)
        x = tf.define_tensor([64, 128], name="x")
        scaled = tf.exp(g) * x
        fusion.add_output(scaled - tf.mean(scaled, 1, keepdims=True), tf.sum(scaled, 0))
    budget = Budget()
    first = Search(fusion, None, DEFAULT, None, budget, KnownCandidates(None, DEFAULT, budget))
    other, _ = copy_fusion(fusion)
    shared = other.tensor(scaled.name)
    for use in shared.uses:
        shared.recompute([use.output])
    assert len(other.tensors()) > len(fusion.tensors())
    tried = [Counting(), Counting()]
    second, alone = (
        Search(other, None, DEFAULT, None, one, KnownCandidates(None, DEFAULT, one), (), begun) for one, begun in zip(tried, (first, None), strict=True)
    )
    assert len(second.segments) == len(alone.segments)
    assert second.us == pytest.approx(alone.us, rel=0.01)
    assert 2 * tried[0].pairs < tried[1].pairs


def test_what_has_nothing_in_common_in_another_form_begins_apart() -> None:
    """A sum over rows stood with elementwise results because both need one function of the inputs; here, each computes it."""
    with tf.Fusion("gate") as fusion:
        x = tf.define_tensor([64, 128], name="x")
        shared = tf.sigmoid(x)
        fusion.add_output(tf.exp(shared), tf.sum(tf.square(shared), 0))
    together = frozenset(tv for e in needed(fusion) for tv in [e.output])
    other, _ = copy_fusion(fusion)
    for use in other.tensor(shared.name).uses:
        other.tensor(shared.name).recompute([use.output])
    spent = Budget(0.0, lambda: 0.0)
    begun = cast("Search", SimpleNamespace(segments=(together,)))
    found = Search(other, None, DEFAULT, None, spent, KnownCandidates(None, DEFAULT, spent), (), begun).segments
    assert sorted(len(p) for p in found) == [2, 3]
    assert all(sum(tv.is_output for tv in p) == 1 for p in found)


def test_the_parts_of_one_tensor_begin_together() -> None:
    """Whether they stood together in another form, with nothing else in common, or that form lacks them: no kernel of some of them would store the tensor."""
    with tf.Fusion("parts") as fusion:
        x, y = (tf.define_tensor([64, 64], name=name) for name in "xy")
        whole = tf.cat([tf.cumsum(x, 0), tf.cumsum(y, 1)], 0)
        fusion.add_output(whole, tf.exp(x))
    whole.scatter()
    parts = {tv.name for tv in made_from(fusion, whole)}
    segments = tuple(frozenset([e.output]) for e in needed(fusion))
    spent = Budget(0.0, lambda: 0.0)
    for others in (segments, (frozenset[tf.TensorView]().union(*segments),), segments[:-2]):
        begun = cast("Search", SimpleNamespace(segments=others))
        found = Search(fusion, None, DEFAULT, None, spent, KnownCandidates(None, DEFAULT, spent), (), begun).segments
        assert sum(not parts.isdisjoint(tv.name for tv in p) for p in found) == 1
        assert sum(len(p) for p in found) == len(segments)
