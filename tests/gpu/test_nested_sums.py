"""One kernel for a vector by weights of 4 bits with scales of groups, on the GPU."""

import pytest

torch = pytest.importorskip("torch", reason="needs torch")

import taskfuse as tf
from taskfuse.schedulers import NestedSumConfig
from tests.gpu.device import poisoned
from tests.schedulers.weights import bits


@pytest.mark.parametrize("config", [None, NestedSumConfig(16, 4), NestedSumConfig(8, 8, stages=2, each=4)], ids=str)
@pytest.mark.parametrize(("rows", "groups"), [(4096, 32), (1000, 37)])
def test_weights_of_four_bits(rows: int, groups: int, config: NestedSumConfig | None) -> None:
    fusion = bits(rows, groups)
    tf.schedulers.nested_sums(fusion, config)
    x = torch.randn(groups * 128, device="cuda").bfloat16()
    w = torch.randint(0, 256, (rows, groups * 64), device="cuda", dtype=torch.uint8)
    scales = torch.rand(rows, groups, device="cuda").bfloat16()
    out = poisoned((rows,), tf.bfloat16)
    tf.compile(fusion, backend="cuda")(x, w, scales, out=out)
    both = torch.stack((w & 15, w >> 4), -1).double() - 8.0
    terms = both.reshape(rows, groups, 128) * scales.double()[:, :, None] * x.double().reshape(groups, 128)
    wanted, size = terms.sum((1, 2)), terms.abs().sum((1, 2))
    assert bool(((out.double() - wanted).abs() <= wanted.abs() * 2**-8 + size * 2**-20).all())
