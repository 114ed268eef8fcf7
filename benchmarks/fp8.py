"""Products of 8-bit floats with scales, ``tf.scaled_matmul``, beside ``torch._scaled_mm`` and cuBLAS in bfloat16, and figures that DeepGEMM publishes.

``python benchmarks/fp8.py [--tiles] [--write]``. Forms of scales: one of a row and one of a column (``rows``), 1 x 128 by 128 x 128 (``1d2d``), 1 x 128 by
1 x 128 (``1d1d``). Shapes are those of DeepGEMM's tests with 4096 rows, and one more; the published figure is the best that its README says of an H800, for
no shape in particular. Inputs are random, outputs are poisoned with NaN and compared with a product in float64; calls take turns, so that throttling hits all.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial

import torch
from reporting import in_turn, parser, publish

import taskfuse as tf
from taskfuse.errors import UnsupportedError
from taskfuse.schedulers import MatmulConfig

SHAPES = ((4096, 2112, 7168), (4096, 24576, 1536), (4096, 32768, 512), (4096, 7168, 16384), (4096, 4096, 7168), (4096, 7168, 2048), (8192, 8192, 8192))
PUBLISHED = "DeepGEMM publishes up to 1550 TFLOP/s of 8-bit floats with scales of 128 elements on an H800 (README, 18 April 2025)"
BLOCK = 128
TILES = (
    *((128, 128, 2, 1), (128, 128, 2, 2), (128, 192, 2, 1), (128, 192, 2, 2), (128, 160, 2, 1)),
    *((192, 128, 3, 1), (192, 96, 3, 1), (128, 96, 2, 1), (64, 128, 1, 1)),
)
"""tile_m, tile_n, warpgroups, cluster."""


def fusion_of(form: str, m: int, n: int, k: int) -> tf.Fusion:
    """The product; scales of rows lie side by side, as torch wants them."""
    blocks, f32 = k // BLOCK, tf.float32
    with tf.Fusion(f"fp8_{form}") as fusion:
        a, b = (tf.define_tensor((rows, k), tf.float8_e4m3, name=name) for rows, name in ((m, "a"), (n, "b")))
        if form == "rows":
            scale_a, scale_b = tf.define_tensor((m, 1), f32, name="scale_a"), tf.define_tensor((1, n), f32, name="scale_b")
        else:
            scale_a = tf.define_tensor((blocks, m), f32, name="scale_a").T
            shapes: dict[str, tuple[int, ...]] = {"1d2d": (-(-n // BLOCK), blocks), "1d1d": (blocks, n), "1dx": ()}
            scale_b = tf.define_tensor(shapes[form], f32, name="scale_b")
            if form == "1d2d":
                scale_b = scale_b.T
        fusion.add_output(tf.scaled_matmul(a, b.T, scale_a, scale_b, dtype=tf.bfloat16))
    return fusion


def inputs(form: str, m: int, n: int, k: int) -> tuple[torch.Tensor, ...]:
    """Random factors and scales, as the fusion takes them."""
    blocks = k // BLOCK
    shapes = {"rows": ((m, 1), (1, n)), "1d2d": ((blocks, m), (-(-n // BLOCK), blocks)), "1d1d": ((blocks, m), (blocks, n))}
    factors = (torch.randn(rows, k, device="cuda").to(torch.float8_e4m3fn) for rows in (m, n))
    return (*factors, *(torch.rand(shape, device="cuda") + 0.5 for shape in shapes[form]))


def check(form: str, out: torch.Tensor, a: torch.Tensor, b: torch.Tensor, scale_a: torch.Tensor, scale_b: torch.Tensor) -> float:
    """The greatest error relative to the sum of the sizes of the terms; exits if an element is wrong."""
    x, y = a.double(), b.double()
    if form == "rows":
        x, y = x * scale_a, y * scale_b.T
    else:
        x = x * scale_a.T.repeat_interleave(BLOCK, 1)
        y = y * (scale_b.T.repeat_interleave(BLOCK, 1) if form == "1d1d" else scale_b.repeat_interleave(BLOCK, 0)[: b.shape[0]].repeat_interleave(BLOCK, 1))
    wanted, size = x @ y.T, x.abs() @ y.abs().T
    error = (out.double() - wanted).abs()
    if not bool((error <= wanted.abs() * 2**-8 + size * 2**-10).all()):
        sys.exit(f"{form}: off by {float((error / size).max()):.1e} of the sizes of the terms")
    return float((error / size).max())


def theirs(form: str, a: torch.Tensor, b: torch.Tensor, scale_a: torch.Tensor, scale_b: torch.Tensor) -> Callable[[], object] | None:
    """``torch._scaled_mm`` of the same, in the first layout of the scales that it takes; ``None`` if it takes none."""
    n, k = b.shape
    if form == "rows":
        options = [(scale_a, scale_b)]
    else:
        right = scale_b if form == "1d1d" else scale_b.T
        options = [(scale_a.T, layout) for layout in (right, right.contiguous(), right.T.contiguous().T)]
    reason = ""
    for left, right in options:
        call = partial(torch._scaled_mm, a, b.T, scale_a=left, scale_b=right, out_dtype=torch.bfloat16)
        try:
            check(form, call(), a, b, scale_a, scale_b)
        except (RuntimeError, ValueError, NotImplementedError) as error:
            reason = str(error).splitlines()[0][:200]
            continue
        return call
    print(f"torch._scaled_mm does not take {form} at {n} x {k}: {reason}", flush=True)
    return None


def scheduled(form: str, shape: tuple[int, int, int], tile_m: int, tile_n: int, warpgroups: int, cluster: int) -> tf.Fusion | None:
    """The product with a tile and as many stages as there is room for; ``None`` if the tile does not suit it."""
    for stages in range(8, 2, -1):
        fusion = fusion_of(form, *shape)
        try:
            tf.schedulers.matmul(fusion, MatmulConfig(tile_m, tile_n, 128, warpgroups, stages, 0, 16, 132, cluster=cluster))
        except UnsupportedError:
            continue
        return fusion
    return None


def of_tiles(form: str, m: int, n: int, k: int) -> list[str]:
    """Lines: every tile."""
    lines: list[str] = []
    given = inputs(form, m, n, k)
    for tile_m, tile_n, warpgroups, cluster in TILES:
        fusion = scheduled(form, (m, n, k), tile_m, tile_n, warpgroups, cluster)
        if fusion is None:
            continue
        out = torch.full((m, n), float("nan"), device="cuda", dtype=torch.bfloat16)
        run = tf.compile(fusion, backend="cuda")
        run(*given, out=(out,))
        check(form, out, *given)
        (us,) = in_turn([lambda run=run, out=out, given=given: run(*given, out=(out,))])
        rate = 2 * m * n * k / us / 1e6
        lines.append(f"{form} {m} {n} {k}  {tile_m} x {tile_n}, {warpgroups} warpgroups, cluster {cluster}: {us:8.1f} us, {rate:5.0f} TFLOP/s")
        print(lines[-1], flush=True)
    return lines


def line(form: str, m: int, n: int, k: int) -> str:
    """One form at one shape."""
    fusion, given = fusion_of(form, m, n, k), inputs(form, m, n, k)
    chosen = tf.schedulers.matmul(fusion).config
    out = torch.full((m, n), float("nan"), device="cuda", dtype=torch.bfloat16)
    run = tf.compile(fusion, backend="cuda")
    run(*given, out=(out,))
    error = check(form, out, *given)
    other = theirs(form, *given)
    x, y = given[0].to(torch.bfloat16), given[1].to(torch.bfloat16)
    calls: list[Callable[[], object]] = [lambda: run(*given, out=(out,)), lambda: torch.mm(x, y.T)]
    ours, half, *rest = in_turn(calls if other is None else [*calls, other])
    rates = "".join(f"{2 * m * n * k / us / 1e6:8.0f}" for us in (ours, *rest)) + ("" if rest else f"{'-':>8}")
    ratio = f"{rest[0] / ours:6.2f}" if rest else f"{'-':>6}"
    tile = f"{chosen.tile_m} x {chosen.tile_n}{', pairs' if chosen.cluster > 1 else ''}"
    return f"{form:5} {m:5} {n:6} {k:6}  {tile:16} {ours:8.1f} {rates} {ratio} {half / ours:6.2f} {error:9.1e}"


def main() -> None:
    """All forms at all shapes."""
    options = parser(__doc__)
    options.add_argument("--tiles", action="store_true", help="every tile at one shape, instead of the scheduler's choice at all")
    options = options.parse_args()
    if options.tiles:
        for form, (m, n, k) in (("1d2d", SHAPES[4]), ("1d1d", SHAPES[4]), ("1d2d", SHAPES[5])):
            of_tiles(form, m, n, k)
        return
    lines = [PUBLISHED]
    lines += [f"{'form':5} {'m':>5} {'n':>6} {'k':>6}  {'tile':16} {'us':>8} {'TFLOP/s':>8} {'torch':>7} {'ratio':>6} {'/bf16':>6} {'error':>9}"]
    for form in ("rows", "1d2d", "1d1d"):
        for shape in SHAPES:
            lines.append(line(form, *shape))
            print(lines[-1], flush=True)
    publish("fp8", lines, options)


if __name__ == "__main__":
    main()
