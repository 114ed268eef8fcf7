"""The forms of a fusion that are searched: what fails drops a form, and the rest goes on; in the end, a kernel for each tensor."""

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import taskfuse as tf
from taskfuse.errors import LoweringError, ProofError, ScheduleError
from taskfuse.runtime import automatic
from taskfuse.runtime.views import StridedView
from taskfuse.schedulers import forms, segment_search, segment_ways, segmenter
from taskfuse.schedulers.budget import Budget
from taskfuse.schedulers.candidates import INTERNAL
from taskfuse.schedulers.schedule import Chosen, Sizes
from taskfuse.schedulers.script import Script
from taskfuse.schedulers.segment_search import Search
from taskfuse.schedulers.segmentation import Segmentation
from taskfuse.schedulers.tensor_graph import TensorGraph
from taskfuse.target import DEFAULT
from tests.calls import always
from tests.schedulers.fusions import tensor
from tests.schedulers.oracle import array
from tests.schedulers.tried import arguments, built

AUTO = sys.modules["taskfuse.schedulers.auto"]

STAGES: dict[str, tuple[Any, str]] = {
    "scans in chunks": (segmenter, "chunk_long_scans"),
    "the roofline": (segmenter, "roofline"),
    "the least of all cuts": (segmenter, "_least"),
    "ragged rows": (forms, "as_rows"),
    "views before products": (forms, "canonical"),
    "products in chunks": (forms, "chunk_long_products"),
    "widened tensors": (forms, "narrowed"),
    "wide tensors": (forms, "repeated"),
    "both sides of cuts": (forms, "again"),
    "fewer axes": (forms, "narrow"),
    "packed factors": (forms, "pack_products"),
    "positions": (forms, "positions_where_read"),
    "short sums": (forms, "unroll_short_sums"),
    "gather form": (forms, "gathered"),
    "the beginning": (TensorGraph, "beginning"),
    "merging": (Search, "_merged"),
    "moving": (TensorGraph, "movable"),
    "the order": (TensorGraph, "in_order"),
    "the trial of a segment": (Search, "_holds"),
    "kernels side by side": (segment_search, "groups"),
    "equal pieces": (segment_ways, "in_other_names"),
    "the roofline of a segment": (segment_ways, "roofline"),
    "views as arrays": (segment_ways, "strided"),
    "offers of rows": (AUTO, "reduction_offer"),
    "offers of the last scheduler": (AUTO, "fallback_offer"),
}


def two_steps() -> list[tf.TensorView]:
    x = tf.exp(tensor("x", 4, 6))
    return [tf.sum((x - tf.sum(x, 1, keepdims=True)).reshape(6, 4) @ tensor("w", 4, 3), 0), tf.sum(tensor("y", 6, 5), 0)]


def two_sums() -> list[tf.TensorView]:
    x = tensor("x", 4, 6)
    return [tf.sum(x, 0), tf.sum(x, 1)]


def chosen(fusion: tf.Fusion) -> Segmentation:
    """The kernels of a fusion, which compute what NumPy computes."""

    def trial(scheduled: tf.Fusion, schedule: Chosen[Any]) -> None:
        tf.lower(scheduled)

    found = segmenter.choose_segments(fusion, trial=trial)
    given = arguments(fusion)
    values = dict(zip([tv.name for tv in fusion.inputs], given, strict=True))
    for step in found.steps:
        values |= {name: StridedView(found.whole_fusion or fusion, name, "sim").of(values, {}, None, 0) for name in step.views}
        values |= dict(zip(step.outputs, tf.lower(step.fusion).simulate(*(values[name] for name in step.arguments)), strict=True))
    for tv, wanted in zip(fusion.outputs, fusion.evaluate(*given), strict=True):
        np.testing.assert_allclose(values[tv.name], wanted, rtol=1e-4, atol=1e-5)
    return found


def planted(error: Callable[[], Exception]) -> Callable[..., Any]:
    def fails(*args: object, **options: object) -> Any:
        raise error()

    return fails


@pytest.mark.parametrize("stage", STAGES)
def test_what_fails_is_dropped_and_kernels_are_made_all_the_same(stage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module, name = STAGES[stage]
    assert callable(getattr(module, name))
    monkeypatch.setattr(module, name, planted(lambda: KeyError("planted")))
    chosen(built(two_steps))


@pytest.mark.parametrize(
    "error", [ScheduleError(call="recompute", tensor="tv1", reason="planted"), LoweringError(what="it", reason="planted"), KeyError("planted")], ids=repr
)
def test_the_reason_is_told(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forms, "narrowed", planted(lambda: error))
    text = chosen(built(two_steps)).explain()
    assert "no form with widened tensors at each reader: " in text
    assert "planted" in text
    assert (INTERNAL in text) == isinstance(error, KeyError)


def test_the_bound_of_a_form_may_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    def copied(fusion: tf.Fusion) -> Script:
        return Script(tf.copy_fusion(fusion)[0])

    monkeypatch.setattr(forms, "gathered", copied)
    monkeypatch.setattr(forms, "roofline", planted(lambda: KeyError("planted")))
    assert "no form in gather form: internal error" in chosen(built(two_steps)).explain()


def test_a_form_is_searched_of_the_first_one_where_it_adds_nothing_to_the_fastest(monkeypatch: pytest.MonkeyPatch) -> None:
    def form(word: str) -> Callable[..., Script]:
        def made(given: Any, *_: object) -> Script:
            script = Script(tf.copy_fusion(given.fusion if isinstance(given, Search) else given)[0])
            script.comment(word)
            return script

        return made

    us: dict[tuple[str, ...], float] = {(): 10.0, ("# wide",): 8.0, ("# wide", "# again"): 9.0, ("# again",): 7.0}
    for module, name in STAGES.values():
        if module is forms:
            monkeypatch.setattr(forms, name, always(None))
    monkeypatch.setattr(forms, "repeated", form("wide"))
    monkeypatch.setattr(forms, "again", form("again"))

    def expected(search: Search) -> float:
        return us[search.moves]

    for name in ("us", "least"):
        monkeypatch.setattr(Search, name, property(expected))
    fusion = built(two_sums)
    found = forms.Forms(fusion, Sizes(fusion, None, DEFAULT), None, None, Budget(), []).segmentation("planted")
    assert found.moved == ("# again",)


def test_products_are_moved_to_copies_of_the_first_form_where_another_is_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    """Views before all products may be faster than none, and views before some of them faster still."""

    def canonical(given: tf.Fusion, _: object, readers: object = None, *, is_copied: bool = False) -> Script | None:
        if is_copied:
            return None
        script = Script(tf.copy_fusion(given)[0])
        script.comment("all" if readers is None else "some")
        return script

    us: dict[tuple[str, ...], float] = {(): 10.0, ("# all",): 9.0, ("# all", "# some"): 9.5, ("# some",): 8.0}
    for module, name in STAGES.values():
        if module is forms:
            monkeypatch.setattr(forms, name, always(None))
    monkeypatch.setattr(forms, "canonical", canonical)
    for name in ("us", "least"):
        monkeypatch.setattr(Search, name, property(lambda search: us[search.moves]))
    fusion = built(two_sums)
    found = forms.Forms(fusion, Sizes(fusion, None, DEFAULT), None, None, Budget(), []).segmentation("planted")
    assert found.moved == ("# some",)


def test_without_any_search_each_tensor_has_a_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forms, "Search", planted(lambda: KeyError("planted")))
    found = chosen(built(two_steps))
    assert [len(step.tensors) for step in found.steps] == [1] * len(found.steps)
    assert "no search of the form as it is: internal error, KeyError: 'planted'" in found.explain()


@pytest.mark.parametrize("name", ["form", "count"])
def test_what_a_kernel_is_compared_by(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel that has no form up to names, or cannot be counted, is made all the same."""
    monkeypatch.setattr(automatic, name, planted(lambda: KeyError("planted")))
    fusion = built(two_sums)
    given = arguments(fusion)
    for found, wanted in zip(tf.compile(fusion, backend="sim", cache=False)(*given), fusion.evaluate(*given), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5)


def test_schedulers_that_always_fail_are_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """All but the last raise: it makes the kernels."""
    *others, last = AUTO.SCHEDULERS
    broken = [planted(lambda: ProofError(kernel="it", verdict="refuted", reason="planted")) for _ in others]
    for fails, scheduler in zip(broken, others, strict=True):
        fails.__name__ = scheduler.__name__
    monkeypatch.setattr(AUTO, "SCHEDULERS", (*broken, last))
    monkeypatch.setattr(AUTO, "_offers", always(dict[str, object]()))
    assert {step.schedule.scheduler for step in chosen(built(two_steps)).steps} == {"fallback"}


def test_widened_tensors_are_not_moved_into_the_table_of_an_update() -> None:
    with tf.Fusion("index_add") as fusion:
        x, i, s = tensor("x", 300, 8, dtype=tf.bfloat16), tensor("i", 100, dtype=tf.int32), tensor("s", 100, 8, dtype=tf.bfloat16)
        fusion.add_output(tf.index_add(x, 0, i, tf.mul(s, 2)))
    assert "no form" not in segmenter.choose_segments(fusion).explain()


def group_norm(rows: int, groups: int, width: int, side: int) -> tf.Fusion:
    """Rows of groups of channels are normalized, then scaled channel by channel."""
    with tf.Fusion("group_norm") as fusion:
        x = tensor("x", rows, groups * width, side, dtype=tf.bfloat16)
        weight = tensor("weight", groups * width, 1)
        y = tf.reshape(tf.cast(x, tf.float32), [rows, groups, width, side])
        d = y - tf.mean(y, (2, 3), keepdims=True)
        d = d * tf.rsqrt(tf.mean(tf.square(d), (2, 3), keepdims=True) + 1e-5)
        fusion.add_output(tf.cast(tf.silu(tf.reshape(d, [rows, groups * width, side]) * weight), tf.bfloat16))
    return fusion


def test_wide_tensors_are_computed_by_each_reader_across_a_view() -> None:
    """No differences from means are stored in float32: both kernels read the input, and only results of rows cross the cut."""
    found = segmenter.choose_segments(group_norm(64, 32, 8, 4096))
    assert len(found.steps) == 2
    assert sum(size for _, size in found.crossing) < 1e5
    small = group_norm(3, 2, 4, 16)
    given = [array(3, 8, 16, dtype=tf.bfloat16), array(8, 1)]
    form = forms.repeated(small, Sizes(small, None, DEFAULT))
    assert form is not None
    assert np.array_equal(form.fusion.evaluate(*given)[0], small.evaluate(*given)[0])


def test_wide_tensors_that_are_read_in_place_stay() -> None:
    with tf.Fusion("rows") as fusion:
        y = tf.cast(tensor("x", 64, 4096, dtype=tf.bfloat16), tf.float32)
        d = y - tf.mean(y, 1, keepdims=True)
        fusion.add_output(d * tf.rsqrt(tf.mean(tf.square(d), 1, keepdims=True)))
    assert forms.repeated(fusion, Sizes(fusion, None, DEFAULT)) is None


def distances(rows: int, heads: int) -> tf.Fusion:
    """A bias of distances, as of ALiBi."""
    with tf.Fusion("distances") as fusion:
        i = tf.cast(tf.arange(rows), tf.int64)
        away = tf.reshape(i, [1, rows]) - tf.reshape(i, [rows, 1])
        y = tensor("x", heads, rows, rows) + tensor("slopes", heads, 1, 1) * tf.cast(away, tf.float32)
        fusion.add_output(tf.softmax(y, 2))
    return fusion


def test_positions_are_computed_where_they_are_read() -> None:
    """Each reader of positions computes them at its own points; what is read in place, or is one element, stays."""
    fusion = distances(5, 3)
    form = forms.positions_where_read(fusion, Sizes(fusion, None, DEFAULT))
    assert form is not None
    given = [array(3, 5, 5), array(3, 1, 1)]
    assert np.array_equal(form.fusion.evaluate(*given)[0], fusion.evaluate(*given)[0])
    assert forms.positions_where_read(form.fusion, Sizes(form.fusion, None, DEFAULT)) is None
    with tf.Fusion("constant") as fusion:
        fusion.add_output(tensor("x", 4, 8) + tf.full([1, 1], 2.0))
    assert forms.positions_where_read(fusion, Sizes(fusion, None, DEFAULT)) is None


def gradients_of_rms_norm(rows: int, columns: int) -> tf.Fusion:
    """Sums over rows and over columns of the same products."""
    with tf.Fusion("gradients") as fusion:
        x, dy = (tf.cast(tensor(name, rows, columns, dtype=tf.bfloat16), tf.float32) for name in ("x", "dy"))
        scaled = dy * tf.cast(tensor("w", columns, dtype=tf.bfloat16), tf.float32)
        r = tf.rsqrt(tf.mean(x * x, 1, keepdims=True) + 1e-6)
        fusion.add_output(tf.cast(r * scaled - x * r * r * r * tf.mean(scaled * x, 1, keepdims=True), tf.bfloat16))
        fusion.add_output((dy * x * r).sum(0))
    return fusion


def test_what_two_kernels_need_of_narrow_inputs_is_computed_by_both() -> None:
    """Only results of rows are stored between the two, none of the casts to float32."""
    fusion = gradients_of_rms_norm(1024, 2048)
    found = segmenter.choose_segments(fusion)
    assert len(found.steps) == 2
    assert sum(size for _, size in found.crossing) < 1e5
    form = found.whole_fusion
    assert form is not None
    given = [array(1024, 2048, dtype=tf.bfloat16), array(1024, 2048, dtype=tf.bfloat16), array(2048, dtype=tf.bfloat16)]
    for mine, wanted in zip(form.evaluate(*given), fusion.evaluate(*given), strict=True):
        assert np.array_equal(mine, wanted)


def test_what_does_not_depend_on_an_axis_is_computed_once() -> None:
    """A row that is expanded before it is multiplied: neither as often as it is copied, nor is that the roofline."""
    with tf.Fusion("expanded") as fusion:
        x, w = tensor("x", 1, 1024, dtype=tf.bfloat16), tensor("w", 1024, 1024, dtype=tf.bfloat16)
        fusion.add_output(tf.broadcast_to(x, [4096, 1024]) @ w)
    found = segmenter.choose_segments(fusion)
    assert any("drop_axes" in line for line in found.moved)
    assert found.us < 20
    assert found.bound < 10
    with tf.Fusion("plain") as fusion:
        fusion.add_output(tensor("x", 8, 16) @ tensor("w", 16, 8))
    assert forms.narrow(fusion) is None


def test_forms_build_on_the_best_one() -> None:
    """The gradients of a linear layer's weights and bias: both sums are long, and each is divided."""
    with tf.Fusion("gradients") as fusion:
        x, dy = (tf.define_tensor([7056, n], dtype=tf.bfloat16, name=name) for name, n in (("x", 1024), ("dy", 256)))
        fusion.add_output(dy.T @ x)
        fusion.add_output(tf.sum(dy, 0))
    found = segmenter.choose_segments(fusion)
    assert sum("chunk_reduction" in line for line in found.moved) == 2
