"""Rows of bfloat16 by weights of 8 or 4 bits, which are computed on their way to the tensor cores: beside torch's product in bfloat16, and ``torch.compile``.

``python benchmarks/narrow_weights.py [--write] [--rows N ...] [--only NAME ...] [--tiles N] [--eager]``. ``int8`` and ``fp8``: the product of the weights times
a scale of each column; ``scaled``: of the weights times the scale of their row; ``groups``: times the scale of each 128; ``int4``: as ``groups``, of numbers
from -8 to 7, two in a byte, the first one in its low bits. Several copies of the weights take turns, so that none is in the second-level cache. ``--tiles``:
the N fastest parameters of each, by the model, are measured, too. ``--eager``: the math in torch, without ``torch.compile``. Inputs are random, results
compared with torch after the outputs were poisoned; medians by CUDA events, all in turn.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from reporting import L2_BYTES, gpu_medians, parser, publish

import taskfuse as tf
from taskfuse.errors import TaskfuseError
from taskfuse.schedulers.computed_factors import compute_where_multiplied

SHAPES = ((4096, 14336), (14336, 4096))
"""Columns, and terms of a sum."""
ROWS = (1, 8, 64, 512)
GROUP = 128
GROUPED = ("groups", "int4")


def fusion_of(name: str, m: int, n: int, k: int) -> tf.Fusion:
    """The math."""
    with tf.Fusion(name) as made:
        x = tf.define_tensor([m, k], tf.bfloat16, name="x")
        dtypes = {"fp8": tf.float8_e4m3, "int4": tf.uint8}
        w = tf.define_tensor([n, k // 2 if name == "int4" else k], dtypes.get(name, tf.int8), name="w")
        scales = tf.define_tensor([n, k // GROUP] if name in GROUPED else [n], tf.bfloat16, name="scales")
        if name == "int4":
            nibbles = tf.reshape(tf.stack([tf.bitwise_and(w, 15), tf.right_shift(w, 4)], 2), [n, k])
            wide = tf.cast(tf.cast(nibbles, tf.float32) - 8.0, tf.bfloat16)
        else:
            wide = tf.cast(w, tf.bfloat16)
        if name in GROUPED:
            wide = tf.reshape(tf.reshape(wide, [n, k // GROUP, GROUP]) * scales[:, :, None], [n, k])
        elif name == "scaled":
            wide = wide * scales[:, None]
        out = x @ wide.T
        made.add_output(out * scales if name in ("int8", "fp8") else out)
    return made


def factor(name: str, w: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """The weights in torch, in bfloat16."""
    wide = w.to(torch.bfloat16)
    if name == "int4":
        wide = torch.stack([w & 15, w >> 4], 2).reshape(w.shape[0], -1).float().sub(8.0).bfloat16()
    if name in GROUPED:
        return (wide.view(*scales.shape, GROUP) * scales[:, :, None]).view(wide.shape)
    return wide * scales[:, None] if name == "scaled" else wide


def theirs(name: str, x: torch.Tensor, w: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """The math in torch."""
    out = x @ factor(name, w, scales).T
    return out * scales if name in ("int8", "fp8") else out


def one_kernel(name: str, m: int, n: int, k: int) -> tf.Fusion:
    """The math with factors where products read them."""
    fusion = fusion_of(name, m, n, k)
    form = compute_where_multiplied(fusion)
    return fusion if form is None else form.fusion


def tiles_of(name: str, m: int, n: int, k: int, count: int) -> list[tuple[str, Any]]:
    """The fastest parameters of one kernel, with what they compile to."""
    found: list[tuple[str, Any]] = []
    tried = set[tuple[object, ...]]()
    for option in tf.schedulers.matmul(one_kernel(name, m, n, k)).alternatives if count else ():
        c = option.config
        if (key := (c.tile_m, c.tile_n, c.tile_k, c.warpgroups, c.in_flight)) in tried or len(found) == count:
            continue
        tried.add(key)
        scheduled = one_kernel(name, m, n, k)
        try:
            tf.schedulers.matmul(scheduled, c)
            if not tf.lower(scheduled).resources().compiled.spill_stores:
                found.append((f"{c.words}, expected {option.us:.1f}", tf.compile(scheduled)))
        except TaskfuseError as error:
            print(c.words, str(error).splitlines()[0], file=sys.stderr)
    return found


def in_order(calls: list[Callable[[], object]]) -> Callable[[], object]:
    """A call that is the next of some."""
    turns = itertools.cycle(calls)
    return lambda: next(turns)()


def main() -> None:
    """Measure, print and, if asked, store."""
    arguments = parser(__doc__)
    arguments.add_argument("--rows", type=int, nargs="*", default=list(ROWS))
    arguments.add_argument("--only", nargs="*", default=["int8", "fp8", "scaled", "groups", "int4"])
    arguments.add_argument("--tiles", type=int, default=0)
    arguments.add_argument("--eager", action="store_true", help="without torch.compile")
    options = arguments.parse_args()
    names = ("ours us", "expected", "bf16 mm", "x", "eager" if options.eager else "compiled", "x", "TB/s")
    lines = [f"  {'weights':8} {'m':>5} {'n':>6} {'k':>6}{''.join(f'{name:>10}' for name in names)}  schedule"]
    for name, (n, k), m in itertools.product(options.only, SHAPES, options.rows):
        copies = max(2, -(-3 * L2_BYTES // (n * k)))
        x = torch.randn((m, k), device="cuda").bfloat16()
        scales = (torch.rand((n, k // GROUP) if name in GROUPED else (n,), device="cuda") / 64).bfloat16()
        many = [torch.randint(-128, 128, (n, k), device="cuda", dtype=torch.int8) for _ in range(copies)]
        if name == "fp8":
            many = [(w.float() / 16).to(torch.float8_e4m3fn) for w in many]
        if name == "int4":
            many = [w[:, : k // 2].contiguous().view(torch.uint8) for w in many]
        wide = [torch.randn((n, k), device="cuda").bfloat16() for _ in range(2)]
        run = tf.compile(fusion_of(name, m, n, k), cache=False)
        out = torch.full((m, n), float("nan"), device="cuda", dtype=torch.bfloat16)
        compiled = theirs if options.eager else torch.compile(theirs, dynamic=False)
        runs: list[tuple[str, Any]] = [("chosen", run), *tiles_of(name, m, n, k, options.tiles)]
        wanted = x.double() @ factor(name, many[0], scales).double().T
        wanted = wanted * scales.double() if name in ("int8", "fp8") else wanted
        for words, each in runs:
            out.fill_(float("nan"))
            each(x, many[0], scales, out=(out,))
            error = float((out.double() - wanted).abs().max() / wanted.abs().max())
            assert error < 2**-6, f"{name} {m} x {n} x {k}, {words}: off by {error}"
        calls = [in_order([partial(each, x, w, scales, out=(out,)) for w in many]) for _, each in runs]
        calls += [in_order([partial(torch.mm, x, w.T) for w in wide]), in_order([partial(compiled, name, x, w, scales) for w in many])]
        times = gpu_medians([[call] * copies for call in calls])
        mm, inductor = times[-2:]
        us = times[0]
        schedule = run.schedule
        what = getattr(getattr(schedule, "config", None), "words", None) or f"{len(run.kernels)} kernels"
        expected = float(getattr(schedule, "us", 0.0))
        rate = (many[0].nbytes + scales.nbytes + x.nbytes + out.nbytes) / us / 1e6
        figures = "".join(f"{x:10.2f}" for x in (us, expected, mm, mm / us, inductor, inductor / us, rate))
        lines.append(f"  {name:8} {m:5} {n:6} {k:6}{figures}  {what}")
        print(lines[-1], file=sys.stderr, flush=True)
        for (words, _), each_us in zip(runs[1:], times[1:-2], strict=True):
            lines.append(f"  {'':24} {each_us:9.2f}  {words}")
            print(lines[-1], file=sys.stderr, flush=True)
    publish("narrow_weights", lines, options)


if __name__ == "__main__":
    main()
