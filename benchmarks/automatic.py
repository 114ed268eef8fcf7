"""Automatic schedules against torch, run op by op and compiled, beside the time that the bytes take at the bandwidth of a copy.

``python benchmarks/automatic.py [--write] [--only NAME]``. Inputs are random; every call of a round has inputs and outputs of its own, which together
exceed the L2 cache; outputs are poisoned before, and checked against torch in float64 after. Medians of 30 rounds, by CUDA events, all
runners of a case in one process. A case is a row of ``CASES``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from reporting import L2_BYTES, gpu_median, parser, publish

import taskfuse as tf

Shape = tuple[int, ...]
DTYPES = {tf.float32: torch.float32, tf.bfloat16: torch.bfloat16}
TOLERANCE = {tf.float32: 1e-4, tf.bfloat16: 2e-2}
"""Relative, of a result of absolute value 1 or more."""


@dataclass(frozen=True)
class Case:
    """Math in taskfuse and in torch.

    Attributes:
        build: outputs from inputs in taskfuse.
        math: the same in torch.
        shapes: of the inputs.
    """

    name: str
    dtype: tf.DType
    shapes: Sequence[Shape]
    build: Callable[..., Any]
    math: Callable[..., Any]


def founding(ns: Any) -> Callable[[Any], Any]:
    """Four branches into a concatenation: ``ns`` is taskfuse or torch."""

    def math(x: Any) -> Any:
        parts = [ns.cos(ns.sin(x)), ns.relu(ns.tan(x)), ns.sigmoid(ns.exp(x)), ns.tanh(ns.log(x))]
        return ns.neg(ns.cat(parts, 0))

    return math


def gated(x: Any, gate: Any, bias: Any) -> Any:
    """silu(x) * gate + bias, by functions that tensors of both have."""
    return x * gate + bias


def tf_silu(x: Any, gate: Any, bias: Any) -> Any:
    """In taskfuse."""
    return gated(tf.silu(x), gate, bias)


def torch_silu(x: Any, gate: Any, bias: Any) -> Any:
    """In torch."""
    return gated(torch.nn.functional.silu(x), gate, bias)


def scaled(x: Any, scale: Any) -> Any:
    """Rows by factors."""
    return x * scale + 1


def tf_transpose(x: Any) -> Any:
    """In taskfuse."""
    return tf.copy(x.T)


def torch_transpose(x: Any) -> Any:
    """In torch."""
    return x.T.contiguous()


def add_transposed(x: Any, y: Any) -> Any:
    """A sum of two inputs, contiguous along different axes."""
    return x + y.T


def tf_heads(x: Any) -> Any:
    """In taskfuse."""
    return tf.copy(x.permute(0, 2, 3, 1))


def torch_heads(x: Any) -> Any:
    """In torch."""
    return x.permute(0, 2, 3, 1).contiguous()


def joined(ns: Any) -> Callable[[Any, Any], Any]:
    """A function of two inputs side by side."""

    def math(x: Any, y: Any) -> Any:
        return ns.relu(ns.cat([x, y], 1))

    return math


def product(a: Any, b: Any) -> Any:
    """A matrix product; float32 runs on CUDA cores in both."""
    return a @ b


N = 8192
CASES = (
    Case("founding", tf.float32, [(N, N)], founding(tf), founding(torch)),
    Case("copy", tf.float32, [(N, N)], tf.copy, torch.clone),
    Case("exp", tf.float32, [(N, N)], tf.exp, torch.exp),
    Case("exp", tf.bfloat16, [(N, N)], tf.exp, torch.exp),
    Case("silu gate bias", tf.float32, [(N, N), (N, N), (N,)], tf_silu, torch_silu),
    Case("silu gate bias", tf.bfloat16, [(N, N), (N, N), (N,)], tf_silu, torch_silu),
    Case("row scale", tf.float32, [(N, N), (N, 1)], scaled, scaled),
    Case("odd rows", tf.float32, [(N, 4095)], tf.exp, torch.exp),
    Case("transpose", tf.float32, [(N, N)], tf_transpose, torch_transpose),
    Case("transpose", tf.bfloat16, [(N, N)], tf_transpose, torch_transpose),
    Case("add transposed", tf.float32, [(N, N), (N, N)], add_transposed, add_transposed),
    Case("heads", tf.bfloat16, [(8, 2048, 32, 128)], tf_heads, torch_heads),
    Case("cat of inputs", tf.float32, [(N, 4096), (N, 4096)], joined(tf), joined(torch)),
    Case("product", tf.float32, [(512, 512), (512, 512)], product, product),
    Case("product", tf.float32, [(2048, 2048), (2048, 2048)], product, product),
    Case("product", tf.float32, [(1000, 3000), (3000, 1000)], product, product),
    Case("product", tf.float32, [(64, 128, 96), (64, 96, 160)], product, product),
)


def copy_bandwidth() -> float:
    """Bytes per second that a copy reads and writes."""
    pairs = [(torch.rand(1 << 28, device="cuda"), torch.empty(1 << 28, device="cuda")) for _ in range(2)]
    return 2 * 4 * (1 << 28) / (gpu_median([lambda a=a, b=b: b.copy_(a) for a, b in pairs]) * 1e-6)


def compiled(case: Case) -> Any:
    """The fusion, scheduled automatically."""
    with tf.Fusion(case.name.replace(" ", "_")) as fusion:
        fusion.add_output(case.build(*(tf.define_tensor(shape, dtype=case.dtype) for shape in case.shapes)))
    return tf.compile(fusion, backend="cuda")


def row(case: Case, bandwidth: float) -> str:
    """Measure one case."""
    dtype = DTYPES[case.dtype]
    run = compiled(case)

    def inputs() -> list[Any]:
        return [(torch.rand(shape, device="cuda") * 0.9 + 0.1).to(dtype) for shape in case.shapes]

    first = inputs()
    out = case.math(*first)
    size = sum(t.numel() * t.element_size() for t in (*first, out))
    count = min(max(3, 2 * L2_BYTES // size + 1), 16)
    sets = [(first, torch.full_like(out, float("nan")))] + [(inputs(), torch.full_like(out, float("nan"))) for _ in range(count - 1)]
    ours = gpu_median([lambda a=args, b=out: run(*a, out=b) for args, out in sets])
    for args, found in (sets[0], sets[-1]):
        exact = case.math(*(a.double() for a in args))
        error = float(((found.double() - exact).abs() / exact.abs().clamp(min=1)).max())
        del exact
        if not error <= TOLERANCE[case.dtype]:
            sys.exit(f"{case.name}: differs by {error:g}")
    eager = gpu_median([lambda a=args: case.math(*a) for args, _ in sets])
    fast = torch.compile(case.math, dynamic=False)
    inductor = gpu_median([lambda a=args: fast(*a) for args, _ in sets])
    bound = 1e6 * size / bandwidth
    shapes = " ".join("x".join(map(str, s)) for s in case.shapes)
    chosen = "+".join(k.name for k in run.kernels) if len(run.kernels) > 1 else run.schedule.scheduler
    return (
        f"  {case.name:15} {case.dtype.name:9} {shapes:26} {size / 1e6:8.1f} {ours:8.1f} {run.schedule.us:8.1f} {bound:8.1f} {bound / ours:6.0%} "
        f"{eager:8.1f} {inductor:8.1f} {eager / ours:6.2f} {inductor / ours:6.2f}  {chosen}"
    )


def main() -> None:
    """Measure, print and, if asked, store."""
    arguments = parser(__doc__)
    arguments.add_argument("--only", default="", help="cases whose name begins so")
    options = arguments.parse_args()
    bandwidth = copy_bandwidth()
    lines = [
        f"a copy moves {bandwidth / 1e12:.2f} TB/s (read and written); times in microseconds, medians of 30 rounds",
        "expected: by the cost model; bound: the time of the bytes at that rate; share: bound / time; x: torch / ours, op by op and compiled",
        f"  {'case':15} {'dtype':9} {'inputs':26} {'MB':>8} {'time':>8} {'expected':>8} {'bound':>8} {'share':>6} "
        f"{'torch':>8} {'compiled':>8} {'x':>6} {'x':>6}"
        "  scheduler",
    ]
    print("\n".join(lines), file=sys.stderr, flush=True)
    for case in CASES:
        if case.name.startswith(options.only):
            lines.append(row(case, bandwidth))
            print(lines[-1], file=sys.stderr, flush=True)
    publish("automatic", lines, options)


if __name__ == "__main__":
    main()
