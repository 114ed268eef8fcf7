"""The gradients of attention (``tf.scaled_dot_product_attention_backward`` by ``tf.compile``) beside torch's: cuDNN and flash.

``python benchmarks/attention_backward.py [--write] [--only NAME ...] [--sweep N] [--configs PARAMETERS ...]``. Random bfloat16 inputs, poisoned outputs, which
are compared with float64: the error may be twice that of torch's best. Medians of 20 replays of CUDA graphs, all runners of a case replayed in turn. The
operations are those of five products, of which causal ones count half, whatever a kernel computes again. torch's result and logarithms of sums are given to
all. Where it fits, one walk is measured, too (``tf.schedulers.one_walk``), whose gradient of queries blocks add up in memory, in no order. ``--sweep N`` also
measures each walk alone, by the choice of the cost model and the N candidates after it; ``--configs`` by these parameters, the fields of a
``BackToBackConfig`` in order: ``2,64,3``.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch
from attention import CASES, Case
from reporting import in_turn, parser, publish

import taskfuse as tf
from taskfuse.cuda.present import present
from taskfuse.errors import TaskfuseError, UnsupportedError
from taskfuse.schedule.copy import copy_fusion
from taskfuse.schedulers.long_cascades import walks_alone
from taskfuse.schedulers.walks import walks_apart

aten: Any = torch.ops.aten
Call = Callable[[], Sequence[torch.Tensor]]


def fusion(case: Case) -> tf.Fusion:
    """The math of a case."""
    with tf.Fusion(f"gradients_{case.name}") as found:
        heads, keys = case.heads, case.heads // case.groups
        g, q, o = (tf.define_tensor([case.batch, heads, case.queries, case.depth], dtype=tf.bfloat16, name=n) for n in "gqo")
        k, v = (tf.define_tensor([case.batch, keys, case.keys, case.depth], dtype=tf.bfloat16, name=n) for n in "kv")
        sums = tf.define_tensor([case.batch, heads, case.queries], name="sums")
        for tv in tf.scaled_dot_product_attention_backward(g, q, k, v, o, sums, is_causal=case.is_causal, enable_gqa=case.groups > 1):
            found.add_output(tv)
    return found


def theirs(case: Case, g: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> tuple[dict[str, Call], torch.Tensor, torch.Tensor]:
    """torch's, by name, that take the case; a result, and logarithms of sums."""

    def flash() -> tuple[Call, torch.Tensor, torch.Tensor]:
        out, sums, cq, ck, mq, mk, seed, offset, _ = aten._scaled_dot_product_flash_attention(q, k, v, 0.0, case.is_causal)
        return lambda: aten._scaled_dot_product_flash_attention_backward(g, q, k, v, out, sums, cq, ck, mq, mk, 0.0, case.is_causal, seed, offset), out, sums

    def cudnn() -> tuple[Call, torch.Tensor, torch.Tensor]:
        found = aten._scaled_dot_product_cudnn_attention(q, k, v, None, True, 0.0, case.is_causal)
        out, sums, cq, ck, mq, mk, seed, offset, _ = found
        op = aten._scaled_dot_product_cudnn_attention_backward
        return lambda: op(g, q, k, v, out, sums, seed, offset, None, cq, ck, mq, mk, 0.0, case.is_causal), out, sums

    taken: dict[str, Call] = {}
    given: tuple[torch.Tensor, torch.Tensor] | None = None
    for name, make in (("cudnn", cudnn), ("flash", flash)):
        try:
            call, out, sums = make()
            call()
        except RuntimeError as error:
            print(f"{case.name}: {name}: {str(error).splitlines()[0]}", flush=True)
        else:
            taken[name], given = call, (out, sums)
    if given is None:
        sys.exit(f"{case.name}: neither of torch's takes it")
    return taken, given[0].contiguous(), given[1].reshape(q.shape[:-1]).contiguous()


def wanted(case: Case, g: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> list[torch.Tensor]:
    """The gradients of the first head of keys in the last batch, and of its queries, in float64."""
    heads = slice(0, case.groups)
    leaves = [x[-1, part].double().requires_grad_() for x, part in ((q, heads), (k, slice(0, 1)), (v, slice(0, 1)))]
    scores = leaves[0] @ leaves[1].mT * case.depth**-0.5
    if case.is_causal:
        scores = scores.masked_fill(~torch.ones(scores.shape[-2:], dtype=torch.bool, device="cuda").tril(), -torch.inf)
    return list(torch.autograd.grad(torch.softmax(scores, -1) @ leaves[2], leaves, g[-1, heads].double()))


def errors(case: Case, found: Sequence[torch.Tensor], exact: Sequence[torch.Tensor]) -> list[float]:
    """The largest error of each gradient."""
    parts = (slice(0, case.groups), slice(0, 1), slice(0, 1))
    return [float((x[-1, part].double() - e).abs().max()) for x, part, e in zip(found, parts, exact, strict=True)]


def walks(case: Case, sweep: int, given: Sequence[tuple[int, ...]]) -> dict[str, Callable[[], object]]:
    """Each walk alone, by words: of random inputs, whose results are not compared."""
    whole = fusion(case)
    form = walks_apart(whole, present())
    found: dict[str, Callable[[], object]] = {}
    for walk, *_ in walks_alone(whole if form is None else form.fusion):
        alternatives = tf.schedulers.back_to_back(copy_fusion(walk)[0]).alternatives
        every = [(o.config, f"expected {o.us:.0f} us, ") for o in alternatives[: 1 + sweep]]
        every += [(tf.schedulers.BackToBackConfig(*fields), "") for fields in given]
        for config, expected in every:
            copy = copy_fusion(walk)[0]
            try:
                tf.schedulers.back_to_back(copy, config)
                kernel = tf.lower(copy)
                resources = kernel.resources(fast_math=True)
                run = tf.compile(kernel, backend="cuda", fast_math=True)
                kinds = {tf.bfloat16: torch.bfloat16, tf.float32: torch.float32}
                args = [torch.randn([int(str(e)) for e in tv.shape], device="cuda").to(kinds[tv.dtype]) for tv in copy.inputs]
                outs = tuple(torch.empty([int(str(e)) for e in tv.shape], device="cuda", dtype=kinds[tv.dtype]) for tv in copy.outputs)
                run(*args, out=outs[0] if len(outs) == 1 else outs)
            except TaskfuseError as error:
                print(f"{case.name}: {config.words}: {str(error).splitlines()[0]}", flush=True)
            else:
                what = "queries" if len(outs) == 1 else "keys and values"
                words = f"walk for {what}: {expected}{resources.compiled.registers} regs, {resources.compiled.spill_stores} spilled, {config.words}"
                found[words] = lambda run=run, args=args, outs=outs: run(*args, out=outs[0] if len(outs) == 1 else outs)
    return found


def one_walk(case: Case, g: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, out: torch.Tensor, sums: torch.Tensor) -> Call | None:
    """One walk between two kernels: values of each query before, the rounded gradient of the queries after. ``None`` if it does not fit."""
    rows, scale = [case.batch, case.heads, case.queries], case.depth**-0.5
    with tf.Fusion("rows") as before:
        given, results = (tf.define_tensor([*rows, case.depth], dtype=tf.bfloat16) for _ in range(2))
        total = tf.define_tensor(rows)
        before.add_output(total * math.log2(math.e), tf.sum(tf.cast(given, tf.float32) * tf.cast(results, tf.float32), -1))
    with tf.Fusion(f"one_walk_{case.name}") as fusion:
        tg, tq = (tf.define_tensor(list(q.shape), dtype=tf.bfloat16) for _ in range(2))
        tk, tv = (tf.define_tensor(list(k.shape), dtype=tf.bfloat16) for _ in range(2))
        shift, delta = (tf.expand_dims(tf.define_tensor(rows), 3) for _ in range(2))
        scores = tf.matmul(tq, tk.mT, dtype=tf.float32)
        if case.is_causal:
            scores = tf.where(tf.arange(case.keys) <= tf.expand_dims(tf.arange(case.queries), 1), scores, -math.inf)
        p = tf.exp2(scores * (scale * math.log2(math.e)) - shift)
        ds = tf.cast(p * (tf.matmul(tg, tv.mT, dtype=tf.float32) - delta), tf.bfloat16)
        made = tf.matmul(tf.cast(p, tf.bfloat16).mT, tg, dtype=tf.float32), tf.matmul(ds.mT, tq, dtype=tf.float32) * scale
        fusion.add_output(*(tf.cast(x, tf.bfloat16) for x in made), tf.matmul(ds, tk, dtype=tf.float32))
    with tf.Fusion("rounded") as after:
        after.add_output(tf.cast(tf.define_tensor([*rows, case.depth]) * scale, tf.bfloat16))
    if case.groups > 1:
        return None
    try:
        tf.schedulers.one_walk(fusion, target=present())
    except UnsupportedError as error:
        print(f"{case.name}: {str(error).splitlines()[0]}", flush=True)
        return None
    steps = [tf.compile(f, backend="cuda", fast_math=True) for f in (before, fusion, after)]
    values = tuple(torch.empty(rows, device="cuda") for _ in range(2))
    dq, dk, dv, summed = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v), torch.empty(q.shape, device="cuda")

    def call() -> Sequence[torch.Tensor]:
        steps[0](g, out, sums, out=values)
        steps[1](g, q, k, v, *values, out=(dv, dk, summed))
        steps[2](summed, out=dq)
        return dq, dk, dv

    return call


def measure(case: Case, sweep: int, given: Sequence[tuple[int, ...]]) -> list[str]:
    """The lines of a case."""
    q, k, v = case.arguments()
    g = torch.randn_like(q)
    others, out, sums = theirs(case, g, q, k, v)
    exact = wanted(case, g, q, k, v)
    limits = [2 * min(e) for e in zip(*(errors(case, call(), exact) for call in others.values()), strict=True)]
    run = tf.compile(fusion(case), backend="cuda", fast_math=True)
    made = tuple(torch.full_like(x, torch.nan) for x in (q, k, v))
    args = {"g": g, "q": q, "k": k, "v": v, "o": out, "sums": sums}
    ordered = [args[tv.name] for tv in fusion(case).inputs]
    run(*ordered, out=made)
    off = errors(case, made, exact)
    if not all(e <= limit for e, limit in zip(off, limits, strict=True)):
        sys.exit(f"{case.name}: off by {off}, and torch by {[limit / 2 for limit in limits]}")
    calls: dict[str, Callable[[], object]] = {**others}
    calls[f"taskfuse: {len(run.kernels)} kernels, expected {run.schedule.us if run.schedule else 0:.0f} us"] = lambda: run(*ordered, out=made)
    joined = one_walk(case, g, q, k, v, out, sums)
    if joined is not None:
        off = errors(case, joined(), exact)
        if not all(e <= limit for e, limit in zip(off, limits, strict=True)):
            sys.exit(f"{case.name}: one walk is off by {off}, and torch by {[limit / 2 for limit in limits]}")
        calls["taskfuse, one walk: 3 kernels"] = joined
    calls |= walks(case, sweep, given) if sweep or given else {}
    times = in_turn(list(calls.values()))
    best = min(times[: len(others)])
    flop = 2.5 * case.flop
    lines = [f"{case.name} {case.batch}x{case.heads}x{case.queries}x{case.keys}x{case.depth}{' causal' if case.is_causal else ''}, heads by {case.groups}"]
    for name, us in zip(calls, times, strict=True):
        lines.append(f"  {us:8.1f} us  {best / us:5.2f}x  {flop / us / 1e6:5.0f} TFLOP/s  {name}")
    return lines


def main() -> None:
    """Measure, print and, if asked, store."""
    found: Any = parser(__doc__)
    names = [case.name for case in CASES if case.queries > 1 and case.name not in ("16k", "16k_causal")]
    found.add_argument("--only", nargs="*", default=names)
    found.add_argument("--sweep", type=int, default=0, help="further candidates of the cost model for each walk")
    found.add_argument("--configs", nargs="*", default=[], help="candidates with these parameters: numbers with commas between them")
    options = found.parse_args()
    given = [tuple(map(int, fields.split(","))) for fields in options.configs]
    lines: list[str] = []
    for case in CASES:
        if case.name in options.only:
            made = measure(case, options.sweep, given)
            print("\n".join(made), flush=True)
            lines += made
    publish("attention_backward", lines, options)


if __name__ == "__main__":
    main()
