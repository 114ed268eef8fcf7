"""Expected times: what torch has an algorithm of its own for is left to it, by what it costs and not by its name."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

import taskfuse as tf
from taskfuse.schedulers.attention import offer
from taskfuse.schedulers.roofline import bytes_of
from taskfuse.schedulers.schedule import Sizes
from taskfuse.target import DEFAULT
from taskfuse.torch import worth
from taskfuse.torch.fates import NodeKind
from taskfuse.torch.importer import SLOWER
from taskfuse.torch.partition import PartitionLimits, planned
from taskfuse.torch.reports import Report
from taskfuse.torch.worth import attention_times, by_text, gradient_times, product_times
from tests.calls import always
from tests.schedulers.attentions import attention
from tests.torch.graphs import report, traced


def big(*shape: int) -> Any:
    """A tensor as graphs see it: no memory is touched."""
    return torch.empty(1).expand(shape)


@pytest.mark.parametrize(("shape", "ours"), [((4, 8), True), ((4096, 1024), False), ((16, 64), True), ((65536, 64), False)])
def test_sorts(shape: tuple[int, ...], ours: bool) -> None:
    graph = traced(lambda x: torch.sort(x * 2 + 1)[0], big(*shape)).graph
    plan = planned(graph, PartitionLimits("cpu"))
    (node,) = (n for n in graph.nodes if "sort" in n.name)
    assert (plan.kinds[node] is NodeKind.MATH) is ours
    assert node in plan.able
    assert ours or plan.reasons[node].startswith(SLOWER)


def test_ops_of_usual_cost_are_fused() -> None:
    def function(x: Any) -> Any:
        y = torch.softmax(torch.nn.functional.gelu(x), -1)
        return torch.topk(y.cumsum(-1).erf().sin(), 2)[0]

    graph = traced(function, big(4096, 1024)).graph
    plan = planned(graph, PartitionLimits("cpu"))
    assert all(plan.kinds[n] in (NodeKind.MATH, NodeKind.GLUE, NodeKind.GIVEN) for n in graph.nodes), plan.reasons


def test_reports_say_what_could_be() -> None:
    found = Report((report(lambda x: x @ x, torch.randn(4, 4)),))
    assert (found.coverage, found.could) == (0, 1)
    assert "100% could be" in str(found)


@pytest.mark.parametrize(("rows", "keys", "gain"), [(4, 32768, 4.0), (4096, 4096, 1.0)])
def test_attention_of_few_queries_is_expected_in_chunks_of_keys(rows: int, keys: int, gain: float) -> None:
    """torch's op moves as many bytes; neither is faster than these."""
    fusion = attention(128, heads=(1, 8), sizes=(rows, keys))
    found = attention_times(fusion, "_scaled_dot_product_cudnn_attention", False)
    assert found is not None
    ours, theirs = found
    whole = offer(fusion).us
    assert whole >= gain * ours
    least = DEFAULT.dram_us(bytes_of(fusion, Sizes(fusion, None, DEFAULT)))
    assert min(ours, theirs) > least


def test_queries_of_heads_that_have_keys_together_are_known_as_rows() -> None:
    fusion = attention(128, heads=(1, 32), key_heads=(1, 8), sizes=(3, 32768), enable_gqa=True)
    found = attention_times(fusion, "_scaled_dot_product_cudnn_attention", False)
    assert found is not None
    assert found[0] < 50


def test_what_is_no_attention_has_no_time() -> None:
    with tf.Fusion() as fusion:
        a, b = (tf.define_tensor([64, 64], dtype=tf.bfloat16) for _ in range(2))
        fusion.add_output(a @ b)
    assert attention_times(fusion, "_scaled_dot_product_cudnn_attention", False) is None


def gradients(n: int, dtype: tf.DType = tf.bfloat16, is_causal: bool = False) -> tf.Fusion:
    with tf.Fusion() as fusion:
        g, q, k, v, o = (tf.define_tensor([4, 16, n, 128], dtype=dtype) for _ in range(5))
        for tv in tf.scaled_dot_product_attention_backward(g, q, k, v, o, tf.define_tensor([4, 16, n]), is_causal=is_causal):
            fusion.add_output(tv)
    return fusion


@pytest.mark.parametrize("is_causal", [False, True])
def test_gradients_of_attention_take_seven_products_and_torchs_five(is_causal: bool) -> None:
    flash, cudnn = (
        gradient_times(gradients(4096, is_causal=is_causal), f"_scaled_dot_product_{name}_attention_backward", is_causal) for name in ("flash", "cudnn")
    )
    assert flash is not None
    assert cudnn is not None
    assert flash[0] == cudnn[0]
    assert cudnn[1] < flash[0] < flash[1]
    assert flash[1] > 1.9 * cudnn[1]
    longer = gradient_times(gradients(8192, is_causal=is_causal), "_scaled_dot_product_flash_attention_backward", is_causal)
    assert longer is not None
    assert 3 < longer[0] / flash[0] < 5


def test_gradients_with_scores_in_memory_have_no_time() -> None:
    assert gradient_times(gradients(1024, tf.float32), "_scaled_dot_product_flash_attention_backward", False) is None


def test_times_are_remembered_by_texts() -> None:
    asked: list[str] = []

    @by_text
    def times(fusion: object, products: list[object], rest: object, *, has_views: bool = False) -> tuple[float, float] | None:
        asked.append(f"{fusion} {products} {rest} {has_views}")
        return None

    for _ in range(2):
        times("a", ["b", "c"], None)
        times("a", ["b"], "c", has_views=True)
    assert asked == ["a ['b', 'c'] None False", "a ['b'] c True"]


def test_kernels_that_cannot_be_faster_than_torch_are_not_searched_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A convolution of 1 x 1 whose weights lie as none of its kernels takes them: alone it needs a kernel more than torch's."""
    searched: list[str] = []

    def search(fusion: tf.Fusion, target: object) -> None:
        searched.append(fusion.name)

    monkeypatch.setattr(worth, "_segments_us", search)
    monkeypatch.setattr(worth, "_product_us", always(None))

    def product(bias: bool) -> tf.Fusion:
        with tf.Fusion("product") as fusion:
            a, b = tf.define_tensor([512, 256], dtype=tf.bfloat16, name="a"), tf.define_tensor([256, 512], dtype=tf.bfloat16, name="b")
            fusion.add_output(tf.gelu(a @ b) if bias else a @ b)
        return fusion

    with tf.Fusion("rest") as rest:
        rest.add_output(tf.gelu(tf.define_tensor([512, 512], dtype=tf.bfloat16, name="a")))
    alone = product(False)
    assert product_times(alone, [alone], None, False, has_views=True) is None
    assert searched == []
    assert product_times(product(True), [alone], rest, False, has_views=True) is None
    assert searched == ["product"]
    assert product_times(product(True), [alone], rest, False) is None
    assert searched == ["product"]
