"""The table of decompositions keeps what rules take whole."""

import copy
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from taskfuse.torch.decompositions import decompositions
from tests.torch.graphs import compiled


def test_what_is_kept() -> None:
    table = decompositions()
    aten = torch.ops.aten
    assert aten.addmm.default not in table
    assert aten._softmax_backward_data.default not in table
    assert aten.native_layer_norm_backward.default in table
    assert aten._native_batch_norm_legit_functional.default in table
    assert aten.native_batch_norm_backward.default in table
    assert len(table) > 200
    assert decompositions() is table


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
