"""Matrix products of every alignment, layout and precision, beside torch's, in one run.

    python benchmarks/precisions.py [alignment] [bytes] [double] [float] [warps] [--predict] [--write]

Parts: ``alignment``: 16-bit factors whose rows are not multiples of 16 bytes, and odd results; ``bytes``: 8-bit factors in every layout; ``double``: float64;
``float``: float32 as it is, and as products of parts, with the error against float64; ``warps``: parameters of ``tf.schedulers.mma_gemm``.

Each line: the product (``km``: the axes of a factor as they lie in memory), microseconds of ``tf.compile`` and of torch for the same math, torch's time by
ours, what the cost models expect, the greatest error relative to the sum of a term's magnitudes, and the schedulers. ``alone``: where the product is taken
apart, the time of the one kernel that ``tf.schedulers.matmul`` makes, whose threads copy the factors. ``--predict`` needs no GPU: what the cost models expect.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
from reporting import in_turn, parser, publish

import taskfuse as tf
from taskfuse.errors import TaskfuseError, UnsupportedError
from taskfuse.schedulers import MmaGemmConfig

Products = Literal["ieee", "bf16x3", "bf16x6", "bf16x9"]
TORCH = {
    tf.bfloat16: torch.bfloat16,
    tf.float16: torch.float16,
    tf.float32: torch.float32,
    tf.float64: torch.float64,
    tf.float8_e4m3: torch.float8_e4m3fn,
    tf.int8: torch.int8,
}
PARTS = ("alignment", "bytes", "double", "float", "warps")


@dataclass(frozen=True)
class Case:
    """``a @ b``, with the axes of the factors as they lie in memory."""

    m: int
    n: int
    k: int
    dtype: tf.DType
    a: str = "mk"
    b: str = "kn"
    products: Products = "ieee"
    tf32: bool = False

    @property
    def out(self) -> tf.DType:
        """The dtype of the result."""
        return tf.int32 if self.dtype is tf.int8 else tf.bfloat16 if self.dtype is tf.float8_e4m3 else self.dtype

    @property
    def sums(self) -> tf.DType:
        """The dtype of the sums."""
        return tf.int32 if self.dtype is tf.int8 else tf.float64 if self.dtype is tf.float64 else tf.float32

    def fusion(self) -> tf.Fusion:
        """The math."""
        extents = {"m": self.m, "n": self.n, "k": self.k}
        with tf.Fusion("product") as fusion:
            a, b = (tf.define_tensor([extents[x] for x in axes], dtype=self.dtype, name=name) for axes, name in ((self.a, "a"), (self.b, "b")))
            product = tf.einsum(f"{self.a},{self.b}->mn", a, b, dtype=self.sums)
            fusion.add_output(product if self.out is self.sums else tf.cast(product, self.out))
        return fusion

    def __str__(self) -> str:
        way = "" if self.products == "ieee" else f" {self.products}"
        return f"{self.m} x {self.n} x {self.k} {self.dtype.name} {self.a},{self.b}{way}{' beside tf32' if self.tf32 else ''}"


def alignment() -> list[Case]:
    """K of every multiple, in both layouts; odd rows and columns."""
    cases = [Case(4096, 4096, 4096 - 8 + unit, tf.bfloat16, b="nk") for unit in (8, 4, 2, 1)]
    cases += [Case(4096, 4096, k, tf.float16, b="nk") for k in (4095, 4094)]
    cases += [Case(4096, 4096, 4095, tf.bfloat16), Case(4096, 4096, 4095, tf.bfloat16, a="km")]
    cases += [Case(4096, 4095, 4096, tf.bfloat16), Case(4095, 4096, 4096, tf.bfloat16), Case(4095, 4093, 4091, tf.bfloat16)]
    cases += [Case(2047, 4095, 1023, tf.bfloat16), Case(2047, 1023, 4095, tf.bfloat16, b="nk"), Case(1023, 1023, 1023, tf.bfloat16)]
    return [*cases, Case(511, 511, 511, tf.bfloat16, b="nk"), Case(8192, 50257, 768, tf.bfloat16, b="nk"), Case(8192, 768, 50257, tf.bfloat16)]


def of_bytes() -> list[Case]:
    """8-bit factors in every layout."""
    layouts = (("mk", "nk"), ("mk", "kn"), ("km", "nk"), ("km", "kn"))
    cases = [Case(4096, 4096, 4096, dtype, a, b) for dtype in (tf.float8_e4m3, tf.int8) for a, b in layouts]
    return [*cases, Case(4096, 4096, 4095, tf.float8_e4m3, b="nk"), Case(1024, 1024, 1024, tf.float8_e4m3), Case(1000, 1001, 1003, tf.int8)]


def double() -> list[Case]:
    """float64."""
    sizes = ((4096, 4096, 4096), (2048, 2048, 2048), (1024, 1024, 1024), (8192, 1024, 1024), (4095, 4097, 4099), (512, 512, 8192))
    return [Case(*size, tf.float64, b=b) for size in sizes for b in ("kn", "nk")]


def of_floats() -> list[Case]:
    """float32 by all ways."""
    sizes = ((4096, 4096, 4096), (2048, 2048, 2048), (1024, 1024, 1024), (2047, 1023, 4095))
    ways: tuple[Products, ...] = ("ieee", "bf16x3", "bf16x6", "bf16x9")
    return [Case(*size, tf.float32, products=way) for size in sizes for way in ways] + [Case(4096, 4096, 4096, tf.float32, products="bf16x3", tf32=True)]


def factors(case: Case) -> tuple[torch.Tensor, torch.Tensor]:
    """Random factors as they lie in memory."""
    generator = torch.Generator("cuda").manual_seed(0)
    extents = {"m": case.m, "n": case.n, "k": case.k}
    found: list[torch.Tensor] = []
    for axes in (case.a, case.b):
        shape = [extents[x] for x in axes]
        if case.dtype is tf.int8:
            found.append(torch.randint(-128, 128, shape, device="cuda", dtype=torch.int8, generator=generator))
        else:
            wide = torch.float64 if case.dtype is tf.float64 else torch.float32
            found.append(torch.randn(shape, device="cuda", dtype=wide, generator=generator).to(TORCH[case.dtype]))
    return found[0], found[1]


def matrices(case: Case, a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Views [m, k] and [k, n]."""
    return a if case.a == "mk" else a.T, b if case.b == "kn" else b.T


def theirs(case: Case, a: torch.Tensor, b: torch.Tensor) -> Callable[[], object]:
    """torch's call for the same math; copies, where its call does not take a layout, are part of it."""
    x, y = matrices(case, a, b)
    if case.dtype is tf.float8_e4m3:
        one = torch.ones((), device="cuda")

        def scaled() -> object:
            left, right = x.contiguous(), y if case.b == "nk" else y.T.contiguous().T
            return torch._scaled_mm(left, right, scale_a=one, scale_b=one, out_dtype=torch.bfloat16, use_fast_accum=True)

        return scaled
    if case.dtype is tf.int8:
        return lambda: torch._int_mm(x.contiguous(), y)
    out = torch.empty(case.m, case.n, device="cuda", dtype=TORCH[case.dtype])
    return lambda: torch.mm(x, y, out=out)


def error(case: Case, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> float:
    """The greatest error of some rows, relative to the sum of the magnitudes of the terms. Exits if an element is wrong."""
    x, y = (v.double() for v in matrices(case, a, b))
    rows = torch.unique(torch.linspace(0, case.m - 1, min(case.m, 256), device="cuda").long())
    exact, size = x[rows] @ y, x[rows].abs() @ y.abs()
    found = (out[rows].double() - exact).abs()
    rounding = {tf.bfloat16: 2.0**-8, tf.float16: 2.0**-10}.get(case.out, 0.0) * exact.abs()
    bound = {"bf16x3": 2.0**-14, "bf16x6": 2.0**-20, "bf16x9": 2.0**-20}.get(case.products, 2.0**-9 if case.dtype is tf.float8_e4m3 else 2.0**-20)
    if not bool((found <= rounding + size * bound).all()):
        sys.exit(f"{case}: wrong by {float((found / size.clamp_min(1e-30)).max()):.1e} of the sum of magnitudes")
    return float((found / size.clamp_min(1e-30)).max())


def compiled(case: Case) -> Any:
    """Our function; of float32 by the way that is asked for."""
    return tf.compile(case.fusion(), backend="auto", float32_products=case.products)


def named(run: Any) -> str:
    """The schedulers."""
    steps = getattr(run.schedule, "steps", ())
    return " ".join(part.schedule.scheduler for step in steps for part in step.parts) or str(run.schedule.scheduler)


def alone(case: Case) -> tf.Fusion | None:
    """The product as one kernel of the copy engine or of threads, if there is one."""
    fusion = case.fusion()
    try:
        tf.schedulers.matmul(fusion)
    except UnsupportedError:
        return None
    return fusion


def measured(case: Case) -> str:
    """One line."""
    run = compiled(case)
    a, b = factors(case)
    out = torch.full((case.m, case.n), -77 if case.out is tf.int32 else float("nan"), device="cuda", dtype=TORCH.get(case.out, torch.int32))
    run(a, b, out=out)
    wrong = error(case, a, b, out)
    torch.backends.cuda.matmul.allow_tf32 = case.tf32
    calls: list[Callable[[], object]] = [lambda: run(a, b, out=out)]
    call = theirs(case, a, b)
    try:
        call()
        calls.append(call)
    except RuntimeError as refused:
        print(f"torch does not take {case}: {str(refused).splitlines()[0]}", flush=True)
    one = alone(case) if len(run.kernels) > 1 and case.products == "ieee" else None
    if one is not None:
        single = tf.compile(one)
        calls.append(lambda: single(a, b, out=out))
    times = in_turn(calls)
    error(case, a, b, out)
    torchs = times[1] if call in calls else float("nan")
    more = f", alone {times[-1]:8.1f}" if one is not None else ""
    ratio = f"{torchs / times[0]:5.2f}"
    return f"{case!s:52} {times[0]:8.1f} us, torch {torchs:8.1f}, ratio {ratio}, expected {run.schedule.us:8.1f}, error {wrong:.1e}{more}  {named(run)}"


def predicted(case: Case) -> str:
    """One line without a GPU."""
    run = compiled(case)
    return f"{case!s:52} expected {run.schedule.us:8.1f} us  {named(run)}"


def warps() -> list[str]:
    """Parameters of products of float64 by warps, at two sizes."""
    lines: list[str] = []
    for case in (Case(4096, 4096, 4096, tf.float64), Case(1024, 1024, 1024, tf.float64)):
        a, b = factors(case)
        out = torch.full((case.m, case.n), float("nan"), device="cuda", dtype=torch.float64)
        lines.append(f"{case}")
        for tile in ((128, 128, 64, 32), (128, 64, 64, 32), (64, 128, 64, 32), (64, 64, 64, 32), (128, 64, 32, 32), (64, 64, 32, 32), (64, 32, 32, 16)):
            for step, tile_k, stages, ahead in ((8, 16, 3, 1), (16, 16, 3, 1), (8, 32, 2, 1), (8, 32, 3, 1), (16, 32, 2, 1), (8, 16, 4, 1)):
                fusion = case.fusion()
                config = MmaGemmConfig(*tile, tile_k, step, stages, ahead)
                try:
                    chosen = tf.schedulers.mma_gemm(fusion, config)
                    run = tf.compile(fusion, backend="cuda")
                    run(a, b, out=out)
                except TaskfuseError as refused:
                    lines.append(f"  {config.words}, {ahead} ahead: {refused.message.splitlines()[0]}")
                    continue
                error(case, a, b, out)
                (us,) = in_turn([partial(run, a, b, out=out)])
                lines.append(f"  {config.words}, {ahead} ahead: {us:8.1f} us, expected {chosen.us:8.1f}, {2e-6 * case.m * case.n * case.k / us:5.1f} TFLOP/s")
    return lines


def main() -> None:
    """Measure, or predict, the parts that are asked for."""
    found = parser(__doc__)
    found.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)} (default: all)")
    found.add_argument("--predict", action="store_true", help="what the cost models expect, without a GPU")
    options: argparse.Namespace = found.parse_args()
    lists: dict[str, Callable[[], Sequence[Case]]] = {"alignment": alignment, "bytes": of_bytes, "double": double, "float": of_floats}
    lines: list[str] = []
    for part in options.parts or PARTS:
        lines += ["", part]
        if part == "warps":
            lines += [] if options.predict else warps()
            continue
        for case in lists[part]():
            lines.append((predicted if options.predict else measured)(case))
            print(lines[-1], flush=True)
    if not options.predict:
        publish("precisions", lines, options)


if __name__ == "__main__":
    main()
