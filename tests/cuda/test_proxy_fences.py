"""Proxy fences in the CUDA text: one of each state space."""

import taskfuse as tf
from tests.cuda.compiled import compiles, texts

KERNEL = """\
KERNEL fences(x: float32[32]) -> (y: float32[32])
  GRID (1, 1, 1)  BLOCK (32, 1, 1)

y[threadIdx.x] = copy(x[threadIdx.x])
FENCE proxy.async
FENCE proxy.async.global
"""


def test_each_state_space_has_an_instruction() -> None:
    kernel = tf.parse_kernel(KERNEL)
    source = kernel.cuda_source()
    assert '"fence.proxy.async.shared::cta;"' in source
    assert '"fence.proxy.async.global;"' in source
    assert [line.strip() for line in source.splitlines() if line.strip().startswith("fence_")] == ["fence_proxy_async();", "fence_proxy_async_global();"]
    compiles(texts({"fences": kernel}, "dense"))
