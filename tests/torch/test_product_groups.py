"""Products join what follows them where that is expected to take no longer; what they compute is torch's."""

from __future__ import annotations

from typing import Any

import pytest

from tests.calls import Of

torch = pytest.importorskip("torch")

from torch.nn import functional as F

from taskfuse.torch.fates import GraphPartition, op_name
from taskfuse.torch.partition import PartitionLimits, planned
from tests.torch.graphs import check, foreign, traced


def half(*shape: int) -> Any:
    """A tensor as graphs see it: no memory is touched."""
    return torch.empty(1, dtype=torch.bfloat16).expand(shape).clone(memory_format=torch.contiguous_format)


def plan(function: Of[Any, Any], *inputs: Any) -> GraphPartition:
    """The partition of a function's graph."""
    return planned(traced(function, *inputs).graph, PartitionLimits("cpu"))


def names(nodes: list[Any]) -> list[str]:
    """The ops of nodes."""
    return [op_name(n) for n in nodes]


def test_what_follows_is_computed_with_the_product() -> None:
    found = plan(lambda x, w, b: F.gelu(torch.addmm(b, x, w)), half(2048, 512), half(512, 2048), half(2048))
    assert [names(g) for g in found.groups] == [["addmm", "gelu"]]


@pytest.mark.parametrize(
    ("extents", "has_residual", "expected"), [((2048, 14336, 4096), True, [["mm", "add"]]), ((2048, 14336, 4096), False, []), ((4096, 2048, 2048), False, [])]
)
def test_a_norm_reads_16_bit_floats(extents: tuple[int, int, int], has_residual: bool, expected: list[list[str]]) -> None:
    """A cast to float32, which the norm's kernel can do, would make the product's store twice as much, and the norm's read it."""
    m, k, n = extents

    def norm(x: Any, w: Any, residual: Any) -> Any:
        y = (x @ w + residual if has_residual else x @ w).float()
        return (y * torch.rsqrt(y.square().mean(-1, keepdim=True))).to(x.dtype)

    found = plan(norm, *(torch.empty(shape, dtype=torch.bfloat16) for shape in ((m, k), (k, n), (m, n))))
    assert [names(g) for g in found.groups] == expected


def test_a_loss_of_logits_is_computed_with_their_product() -> None:
    """Up to what is chosen of each row: nothing else needs logits. Where they are returned, or no tile has whole rows of them, they are torch's."""

    def loss(x: Any, w: Any, target: Any) -> Any:
        return losses(F.linear(x, w).float(), target)

    def with_logits(x: Any, w: Any, target: Any) -> Any:
        logits = F.linear(x, w).float()
        return losses(logits, target), logits

    def losses(logits: Any, target: Any) -> Any:
        return torch.logsumexp(logits, 1) - logits.gather(1, target[:, None])[:, 0]

    x, w, target = torch.empty((4096, 4096), dtype=torch.bfloat16), torch.empty((128256, 4096), dtype=torch.bfloat16), torch.empty(4096, dtype=torch.int64)
    (group,) = plan(loss, x, w, target).groups
    assert names(group) == ["mm", "_to_copy", "logsumexp", "gather", "sub"]
    assert not plan(with_logits, x, w, target).groups
    assert not plan(loss, x, w[:100], target).groups


def last(*shape: int) -> Any:
    """The same, channels last."""
    return half(*shape).to(memory_format=torch.channels_last)


CONVOLUTIONS: dict[str, tuple[Of[Any, Any], tuple[Any, ...], list[str]]] = {
    "bias": (lambda x, w, b: F.relu(F.conv2d(x, w, b, padding=1)), (last(32, 64, 56, 56), last(64, 64, 3, 3), half(64)), ["convolution", "relu"]),
    "residual": (
        lambda x, w, r: F.relu(F.conv2d(x, w, None, 1, 1) + r),
        (last(32, 64, 56, 56), last(64, 64, 3, 3), last(32, 64, 56, 56)),
        ["convolution", "add", "relu"],
    ),
    "stride": (lambda x, w, b: F.gelu(F.conv2d(x, w, b, 2)), (last(32, 96, 56, 56), last(192, 96, 2, 2), half(192)), ["convolution", "gelu"]),
    "one place": (lambda x, w, b: F.relu(F.conv2d(x, w, b)), (last(32, 64, 56, 56), last(256, 64, 1, 1), half(256)), ["convolution", "relu"]),
    "channels first, a channel each": (lambda x, w, b: F.conv2d(x, w, b, 1, 3, 1, 96), (half(32, 96, 56, 56), half(96, 1, 7, 7), half(96)), ["convolution"]),
    "channels first": (lambda x, w, b: F.relu(F.conv2d(x, w, b, padding=1)), (half(32, 64, 56, 56), half(64, 64, 3, 3), half(64)), []),
    "a channel each": (lambda x, w, b: F.relu(F.conv2d(x, w, b, 1, 3, 1, 96)), (last(32, 96, 56, 56), last(96, 1, 7, 7), half(96)), ["convolution", "relu"]),
    "float32": (lambda x, w: F.relu(F.conv2d(x, w)), (last(8, 64, 28, 28).float(), last(64, 64, 3, 3).float()), []),
    "transposed": (lambda x, w: F.relu(F.conv_transpose2d(x, w)), (last(8, 64, 28, 28), last(64, 64, 3, 3)), []),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_what_follows_a_convolution(name: str) -> None:
    """Where tensor cores multiply its windows, of channels that lie last, in 16-bit floats; and where each channel has windows of its own."""
    function, inputs, expected = CONVOLUTIONS[name]
    found = plan(function, *inputs)
    assert [names(g) for g in found.groups] == ([expected] if expected else [])
    assert bool(found.reasons) is not bool(expected)


@pytest.mark.parametrize("name", ["padded", "strided", "sequences"])
def test_convolutions_are_those_of_torch(name: str) -> None:
    """Values and strides, also of a residual that is computed before."""
    torch.manual_seed(0)

    def function(x: Any, w: Any, b: Any) -> Any:
        h = x * 2
        if name == "sequences":
            return F.relu(F.conv1d(h.transpose(1, 2), w, b, 1, 1, 2))
        y = F.conv2d(h, w, b, 1, 1) + foreign(h) if name == "padded" else F.conv2d(h, w, b, 2, (1, 0), (1, 2))
        return F.relu(y)

    def small(*shape: int) -> Any:  # integers, whose sums are exact
        return torch.randint(-1, 2, shape).to(torch.bfloat16)

    if name == "sequences":
        inputs = small(8, 512, 64), small(64, 3, 64).transpose(1, 2), small(64)
    else:
        inputs = *(small(*s).to(memory_format=torch.channels_last) for s in ((8, 64, 28, 28), (64, 64, 3, 3))), small(64)
    found = check(function, *inputs)
    assert next(where for op, _, where, _ in found.ops if "convolution" in op).startswith("fusion")


def test_a_product_alone_is_left_to_torch() -> None:
    found = plan(lambda x, w: x @ w, half(2048, 512), half(512, 2048))
    assert found.groups == []
    assert list(found.reasons.values()) == ["a matrix product"]


@pytest.mark.parametrize("ours", [1.0, 3.0])
def test_what_is_measured_decides(ours: float) -> None:
    """Of products alone, too, which are expected to take as long either way."""
    asked: list[tuple[list[str], list[str], bool]] = []

    def measure(group: Any, products: Any, plan: GraphPartition, joins: bool) -> tuple[float, float]:
        asked.append((names(group), names(products), joins))
        return ours, 2.0

    graph = traced(lambda x, w, v: (torch.relu(x @ w), foreign(x @ v)), half(2048, 512), half(512, 2048), half(512, 2048)).graph
    found = planned(graph, PartitionLimits("cpu", measure=measure))
    assert asked == [(["mm", "relu"], ["mm"], False), (["mm"], ["mm"], False)]
    assert [names(g) for g in found.groups] == ([["mm", "relu"], ["mm"]] if ours < 2 else [])
    assert [r for r in found.reasons.values() if "measured" in r] == (
        [] if ours < 2 else ["a matrix product, measured times: 3.0 us as a fusion, 2.0 us by torch"] * 2
    )


def test_two_products_whose_elements_meet() -> None:
    found = plan(lambda x, a, b: F.silu(x @ a) * (x @ b), half(1024, 512), half(512, 1024), half(512, 1024))
    assert [sorted(names(g)) for g in found.groups] == [["mm", "mm", "mul", "silu"]]


def test_what_torch_splits_better_is_left_to_it() -> None:
    found = plan(lambda x, w: (x @ w).relu(), half(384, 3072), half(3072, 256))
    assert found.groups == []
    assert "expected times" in " ".join(found.reasons.values())


def test_several_readers_of_a_product_read_it_from_memory() -> None:
    def two(x: Any, w: Any) -> list[Any]:
        y = x @ w
        return [y.relu(), y.exp()]

    found = plan(two, half(2048, 512), half(512, 2048))
    assert found.groups == []


def test_no_group_crosses_a_mutation() -> None:
    def function(x: Any, w: Any) -> Any:
        y = x @ w
        x.add_(1)
        return y.relu() + foreign(x).sum()

    graph = traced(function, half(512, 512), half(512, 512)).graph
    assert all(
        not any(op_name(n) in ("add_", "copy_") for n in graph.nodes if place[g[0]] < place[n] < place[g[-1]])
        for place in [{n: k for k, n in enumerate(graph.nodes)}]
        for g in planned(graph, PartitionLimits("cpu")).groups
    )


@pytest.mark.parametrize("view", [False, True])
def test_results_are_those_of_torch(view: bool) -> None:
    """Also where views are between, and where what a group adds is made of what another one computed."""
    torch.manual_seed(0)

    def function(x: Any, a: Any, b: Any) -> Any:
        h = x + 1
        y = (h @ a).view(4, 8, 32).relu().view(32, 32) if view else (h @ a).relu()
        z = (y @ b) * 0.5 + foreign(h)
        return [z, torch.softmax((z @ a).float() + x.float(), -1)]

    x, a, b = (torch.randn(32, 32, dtype=torch.bfloat16) for _ in range(3))
    found = check(function, x, a, b)
    fused = {name for name, op, where, _ in found.ops if where.startswith("fusion") and "mm" in op}
    assert fused
