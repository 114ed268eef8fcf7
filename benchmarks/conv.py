"""Convolutions on tensor cores, as one kernel of ``tf.schedulers.matmul``, beside torch (cuDNN, channels last, ``benchmark=True``).

``python benchmarks/conv.py [--write] [--seconds S] [--kinds] [--compiled] [NAME ...]``. Shapes are those of ResNet-50 (batch 32), ConvNeXt (batch 32) and a
diffusion UNet (batch 2), in bfloat16, some in float16 (``h``); NAME: only those whose names begin so. Columns: ours and cuDNN's of the convolution alone; then
with a bias and relu: ours, one kernel, and torch's, eager. Kernels are built in parallel before anything is measured. A time is that of one of 10 calls in a
CUDA graph, the median of 20 replays; ours and theirs are replayed in turn. Outputs are poisoned with NaN, then compared with float32: an element may be off
by 2**-6 of itself and 2**-7 of the magnitudes of its terms.
``--kinds`` measures the first candidate of the cost model for other tiles, too: whether it chose well.
``--compiled``: as ``tf.compile`` schedules them, where a convolution may be several kernels: of few channels, of groups, of small images with many channels.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import ahead
import torch
import torch.nn.functional as F
from ahead import Ahead
from built import Built, built
from reporting import in_turn, parser, publish

import taskfuse as tf
from taskfuse.schedulers import MatmulConfig
from taskfuse.target import DEFAULT

TARGET = DEFAULT


@dataclass(frozen=True)
class Job:
    """A convolution of square images ``[n, size, size, channels]`` with windows ``[out, window, window, channels of a group]``."""

    name: str
    n: int
    channels: int
    out: int
    size: int
    window: int
    stride: int = 1
    padding: int = 0
    dilation: int = 1
    half: bool = False
    ends: bool = False
    config: MatmulConfig | None = None
    groups: int = 1

    @property
    def dtype(self) -> torch.dtype:
        """Of operands and result."""
        return torch.float16 if self.half else torch.bfloat16

    @property
    def result(self) -> tuple[int, int, int, int]:
        """The shape of the result."""
        size = (self.size + 2 * self.padding - self.dilation * (self.window - 1) - 1) // self.stride + 1
        return self.n, size, size, self.out

    @property
    def flops(self) -> float:
        """Operations, of multiplications and additions."""
        n, h, w, out = self.result
        return 2.0 * n * h * w * out * self.window**2 * (self.channels // self.groups)

    def fusion(self) -> tf.Fusion:
        """The math, channels last; with bias and relu if it ``ends`` so."""
        kind = tf.float16 if self.half else tf.bfloat16
        with tf.Fusion("conv") as fusion:
            x = tf.define_tensor([self.n, self.size, self.size, self.channels], kind, "x")
            w = tf.define_tensor([self.out, self.window, self.window, self.channels // self.groups], kind, "w")
            b = tf.define_tensor([self.out], kind, "b") if self.ends else None
            y = tf.conv2d(tf.permute(x, [0, 3, 1, 2]), tf.permute(w, [0, 3, 1, 2]), b, self.stride, self.padding, self.dilation, self.groups)
            fusion.add_output(tf.permute(tf.relu(y) if self.ends else y, [0, 2, 3, 1]))
        return fusion

    def __str__(self) -> str:
        return f"{self.name:18} {self.n:3} {self.channels:5} {self.out:5} {self.size:4} {self.window}/{self.stride}"


JOBS = (
    Job("resnet.3x3.64", 32, 64, 64, 56, 3, 1, 1),
    Job("resnet.3x3.128", 32, 128, 128, 28, 3, 1, 1),
    Job("resnet.3x3.256", 32, 256, 256, 14, 3, 1, 1),
    Job("resnet.3x3.512", 32, 512, 512, 7, 3, 1, 1),
    Job("resnet.3x3.128s", 32, 128, 128, 56, 3, 2, 1),
    Job("resnet.3x3.256s", 32, 256, 256, 28, 3, 2, 1),
    Job("resnet.3x3.512s", 32, 512, 512, 14, 3, 2, 1),
    Job("resnet.1x1.a", 32, 64, 256, 56, 1),
    Job("resnet.1x1.b", 32, 512, 128, 28, 1),
    Job("resnet.1x1.c", 32, 1024, 2048, 14, 1, 2),
    Job("resnet.3x3.64h", 32, 64, 64, 56, 3, 1, 1, half=True),
    Job("convnext.2x2.96", 32, 96, 192, 56, 2, 2),
    Job("convnext.2x2.192", 32, 192, 384, 28, 2, 2),
    Job("convnext.2x2.384", 32, 384, 768, 14, 2, 2),
    Job("convnext.1x1.96", 32, 96, 384, 56, 1),
    Job("unet.320", 2, 320, 320, 64, 3, 1, 1),
    Job("unet.320h", 2, 320, 320, 64, 3, 1, 1, half=True),
    Job("unet.640", 2, 640, 640, 32, 3, 1, 1),
    Job("unet.1280", 2, 1280, 1280, 16, 3, 1, 1),
    Job("unet.1280.small", 2, 1280, 1280, 8, 3, 1, 1),
    Job("unet.2560", 2, 2560, 1280, 16, 3, 1, 1),
    Job("unet.320s", 2, 320, 320, 64, 3, 2, 1),
    Job("unet.xl.640", 8, 640, 640, 64, 3, 1, 1),
    Job("dilated.256", 8, 256, 256, 64, 3, 1, 2, 2),
)

COMPILED = (
    Job("stem.7x7", 32, 3, 64, 224, 7, 2, 3),
    Job("stem.3x3", 32, 3, 32, 224, 3, 2, 1),
    Job("patches.16", 32, 3, 768, 224, 16, 16),
    Job("patches.14", 32, 3, 1024, 224, 14, 14),
    Job("patches.4", 32, 3, 96, 224, 4, 4),
    Job("groups.2", 32, 256, 256, 28, 3, 1, 1, groups=2),
    Job("groups.8", 32, 512, 512, 14, 3, 1, 1, groups=8),
    Job("resnext.128", 32, 128, 128, 56, 3, 1, 1, groups=32),
    Job("resnext.512", 32, 512, 512, 14, 3, 1, 1, groups=32),
    Job("resnet.3x3.512.b1", 1, 512, 512, 7, 3, 1, 1),
    Job("resnet.3x3.256.b1", 1, 256, 256, 14, 3, 1, 1),
    *(job for job in JOBS if job.name in ("unet.1280", "unet.1280.small", "unet.2560")),
    Job("unet.in", 2, 4, 320, 64, 3, 1, 1),
    Job("unet.out", 2, 320, 4, 64, 3, 1, 1),
)
"""As ``tf.compile`` schedules them."""


def build(job: Job) -> Built:
    """Schedule, lower and compile a job."""
    return built(job.fusion(), job.config, TARGET)


def kinds_of(job: Job) -> list[Job]:
    """The job with the first candidate of each tile but the one that is chosen."""
    first: dict[object, MatmulConfig] = {}
    for option in tf.schedulers.matmul(job.fusion(), target=TARGET).alternatives:
        c = option.config
        first.setdefault((c.tile_m, c.tile_n, c.kind, c.cluster), c)
    return [replace(job, config=c) for c in list(first.values())[1:6]]


def words(c: MatmulConfig) -> str:
    """Tile, warpgroups (``t``: they take turns), stages, group of tiles and cluster."""
    return f"{c.tile_m}x{c.tile_n}x{c.tile_k}/{c.warpgroups}{'t' * c.is_pingpong} s{c.stages} g{c.group} c{c.cluster}"


def arguments(job: Job) -> list[torch.Tensor]:
    """Random ones: input, weights, bias, channels last."""
    own = job.channels // job.groups
    scale = (job.window**2 * own) ** -0.5
    shapes = (job.n, job.size, job.size, job.channels), (job.out, job.window, job.window, own), (job.out,)
    x, w, b = (torch.randn(s, device="cuda", dtype=job.dtype) for s in shapes)
    return [x, w * scale, b]


def torch_call(job: Job, args: list[torch.Tensor]) -> Callable[[], torch.Tensor]:
    """torch's of the same memory: channels-last tensors."""
    x, w, b = args[0].permute(0, 3, 1, 2), args[1].permute(0, 3, 1, 2), args[2]
    if job.ends:
        return lambda: torch.relu_(F.conv2d(x, w, b, job.stride, job.padding, job.dilation, job.groups))
    return lambda: F.conv2d(x, w, None, job.stride, job.padding, job.dilation, job.groups)


def check(job: Job, args: list[torch.Tensor], out: torch.Tensor) -> None:
    """Exits if an element is wrong."""
    x, w, b = (a.float() for a in args)
    x, w = x.permute(0, 3, 1, 2), w.permute(0, 3, 1, 2)
    given = b if job.ends else None
    wanted = F.conv2d(x, w, given, job.stride, job.padding, job.dilation, job.groups)
    terms = F.conv2d(x.abs(), w.abs(), given.abs() if given is not None else None, job.stride, job.padding, job.dilation, job.groups)
    wanted = wanted.relu() if job.ends else wanted
    error = (out.permute(0, 3, 1, 2).float() - wanted).abs()
    if not bool((error <= wanted.abs() * 2**-6 + terms * 2**-7).all()):
        sys.exit(f"{job}: differs by {float(torch.nan_to_num(error, nan=float('inf')).max()):g}")


def timed(job: Job, run: Any, args: list[torch.Tensor]) -> tuple[float, float]:
    """Microseconds of a kernel and of torch. Exits if an element is wrong, before or after."""
    mine = args if job.ends else args[:2]
    out = torch.full(job.result, float("nan"), device="cuda", dtype=job.dtype)
    run(*mine, out=(out,))
    check(job, args, out)
    ours, theirs = in_turn([partial(run, *mine, out=(out,)), torch_call(job, args)])
    check(job, args, out)
    return ours, theirs


def named(jobs: Sequence[Job], names: Sequence[str]) -> list[Job]:
    """Those whose names begin as one of ``names`` does; all without any."""
    return [job for job in jobs if not names or job.name.startswith(tuple(names))]


def compiled(jobs: Sequence[Job], seconds: float) -> list[str]:
    """Lines: convolutions as ``tf.compile`` schedules them, alone, then with a bias and relu."""
    end = time.monotonic() + seconds
    made = Ahead([ahead.Job(f"{job} {'bias relu' * job.ends}", job.fusion) for one in jobs for job in (one, replace(one, ends=True))])
    print("\n".join(line for line in made.wait() if "Error" in line), flush=True)
    columns = f"{'ours us':>9} {'model us':>9} {'cuDNN us':>9} {'x':>6}"
    lines = [f"  {'name n c o size window':42} {columns} {'fused us':>9} {'model us':>9} {'torch us':>9} {'x':>6}  kernels"]
    ratios: list[list[float]] = []
    for one in jobs:
        if time.monotonic() > end:
            break
        args, line, counts, found = arguments(one), f"  {one!s:42}", "", list[float]()
        for job in (one, replace(one, ends=True)):
            run: Any = tf.compile(job.fusion(), backend="cuda")
            ours, theirs = timed(job, run, args)
            found.append(theirs / ours)
            line += f" {ours:9.2f} {run.schedule.us:9.1f} {theirs:9.2f} {theirs / ours:6.3f}"
            counts += f" {len(run.kernels)}"
        ratios.append(found)
        lines.append(line + counts)
        print(lines[-1], file=sys.stderr, flush=True)
    for what, each in zip(("beside cuDNN", "with bias and relu, beside eager"), zip(*ratios, strict=True), strict=False):
        lines.append(f"  {what}: {len(each)} shapes: geometric mean {statistics.geometric_mean(each):.3f}, worst {min(each):.3f}")
    return lines


def main() -> None:
    """Measure, print and, if asked, store."""
    options_parser = parser(__doc__)
    options_parser.add_argument("--compiled", action="store_true")
    options_parser.add_argument("names", nargs="*")
    options_parser.add_argument("--seconds", type=float, default=150.0)
    options_parser.add_argument("--kinds", action="store_true")
    options = options_parser.parse_args()
    end = time.monotonic() + options.seconds
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    if options.compiled:
        publish("conv_compiled", compiled(named(COMPILED, options.names), options.seconds), options)
        return
    asked = [(job, replace(job, ends=True), kinds_of(job) if options.kinds else []) for job in named(JOBS, options.names)]
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        made: dict[Job, Future[Built]] = {job: pool.submit(build, job) for alone, whole, more in asked for job in (alone, whole, *more)}
        head = f"  {'name n c o size window':42} {'ours us':>9} {'TFLOP/s':>8} {'model us':>9} {'cuDNN us':>9} {'x':>6}"
        lines = [f"{head} {'fused us':>9} {'torch us':>9} {'x':>6}  schedule"]
        ratios: list[float] = []
        fused: list[float] = []
        torch.manual_seed(0)
        for alone, whole, more in asked:
            if time.monotonic() > end:
                break
            args = arguments(alone)
            found: list[tuple[Job, float, float, Built]] = []
            for job in (alone, whole, *more):
                kernel = made[job].result()
                run: Any = tf.compile(kernel.kernel, backend="cuda", unsafe=True)
                found.append((job, *timed(job, run, args), kernel))
            (_, ours, theirs, kernel), (_, both, eager, _), *others = found
            ratios.append(theirs / ours)
            fused.append(eager / both)
            rate = alone.flops / ours / 1e6
            row = f"  {alone!s:42} {ours:9.2f} {rate:8.0f} {kernel.expected_us:9.1f} {theirs:9.2f} {theirs / ours:6.3f}"
            lines.append(f"{row} {both:9.2f} {eager:9.2f} {eager / both:6.3f}  {words(kernel.config)}")
            for job, other, _, by in others:
                assert job.config is not None
                lines.append(f"  {'':42} {other:9.2f} {'':8} {by.expected_us:9.1f} {'':9} {'':6} {'':9} {'':9} {'':6}  {words(job.config)}")
            print(lines[-1 - len(others)], file=sys.stderr, flush=True)
    for what, found_ratios in (("beside cuDNN", ratios), ("with bias and relu, beside eager", fused)):
        if found_ratios:
            mean, wins = statistics.geometric_mean(found_ratios), sum(r >= 1 for r in found_ratios)
            lines.append(f"  {what}: {len(found_ratios)} shapes: geometric mean {mean:.3f}, worst {min(found_ratios):.3f}, wins {wins}")
    publish("conv", lines, options)


if __name__ == "__main__":
    main()
