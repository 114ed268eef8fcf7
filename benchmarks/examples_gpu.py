"""Time of every example on the GPU, beside the time that its bytes take at the bandwidth of a copy, and beside torch, run op by op.

``python benchmarks/examples_gpu.py [--write] [--compiled]``. Inputs are random; each launch of a round has inputs and outputs of its own, which
together exceed the L2 cache; outputs are poisoned before, and checked against torch after. Medians of 30 rounds, by CUDA events.
``--compiled`` also runs torch.compile, which takes a minute.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from peers import MATH
from reporting import L2_BYTES, gpu_median, parser, publish

import taskfuse as tf

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
import cat
import founding
import horizontal_fusion
import matmul
import nested_groups
import pipeline
import stream
import transpose

SETS = 3  # at least
TOLERANCE = 2e-5  # relative, of a float32 result from torch's
Shape = tuple[int, ...]


@dataclass(frozen=True)
class Example:
    """An example and the shapes of its inputs, small (the host's cost would show) or large (bandwidth).

    Attributes:
        flops: floating-point operations, where these are the limit and not the bytes.
    """

    name: str
    build: Callable[[], tf.Fusion]
    shapes: Sequence[Shape]
    flops: float = 0


N = 4096
EXAMPLES = (
    Example("founding", founding.build, [(64, 5, 8)]),
    Example("founding", founding.build, [(65536, 5, 8)]),
    Example("founding", founding.build, [(65536, 16, 8)]),
    Example("cat.gather", cat.gather, [(8192, 4096), (8192, 4096)]),
    Example("cat.scatter_shared_loop", cat.scatter_shared_loop, [(8192, 4096)]),
    Example("cat.scatter_horizontal", cat.scatter_horizontal, [(8192, 2048), (8192, 2048), (8192, 2048)]),
    Example("horizontal_fusion", horizontal_fusion.build, [(8192, 2048), (65536, 250)]),
    Example("nested_groups", nested_groups.build, [(8192, 4096), (8192, 4096)]),
    Example("pipeline", pipeline.build, [(8192, 4096), (4096,)]),
    Example("stream", lambda: stream.build(blocks=132, rows=32, columns=128, warps=8, stages=3), [(8192, 8192)]),
    Example("stream, 2 blocks", lambda: stream.build(blocks=264, rows=16, columns=128, warps=8, stages=4), [(8192, 8192)]),
    Example("stream, 2 blocks deep", lambda: stream.build(blocks=264, rows=16, columns=128, warps=4, stages=6), [(8192, 8192)]),
    Example("stream, 4 blocks", lambda: stream.build(blocks=528, rows=16, columns=64, warps=4, stages=5), [(8192, 8192)]),
    Example("stream, 1 block deep", lambda: stream.build(blocks=132, rows=32, columns=128, warps=16, stages=6), [(8192, 8192)]),
    Example("transpose", transpose.build, [(8192, 8192)]),
    Example("matmul", matmul.build, [(N, N), (N, N)], 2.0 * N**3),
)


def copy_bandwidth() -> float:
    """Bytes per second that a copy reads and writes."""
    pairs = [(torch.rand(1 << 28, device="cuda"), torch.empty(1 << 28, device="cuda")) for _ in range(2)]
    runs = [lambda a=a, b=b: b.copy_(a) for a, b in pairs]
    return 2 * 4 * (1 << 28) / (gpu_median(runs) * 1e-6)


def as_tuple(found: Any) -> Sequence[Any]:
    """One result as a tuple of it."""
    return (found,) if isinstance(found, torch.Tensor) else found


def check(name: str, found: Sequence[Any], wanted: Sequence[Any]) -> None:
    """Exits unless the results agree; sums of a matrix product by the size of their terms."""
    for a, b in zip(found, wanted, strict=True):
        error = float(((a - b).abs() / b.abs().clamp(min=1)).max())
        if not error <= TOLERANCE * (50 if name == "matmul" else 1):
            sys.exit(f"{name}: differs from torch by {error:g}")


def row(example: Example, bandwidth: float, compiled: bool) -> str:
    """Measure one example."""
    math = MATH[example.name]
    run = tf.compile(example.build(), backend="cuda")
    first = [torch.rand(shape, device="cuda") * 0.9 + 0.1 for shape in example.shapes]
    wanted = as_tuple(math(*first))
    size = sum(t.numel() * t.element_size() for t in (*first, *wanted))
    count = min(max(SETS, 2 * L2_BYTES // size + 1), 64)
    sets = [(first, [torch.full_like(t, float("nan")) for t in wanted])]
    for _ in range(count - 1):
        sets.append(([torch.rand(shape, device="cuda") * 0.9 + 0.1 for shape in example.shapes], [torch.full_like(t, float("nan")) for t in wanted]))
    time = gpu_median([lambda a=args, b=tuple(outs): run(*a, out=b) for args, outs in sets])
    check(example.name, sets[0][1], wanted)
    check(example.name, sets[-1][1], as_tuple(math(*sets[-1][0])))
    eager = gpu_median([lambda a=args: math(*a) for args, _ in sets])
    least = 1e6 * size / bandwidth
    shapes = " ".join("x".join(map(str, s)) for s in example.shapes)
    text = f"  {example.name:24} {shapes:32} {size / 1e6:9.1f} {time:9.1f} {least:9.1f} {least / time:6.0%} {eager:9.1f} {eager / time:6.2f}"
    if compiled:
        fast = torch.compile(math, dynamic=False)
        text += f" {gpu_median([lambda a=args: fast(*a) for args, _ in sets]):9.1f}"
    return text + (f"   {example.flops / time / 1e6:.1f} TFLOP/s" if example.flops else "")


def main() -> None:
    """Measure, print and, if asked, store."""
    arguments = parser(__doc__)
    arguments.add_argument("--compiled", action="store_true", help="also measure torch.compile")
    options = arguments.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = False
    bandwidth = copy_bandwidth()
    lines = [
        f"a copy moves {bandwidth / 1e12:.2f} TB/s (read and written); times in microseconds, medians of 30 rounds",
        "bound: the time of an example's bytes at that rate; share: bound / time; torch: op by op; x: torch / ours",
        f"  {'example':24} {'inputs, float32':32} {'MB':>9} {'time':>9} {'bound':>9} {'share':>6} {'torch':>9} {'x':>6}"
        + (f" {'compiled':>9}" if options.compiled else ""),
    ]
    for example in EXAMPLES:
        lines.append(row(example, bandwidth, options.compiled))
        print(lines[-1], file=sys.stderr, flush=True)
    publish("examples_gpu", lines, options)


if __name__ == "__main__":
    main()
