"""Depthwise convolutions: those of ConvNeXt, of EfficientNets and of state-space models, beside torch.

``python benchmarks/depthwise.py [--write]``. Inputs are random, results compared with torch in float32 after the arrays were poisoned; a time is that of one of
10 calls in a CUDA graph, the median of 20 replays, ours and torch's in turn. ``rate`` is the share of the rate of multiply-adds of CUDA cores that torch
reaches: ``torch.windows`` of :mod:`taskfuse.figures`. ``(last)``: channels last. Then the same for other tiles of the scheduler: whether the model chose well.
"""

from __future__ import annotations

from functools import partial
from math import prod
from typing import Any

import torch
import torch.nn.functional as F
from reporting import in_turn, parser, publish

import taskfuse as tf
from taskfuse.cuda.present import present

CASES = (
    ("convnext 96", (32, 96, 56, 56), 7, 1),
    ("convnext 192", (32, 192, 28, 28), 7, 1),
    ("convnext 384", (32, 384, 28, 28), 7, 1),
    ("convnext 384 small", (32, 384, 14, 14), 7, 1),
    ("convnext 768", (32, 768, 7, 7), 7, 1),
    ("efficientnet 144", (32, 144, 56, 56), 3, 1),
    ("efficientnet 144 stride", (32, 144, 56, 56), 5, 2),
    ("efficientnet 672", (32, 672, 14, 14), 5, 1),
)


def fusion(shape: tuple[int, ...], k: int, stride: int, is_last: bool) -> tf.Fusion:
    """A convolution with a bias, in the order of memory of its input."""
    n, c, h, w = shape
    with tf.Fusion("depthwise") as made:
        x = tf.define_tensor([n, h, w, c] if is_last else list(shape), tf.bfloat16)
        weight, bias = tf.define_tensor([c, 1, k, k], tf.bfloat16), tf.define_tensor([c], tf.bfloat16)
        y = tf.conv2d(tf.permute(x, [0, 3, 1, 2]) if is_last else x, weight, bias, stride, k // 2, 1, c)
        made.add_output(tf.permute(y, [0, 2, 3, 1]) if is_last else y)
    return made


def measured(name: str, shape: tuple[int, ...], k: int, stride: int, is_last: bool) -> list[str]:
    """The lines of a convolution."""
    c = shape[1]
    x = torch.randn(shape, device="cuda", dtype=torch.bfloat16)
    weight, bias = torch.randn(c, 1, k, k, device="cuda", dtype=torch.bfloat16) / k, torch.randn(c, device="cuda", dtype=torch.bfloat16)
    exact = F.conv2d(x.float(), weight.float(), bias.float(), stride, k // 2, 1, c)
    mine = x.permute(0, 2, 3, 1).contiguous() if is_last else x
    theirs = mine.permute(0, 3, 1, 2) if is_last else x
    others = tf.schedulers.windows(fusion(shape, k, stride, is_last)).alternatives[1:4]
    runs: list[Any] = [tf.compile(fusion(shape, k, stride, is_last), cache=False)]
    for option in others:
        scheduled = fusion(shape, k, stride, is_last)
        tf.schedulers.windows(scheduled, option.config)
        runs.append(tf.compile(scheduled))
    wanted = exact.permute(0, 2, 3, 1) if is_last else exact
    outs = [torch.full(wanted.shape, float("nan"), device="cuda", dtype=torch.bfloat16) for _ in runs]
    for run, out in zip(runs, outs, strict=True):
        run(mine, weight, bias, out=(out,))
    wrong = "" if all(torch.allclose(out.float(), wanted, rtol=2**-7, atol=2**-6) for out in outs) else "  WRONG"
    calls = [partial(run, mine, weight, bias, out=(out,)) for run, out in zip(runs, outs, strict=True)]
    times = in_turn([*calls, partial(F.conv2d, theirs, weight, bias, stride, k // 2, 1, c)])
    rate = present().issue_us(float(prod(exact.shape) * k * k)) / times[-1]
    words = getattr(getattr(runs[0].schedule, "config", None), "words", "several kernels")
    ours = f"{times[0]:8.1f} {runs[0].schedule.us:9.1f} {times[-1]:8.1f} {times[-1] / times[0]:6.2f} {rate:6.3f}"
    lines = [f"  {name + ' (last)' * is_last:30} {ours}  {words}{wrong}"]
    return lines + [f"  {'':30} {t:8.1f} {option.us:9.1f} {'':22}  {option.config.words}" for t, option in zip(times[1:-1], others, strict=True)]


def main() -> None:
    """Measure, print and, if asked, store."""
    options = parser(__doc__).parse_args()
    torch.backends.cudnn.benchmark = True
    lines = [f"  {'convolution':30} {'ours':>8} {'expected':>9} {'torch':>8} {'x':>6} {'rate':>6}  parameters"]
    for case in CASES:
        for is_last in (False, True):
            lines += measured(*case, is_last)
    publish("depthwise", lines, options)


if __name__ == "__main__":
    main()
