"""Losses of logits that are not stored, on the GPU, beside torch: whole chunks and such that end early, large logits, ignored rows, other numbers of rows."""

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs torch")

import taskfuse as tf
from taskfuse.torch import backend
from tests.schedulers.losses import form_of, loss_of, plain, segmented

CASES = {
    "whole chunks": (300, 256, 2048, 1.0, 7),
    "a chunk that ends early": (4096, 512, 5025, 1.0, 7),
    "large logits": (256, 256, 4096, 300.0, 7),
    "all ignored": (64, 128, 1024, 1.0, 1),
}


@pytest.mark.parametrize("name", CASES)
def test_losses(name: str) -> None:
    tokens, width, classes, scale, ignored = CASES[name]
    form = form_of(loss_of(plain, tokens, classes, width))
    assert form is not None
    x = torch.randn(tokens, width, device="cuda").mul_(scale).to(torch.bfloat16)
    w = torch.randn(classes, width, device="cuda").to(torch.bfloat16)
    target = torch.randint(0, classes, (tokens,), device="cuda")
    target[::ignored] = -100
    whole, part = segmented(form)
    tf.schedulers.matmul(part)
    found: Any = tf.compile(whole, backend="cuda")(x, w, target)[0]
    logits: Any = torch.nn.functional.linear(x, w).double()
    wanted: Any = torch.nn.functional.cross_entropy(logits, target, reduction="none")
    assert (found.double() - wanted).abs().max() <= 2e-2 * max(1.0, float(wanted.abs().max()))


def test_as_torch_compiles_it() -> None:
    """Without gradients; the memory of a call is far below that of logits."""
    x = torch.randn(4096, 2048, device="cuda", dtype=torch.bfloat16)
    w = torch.randn(131072, 2048, device="cuda", dtype=torch.bfloat16) / 32
    target = torch.randint(0, 131072, (4096,), device="cuda")

    def loss(x: Any, w: Any, target: Any) -> Any:
        return torch.nn.functional.cross_entropy(torch.nn.functional.linear(x, w).float(), target)

    compiled: Any = torch.compile(loss, backend=backend)
    with torch.no_grad():
        found: Any = compiled(x, w, target)
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        compiled(x, w, target)
        torch.cuda.synchronize()
        taken = torch.cuda.max_memory_allocated() - before
        wanted: Any = loss(x, w, target)
    assert (found - wanted).abs() <= 1e-3 * wanted.abs()
    assert taken < 4096 * 131072 * 2 / 8
