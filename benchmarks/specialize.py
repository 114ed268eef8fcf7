"""What fusions of unknown extents gain from being specialized at the call.

``python benchmarks/specialize.py [--write] [--only NAME]``. Each case runs three ways: as the kernel for all extents, specialized, and with its
extents declared as constants. Every call of a round has inputs and outputs of its own, which together exceed the L2 cache. Medians of 30
rounds, by CUDA events; results are checked against torch in float64. ``first`` is what the first call of a shape costs more: schedule, proof, code.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from reporting import L2_BYTES, gpu_median, parser, publish

import taskfuse as tf

DTYPES = {tf.float32: torch.float32, tf.bfloat16: torch.bfloat16}


@dataclass(frozen=True)
class Case:
    """Math in taskfuse and in torch.

    Attributes:
        inputs: the dimensions of each.
        sizes: of the dimensions.
    """

    name: str
    dtype: tf.DType
    inputs: Sequence[tuple[str, ...]]
    sizes: dict[str, int]
    build: Callable[..., Any]
    math: Callable[..., Any]


def gated(x: Any, y: Any) -> Any:
    """Two inputs."""
    return x * y + x


def tf_softmax(x: Any) -> Any:
    """Rows that are read again."""
    return tf.softmax(x, axis=1)


def torch_softmax(x: Any) -> Any:
    """In torch."""
    return torch.softmax(x, 1)


def sums(x: Any) -> Any:
    """Of rows."""
    return x.sum(1)


def product(a: Any, b: Any) -> Any:
    """Of matrices."""
    return a @ b


MN, FACTORS = [("M", "N")], [("M", "K"), ("K", "N")]
CASES = (
    Case("gated", tf.float32, MN * 2, {"M": 8192, "N": 8192}, gated, gated),
    Case("gated", tf.bfloat16, MN * 2, {"M": 8192, "N": 8192}, gated, gated),
    Case("gated", tf.bfloat16, MN * 2, {"M": 8192, "N": 8190}, gated, gated),
    Case("gated", tf.bfloat16, MN * 2, {"M": 8192, "N": 8191}, gated, gated),
    Case("softmax", tf.bfloat16, MN, {"M": 16384, "N": 1024}, tf_softmax, torch_softmax),
    Case("softmax", tf.bfloat16, MN, {"M": 8192, "N": 8192}, tf_softmax, torch_softmax),
    Case("softmax", tf.bfloat16, MN, {"M": 8, "N": 131072}, tf_softmax, torch_softmax),
    Case("sums", tf.float32, MN, {"M": 8192, "N": 8192}, sums, sums),
    Case("sums", tf.float32, MN, {"M": 4, "N": 1 << 22}, sums, sums),
    Case("product", tf.bfloat16, FACTORS, {"M": 4096, "K": 4096, "N": 4096}, product, product),
    Case("product", tf.bfloat16, FACTORS, {"M": 64, "K": 4096, "N": 4096}, product, product),
)


def fusion_of(case: Case, constant: bool) -> tf.Fusion:
    """The fusion, with constant or with symbolic extents."""
    with tf.Fusion(case.name) as fusion:
        shapes = [[case.sizes[d] if constant else d for d in dims] for dims in case.inputs]
        fusion.add_output(case.build(*(tf.define_tensor(shape, dtype=case.dtype) for shape in shapes)))
    return fusion


def row(case: Case) -> str:
    """Measure one case."""

    def inputs() -> list[Any]:
        return [(torch.rand([case.sizes[d] for d in dims], device="cuda") * 2 - 1).to(DTYPES[case.dtype]) for dims in case.inputs]

    first = inputs()
    exact = case.math(*(a.double() for a in first))
    out = torch.empty_like(exact, dtype=DTYPES[case.dtype])
    size = sum(t.numel() * t.element_size() for t in (*first, out))
    count = min(max(3, 2 * L2_BYTES // size + 1), 16)
    sets = [(first, out)] + [(inputs(), torch.empty_like(out)) for _ in range(count - 1)]
    symbolic = fusion_of(case, constant=False)
    runs = [tf.compile(symbolic, "cuda", specialize=False), tf.compile(symbolic, "cuda"), tf.compile(fusion_of(case, constant=True), "cuda")]
    times: list[float] = []
    begin = time.perf_counter()
    runs[1](*first, out=out)
    torch.cuda.synchronize()
    elapsed = time.perf_counter() - begin
    for run in runs:
        out.fill_(float("nan"))
        times.append(gpu_median([lambda run=run, a=args, b=out: run(*a, out=b) for args, out in sets]))
        error = float(((out.double() - exact).abs() / exact.abs().clamp(min=1)).max())
        if not error <= (1e-3 if case.dtype is tf.float32 else 2e-2):
            sys.exit(f"{case.name}: differs by {error:g}")
    general, special, constant = times
    sizes = " ".join(f"{name}={value}" for name, value in case.sizes.items())
    schedule = runs[1].at(case.sizes).schedule
    assert schedule is not None
    chosen = schedule.explain().splitlines()[0].split("chosen: ")[-1]
    return (
        f"  {case.name:8} {case.dtype.name:9} {sizes:24} {general:8.1f} {special:8.1f} {constant:8.1f} {general / special:6.2f} "
        f"{constant / special:6.2f} {elapsed:6.1f}  {chosen}"
    )


def main() -> None:
    """Measure, print and, if asked, store."""
    arguments = parser(__doc__)
    arguments.add_argument("--only", default="", help="cases whose name begins so")
    options = arguments.parse_args()
    lines = [
        "times in microseconds, medians of 30 rounds; x: the others / specialized; first: seconds of the first call",
        f"  {'case':8} {'dtype':9} {'sizes':24} {'all':>8} {'special':>8} {'constant':>8} {'x':>6} {'x':>6} {'first':>6}  schedule",
    ]
    for case in CASES:
        if case.name.startswith(options.only):
            lines.append(row(case))
            print(lines[-1], file=sys.stderr, flush=True)
    publish("specialize", lines, options)


if __name__ == "__main__":
    main()
