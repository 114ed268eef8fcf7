"""Reductions, norms, products, reads and writes at indices with torch's signatures."""

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from taskfuse.torch.settings import Settings
from tests.torch.graphs import check

ALONE = Settings(strict=True, run="reference", cache=False, least=1, products=True)

CASES: dict[str, Callable[[Any, Any], Any]] = {
    "sums": lambda x, i: (x.sum(), x.sum(1), x.mean((0, 2), keepdim=True), x.amax(-1), x.prod(0), (x > 0).any(1), (x > 0).all()),
    "extremes and places": lambda x, i: (*x.max(1), *x.min(2, keepdim=True), x.max(0).indices, x[0, 0, 0].max(0).values),
    "index_add": lambda x, i: x.index_add(1, i[0, :, 0], x[:, :3], alpha=2),
    "var": lambda x, i: (x.var(1), *torch.var_mean(x, 2, correction=0), torch.ops.aten.var.correction(x, [1], correction=1.0)),
    "norm": lambda x, i: (torch.linalg.vector_norm(x, dim=1), torch.linalg.vector_norm(x, 1)),
    "argmax": lambda x, i: (x.argmax(1), x.argmin()),
    "softmax": lambda x, i: (x.softmax(1), x.log_softmax(-1)),
    "layer_norm": lambda x, i: torch.nn.functional.layer_norm(x, (3,), x[0, 0], x[0, 1]),
    "group_norm": lambda x, i: torch.nn.functional.group_norm(x, 2, x[0, :, 0]),
    "cumsum": lambda x, i: x.cumsum(1),
    "logsumexp": lambda x, i: x.logsumexp((0, 1)),
    "bmm": lambda x, i: x @ x.transpose(1, 2),
    "addmm": lambda x, i: torch.addmm(x[0, 0], x[0], x[1].t() @ x[1], beta=0.5, alpha=2),
    "gather": lambda x, i: x.gather(1, i.expand(2, 3, 3)),
    "index": lambda x, i: x[:, i[0, :, 0]],
    "scatter": lambda x, i: (x.scatter(1, i, 1.5), x.scatter_add(1, i, x[:, :3])),
    "masked_scatter": lambda x, i: torch.masked_scatter(x, x[:, :1] > 0, x.exp()),
    "cdist": lambda x, i: (torch.cdist(x.float(), x[:, :3].float()), torch.cdist(x.float(), x[:, :3].float(), 1)),
    "index_put": lambda x, i: torch.ops.aten.index_put(x, [None, i[0, :, 0]], x[:, :3], True),
    "values at a mask": lambda x, i: (
        x.exp().index_put_([x > 0], x[0, 0, 0]),
        torch.ops.aten.index_put(x, [None, x[0, :, 0] > 0], x[:, :1]),
        torch.ops.aten.index_put(x, [x[:, :, 0] > 0], x[0, 0], True),
    ),
    "nonzero_static": lambda x, i: (torch.nonzero_static(x > 0, size=30, fill_value=-2), torch.nonzero_static(x[0, 0] > 9, size=2)),
    "embedding": lambda x, i: torch.nn.functional.embedding(i, x[0]),
}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", CASES)
def test_values_are_those_of_torch(name: str, dtype: str) -> None:
    torch.manual_seed(0)
    x, i = torch.randn(2, 4, 3).to(getattr(torch, dtype)), torch.tensor([[[0], [3], [1]]]).expand(2, 3, 1)
    assert check(CASES[name], x, i, settings=ALONE).fusions
