"""What the benchmarks compare with: a Triton kernel, and the examples' math in torch. Imported only where both are installed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl


@triton.jit
def _add_one(x: tl.tensor, y: tl.tensor, n: tl.tensor, block: tl.constexpr) -> None:
    at = tl.program_id(0) * block + tl.arange(0, block)
    tl.store(y + at, tl.load(x + at, mask=at < n) + 1.0, mask=at < n)


def triton_add_one(x: Any) -> Any:
    """``x + 1`` of a flat tensor."""
    y = torch.empty_like(x)
    _add_one[(triton.cdiv(x.numel(), 256),)](x, y, x.numel(), block=256)
    return y


def founding_math(x: Any) -> Any:
    """The founding example."""
    parts = torch.cos(torch.sin(x)), torch.relu(torch.tan(x)), torch.sigmoid(torch.exp(x)), torch.tanh(torch.log(x))
    return -torch.cat(parts, dim=1)


def pipeline_math(x: Any, scale: Any) -> Any:
    """The pipeline example."""
    bent = torch.nn.functional.gelu(x * scale, approximate="tanh")
    return bent - 0.5, (bent * bent).sum(dim=1)


def stream_math(x: Any) -> Any:
    """The streaming example."""
    return torch.relu(2 * x - 1)


def horizontal_math(a: Any, b: Any) -> Any:
    """The horizontal fusion example."""
    return torch.exp(torch.sin(a)), torch.softmax(b, dim=1)


def gather_math(x: Any, y: Any) -> Any:
    """The cat example in gather form."""
    return torch.nn.functional.silu(torch.cat([x, y], dim=1))


def shared_loop_math(x: Any) -> Any:
    """The cat example with one loop for both parts."""
    return torch.cat([torch.sin(x), torch.cos(x)], dim=1)


def scatter_horizontal_math(x: Any, y: Any, z: Any) -> Any:
    """The cat example with threads of its own for each part."""
    return torch.cat([torch.sin(x), torch.exp(y), torch.relu(z)], dim=1)


def nested_groups_math(angle: Any, radius: Any) -> Any:
    """The nested groups example."""
    return torch.hypot(torch.sin(angle), torch.cos(angle)), torch.square(radius)


def transpose_math(x: Any) -> Any:
    """The transpose example."""
    return x.T.contiguous()


def matmul_math(a: Any, b: Any) -> Any:
    """The matmul example."""
    return a @ b


MATH: dict[str, Callable[..., Any]] = {
    "founding": founding_math,
    "cat.gather": gather_math,
    "cat.scatter_shared_loop": shared_loop_math,
    "cat.scatter_horizontal": scatter_horizontal_math,
    "horizontal_fusion": horizontal_math,
    "nested_groups": nested_groups_math,
    "pipeline": pipeline_math,
    **dict.fromkeys(("stream", "stream, 2 blocks", "stream, 2 blocks deep", "stream, 4 blocks", "stream, 1 block deep"), stream_math),
    "transpose": transpose_math,
    "matmul": matmul_math,
}
"""The examples in torch, by the names of ``examples_gpu.py``."""
