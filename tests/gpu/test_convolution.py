"""Convolutions on the GPU: boxes of pixels with zeros around them and at steps, into poisoned outputs, against float64."""

from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs torch")

import torch
from torch import nn

import taskfuse as tf
from taskfuse.torch import backend
from tests.gpu.device import poisoned, to_numpy, to_torch
from tests.schedulers.convolutions import CASES, Convolution

LARGER = {
    "resnet": Convolution(4, 64, 64, (56, 56), (3, 3), padding=1, epilogue="bias relu"),
    "resnet, every second": Convolution(4, 128, 128, (56, 56), (3, 3), stride=2, padding=1),
    "resnet, small images": Convolution(4, 512, 256, (7, 7), (3, 3), padding=1),
    "unet": Convolution(2, 320, 320, (64, 64), (3, 3), padding=1, epilogue="bias", dtype=tf.bfloat16),
    "patches": Convolution(4, 96, 192, (56, 56), (2, 2), stride=2),
}


def check(case: Convolution, fusion: tf.Fusion) -> None:
    """Exact, as the arguments are small integers, and so many terms that sums of them are."""
    arguments = case.arguments()
    expected = case.expected(arguments)
    call = tf.compile(fusion, backend="cuda")
    for _ in range(2):
        out = poisoned(expected.shape, case.dtype)
        call(*map(to_torch, arguments), out=(out,))
        found = to_numpy(out).astype(np.float64)
        rounding = 2.0 ** -(case.dtype.precision - 1) * np.abs(expected)
        assert (np.abs(found - expected) <= rounding).all()


@pytest.mark.usefixtures("hopper")
@pytest.mark.parametrize("name", CASES)
def test_every_kind(name: str) -> None:
    case, config = CASES[name]
    fusion = case.fusion()
    tf.schedulers.matmul(fusion, config)
    check(case, fusion)


@pytest.mark.usefixtures("hopper")
@pytest.mark.parametrize("name", LARGER)
def test_chosen(name: str) -> None:
    check(LARGER[name], LARGER[name].fusion())


@pytest.mark.usefixtures("hopper")
def test_by_threads() -> None:
    case = Convolution(2, 4, 16, (9, 10), (3, 3), padding=1)
    check(case, case.fusion())


@pytest.mark.usefixtures("hopper")
@pytest.mark.filterwarnings("ignore:`torch.jit.*` is deprecated:DeprecationWarning")
def test_in_torch() -> None:
    """A block of a residual network, channels last: its convolutions are in fusions with what follows them, and results lie as torch's do."""
    torch._dynamo.reset()
    torch.manual_seed(0)

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = torch.nn.Conv2d(64, 64, 3, padding=1), torch.nn.Conv2d(64, 64, 3, padding=1)

        def forward(self, x: Any) -> Any:
            return torch.relu(self.b(torch.relu(self.a(x))) + x)

    model = Block().cuda().to(torch.bfloat16).to(memory_format=torch.channels_last)
    x = torch.randn(32, 64, 56, 56, device="cuda", dtype=torch.bfloat16).to(memory_format=torch.channels_last)
    with torch.no_grad():
        found, wanted = torch.compile(model, backend=backend)(x), model(x)
    torch.testing.assert_close(found, wanted, atol=2e-2, rtol=2e-2)
    assert found.stride() == wanted.stride()
