"""The table of decompositions keeps what rules take whole."""

import copy
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from taskfuse.torch.compilation import GraphReport, listeners
from taskfuse.torch.decompositions import decompositions
from tests.torch.graphs import compiled


def test_what_is_kept() -> None:
    table = decompositions("cpu")
    aten = torch.ops.aten
    assert aten.addmm.default not in table
    assert aten._softmax_backward_data.default not in table
    assert aten.native_layer_norm_backward.default in table
    assert aten._native_batch_norm_legit_functional.default in table
    assert aten.native_batch_norm_backward.default in table
    assert len(table) > 200
    assert decompositions("cpu") is table


@pytest.mark.parametrize("form", [(6, 1, 1, 1), (6, (1,), (2,), (2,)), (3, 1, 1, 1), (6, 2, 1, 1)])
def test_gradients_of_convolutions(form: tuple[Any, Any, Any, Any]) -> None:
    """Of a depthwise one with steps of 1, that of the input is a convolution; that of the bias is a sum. One number may stand for all axes."""
    torch.manual_seed(0)
    groups, stride, padding, dilation = form
    theirs = torch.nn.Conv2d(6, 6, 3, stride, padding, dilation, groups).double()
    ours = copy.deepcopy(theirs)
    found: list[GraphReport] = []
    listeners.append(found.append)
    results: list[Any] = []
    for model, run in ((theirs, theirs), (ours, compiled(ours))):
        x = torch.randn(2, 6, 7, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0), requires_grad=True)
        y = run(x)
        results.append(torch.autograd.grad(y.square().sum(), [x, *model.parameters()]))
    listeners.remove(found.append)
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b)
    ops = [op for _, op, _, _ in found[-1].ops]
    assert "aten.sum.dim_IntList" in ops
    assert ("aten.convolution.default" in ops) is (groups == 6 and stride in (1, (1,)))


@pytest.mark.parametrize(("dtype", "last"), [(torch.bfloat16, True), (torch.float32, False)])
def test_gradients_of_weights_of_each_channel_have_channels_last(dtype: Any, last: bool) -> None:
    """In 16-bit floats, where torch's kernel for these is faster than a copy; a tensor that lies so is not copied."""
    theirs = torch.nn.Conv2d(6, 6, 3, padding=1, groups=6).to(dtype)
    x = torch.randn(2, 6, 8, 8, dtype=dtype)
    found: list[GraphReport] = []
    listeners.append(found.append)
    results = [torch.autograd.grad((run(x).permute(0, 2, 3, 1).float().square()).sum(), list(theirs.parameters())) for run in (theirs, compiled(theirs))]
    listeners.remove(found.append)
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b, rtol=2e-2, atol=2e-2)
    assert ("aten.clone.default" in [op for _, op, _, _ in found[-1].ops]) is last


def test_batch_norm_in_inference_is_math() -> None:
    model = torch.nn.Sequential(torch.nn.BatchNorm2d(3), torch.nn.ReLU()).eval()
    found: list[GraphReport] = []
    listeners.append(found.append)
    x = torch.randn(2, 3, 4, 5)
    with torch.no_grad():
        torch.testing.assert_close(compiled(model)(x), model(x))
    listeners.remove(found.append)
    assert len(found[0].fusions) == 1
    assert all(where != "left to torch" for _, _, where, _ in found[0].ops)


def test_batch_norm_in_training() -> None:
    torch.manual_seed(0)
    theirs = torch.nn.Sequential(torch.nn.BatchNorm2d(3), torch.nn.ReLU())
    ours = copy.deepcopy(theirs)
    x = torch.randn(2, 3, 4, 5)
    results: list[list[Any]] = []
    for model, run in ((theirs, theirs), (ours, compiled(ours))):
        y = run(x)
        results.append([y, *torch.autograd.grad(y.square().sum(), list(model.parameters())), *model.buffers()])
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)


def test_the_gradient_of_a_log_softmax_begins_with_the_logits() -> None:
    """They are kept in their dtype, with a maximum and a sum of each row, and not the result in float32."""
    torch.manual_seed(0)
    logits, targets = torch.randn(4, 10).bfloat16(), torch.randint(10, (4,))

    def model(x: Any) -> Any:
        return torch.nn.functional.cross_entropy(x.float() * 2, targets)

    found: list[GraphReport] = []
    listeners.append(found.append)
    results: list[Any] = []
    for run in (model, compiled(model)):
        x = logits.clone().requires_grad_()
        results.append(torch.autograd.grad(run(x), x)[0])
    listeners.remove(found.append)
    torch.testing.assert_close(*results)
    assert [report.kind for report in found] == ["forward", "backward"]
    kept = [node.meta["val"] for region, _ in found[0].fusions.values() for node in region.outputs]
    assert all(value.numel() <= len(logits) for value in kept), kept
