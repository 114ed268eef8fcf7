"""Models through ``torch.compile(backend="taskfuse")``: right, how much of them, how fast, against eager and Inductor.

    python benchmarks/torch_models.py [NAME ...] [--train] [--dtype bfloat16] [--small] [--host] [--options '{"products": true}'] [--mode reduce-overhead]

Random weights, real widths, two blocks each. *Right* is torch's own rule (``torch._dynamo.utils.same``): as close to the model in float64 as eager is, within
a factor. Times are medians of 20 times of 3 calls between events, taken in turn; *host* is how long the host needs for a call on an idle GPU.
``--host`` runs the reference on the host, for small sizes: no times.
"""

from __future__ import annotations

import argparse
import copy
import cProfile
import json
import math
import pstats
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any, cast

import torch
from torch import nn
from torch.nn import functional as F

from taskfuse.torch.compilation import GraphReport, listeners
from taskfuse.torch.dynamo import backend
from taskfuse.torch.reports import Report


class RMSNorm(nn.Module):
    """The norm of Llama, in float32."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Any) -> Any:
        h = x.float()
        h = h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-5)
        return self.weight * h.to(x.dtype)


class LlamaBlock(nn.Module):
    """Attention with rotary positions and grouped heads, and a gated MLP."""

    def __init__(self, width: int, heads: int, kv: int, hidden: int) -> None:
        super().__init__()
        self.heads, self.kv, self.size = heads, kv, width // heads
        self.q, self.k, self.v = (nn.Linear(width, n * self.size, bias=False) for n in (heads, kv, kv))
        self.o, self.gate, self.up = nn.Linear(width, width, bias=False), nn.Linear(width, hidden, bias=False), nn.Linear(width, hidden, bias=False)
        self.down, self.first, self.second = nn.Linear(hidden, width, bias=False), RMSNorm(width), RMSNorm(width)

    def turned(self, x: Any, cos: Any, sin: Any) -> Any:
        a, b = x.chunk(2, -1)
        return x * cos + torch.cat([-b, a], -1) * sin

    def forward(self, x: Any, cos: Any, sin: Any) -> Any:
        b, s, _ = x.shape
        h = self.first(x)
        q, k, v = (f(h).view(b, s, n, self.size).transpose(1, 2) for f, n in ((self.q, self.heads), (self.k, self.kv), (self.v, self.kv)))
        q, k = self.turned(q, cos, sin), self.turned(k, cos, sin)
        k, v = (t.repeat_interleave(self.heads // self.kv, 1) for t in (k, v))
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o(a.transpose(1, 2).reshape(b, s, -1))
        h = self.second(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class Llama(nn.Module):
    """Blocks of Llama over embeddings."""

    def __init__(self, width: int, heads: int, kv: int, hidden: int, length: int, blocks: int = 2) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(LlamaBlock(width, heads, kv, hidden) for _ in range(blocks))
        self.norm = RMSNorm(width)
        at = torch.arange(length)[:, None] * 10000.0 ** (-torch.arange(0, width // heads, 2) / (width // heads))
        self.register_buffer("cos", torch.cat([at.cos()] * 2, -1))
        self.register_buffer("sin", torch.cat([at.sin()] * 2, -1))

    def forward(self, x: Any) -> Any:
        for block in self.blocks:
            x = block(x, self.cos.to(x.dtype), self.sin.to(x.dtype))
        return self.norm(x)


class Attention(nn.Module):
    """Self-attention with biases."""

    def __init__(self, width: int, heads: int, causal: bool) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Any) -> Any:
        b, s, w = x.shape
        q, k, v = (t.view(b, s, self.heads, -1).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        return self.out(F.scaled_dot_product_attention(q, k, v, is_causal=self.causal).transpose(1, 2).reshape(b, s, w))


class Block(nn.Module):
    """A transformer block: norms before (GPT-2, ViT) or after (BERT)."""

    def __init__(self, width: int, heads: int, causal: bool, before: bool, approximate: str) -> None:
        super().__init__()
        self.attention = Attention(width, heads, causal)
        self.one, self.two = nn.LayerNorm(width), nn.LayerNorm(width)
        self.up, self.down, self.before, self.approximate = nn.Linear(width, 4 * width), nn.Linear(4 * width, width), before, approximate

    def mlp(self, x: Any) -> Any:
        return self.down(F.gelu(self.up(x), approximate=self.approximate))

    def forward(self, x: Any) -> Any:
        if self.before:
            x = x + self.attention(self.one(x))
            return x + self.mlp(self.two(x))
        x = self.one(x + self.attention(x))
        return self.two(x + self.mlp(x))


class GPT2(nn.Module):
    """Embeddings, causal blocks, a loss over a vocabulary."""

    def __init__(self, vocabulary: int, width: int, heads: int, length: int) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(*(Block(width, heads, True, True, "tanh") for _ in range(2)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens: Any) -> Any:
        x = self.words(tokens) + self.places(torch.arange(tokens.shape[1], device=tokens.device))
        scores = self.head(self.norm(self.blocks(x)))
        return F.cross_entropy(scores[:, :-1].reshape(-1, scores.shape[-1]).float(), tokens[:, 1:].reshape(-1))


class ConvNeXtBlock(nn.Module):
    """A depthwise convolution, a norm over channels, and an MLP."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.scale = nn.Parameter(torch.full((width,), 0.5))

    def forward(self, x: Any) -> Any:
        h = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        return x + (self.scale * self.down(F.gelu(self.up(h)))).permute(0, 3, 1, 2)


class MixerBlock(nn.Module):
    """MLPs over tokens and over channels."""

    def __init__(self, tokens: int, width: int) -> None:
        super().__init__()
        self.one, self.two = nn.LayerNorm(width), nn.LayerNorm(width)
        self.a, self.b = nn.Linear(tokens, 2 * tokens), nn.Linear(2 * tokens, tokens)
        self.c, self.d = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Any) -> Any:
        x = x + self.b(F.gelu(self.a(self.one(x).transpose(1, 2)))).transpose(1, 2)
        return x + self.d(F.gelu(self.c(self.two(x))))


Case = tuple[Callable[[], nn.Module], Callable[[], tuple[Any, ...]]]


def cases(small: bool) -> dict[str, Case]:
    """The models by name: how each is made, and its inputs."""
    s = 8 if small else 1

    def x(*shape: int) -> Callable[[], tuple[Any, ...]]:
        return lambda: (torch.randn(shape),)

    def tokens(vocabulary: int, *shape: int) -> Callable[[], tuple[Any, ...]]:
        return lambda: (torch.randint(vocabulary, shape),)

    w, length = 64, 16
    if not small:
        return {
            "llama": (lambda: Llama(4096, 32, 8, 14336, 1024), x(2, 1024, 4096)),
            "gpt2": (lambda: GPT2(50257, 768, 12, 1024), tokens(50257, 8, 1024)),
            "bert": (lambda: nn.Sequential(*(Block(1024, 16, False, False, "none") for _ in range(2))), x(16, 512, 1024)),
            "vit": (lambda: nn.Sequential(*(Block(1024, 16, False, True, "none") for _ in range(2))), x(32, 197, 1024)),
            "convnext": (lambda: nn.Sequential(ConvNeXtBlock(384), ConvNeXtBlock(384)), x(32, 384, 28, 28)),
            "mixer": (lambda: nn.Sequential(MixerBlock(196, 768), MixerBlock(196, 768)), x(64, 196, 768)),
        }
    return {
        "llama": (lambda: Llama(w, 4, 2, 96, length), x(2, length, w)),
        "gpt2": (lambda: GPT2(97, w, 4, length), tokens(97, 2, length)),
        "bert": (lambda: nn.Sequential(Block(w, 4, False, False, "none")), x(2, length, w)),
        "vit": (lambda: nn.Sequential(Block(w, 4, False, True, "none")), x(2, length + 1, w)),
        "convnext": (lambda: ConvNeXtBlock(s * 2), x(2, s * 2, 9, 9)),
        "mixer": (lambda: MixerBlock(12, 24), x(2, 12, 24)),
    }


def step(model: Any, inputs: tuple[Any, ...], train: bool) -> list[Any]:
    """One call: the result; in training the gradients of its mean square, too."""
    if not train:
        with torch.no_grad():
            return [model(*inputs)]
    model.zero_grad(set_to_none=True)
    y = model(*inputs)
    (y if y.dim() == 0 else y.float().square().mean()).backward()
    return [y.detach(), *(p.grad for p in model.parameters() if p.grad is not None)]


def timed(run: Callable[[], Any]) -> Callable[[], float]:
    """Microseconds of a call on the GPU: of three, one after another, so that the host is ahead."""

    def once() -> float:
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        for _ in range(3):
            run()
        end.record()
        torch.cuda.synchronize()
        return start.elapsed_time(end) * 1e3 / 3

    return once


def host_time(run: Callable[[], Any]) -> float:
    """Microseconds that the host needs for a call, on a GPU that has nothing else to do: the median of 20."""
    found: list[float] = []
    for _ in range(20):
        torch.cuda.synchronize()
        start = time.perf_counter()
        run()
        found.append((time.perf_counter() - start) * 1e6)
    torch.cuda.synchronize()
    return statistics.median(found)


def profile(name: str, run: Callable[[], Any]) -> None:
    """Print the kernels of a call that take longest, and the functions of Python in which the host spends most."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as seen:
        run()
        torch.cuda.synchronize()
    rows = sorted(((e.self_device_time_total, e.count, e.key) for e in seen.key_averages()), reverse=True)
    print(f"  {name}: kernels {sum(r[0] for r in rows):.0f} us")
    for spent, count, key in rows[:9]:
        print(f"    {spent:8.1f} us x{count} {key[:90]}")
    calls = cProfile.Profile()
    for _ in range(50):
        torch.cuda.synchronize()
        calls.enable()
        run()
        calls.disable()
    functions = cast("dict[tuple[str, int, str], tuple[int, int, float, float, Any]]", pstats.Stats(calls).__dict__["stats"])
    for (file, line, function), (_, count, spent, _, _) in sorted(functions.items(), key=lambda kv: -kv[1][2])[:14]:
        print(f"    host {spent / 50 * 1e6:7.1f} us x{count / 50:g} {'/'.join(file.split('/')[-2:])}:{line} {function[:70]}")


def measure(name: str, case: Case, given: Any) -> float | None:
    """Print the row of a model. Returns Inductor's time over taskfuse's, if measured."""
    device, dtype = ("cpu" if given.host else "cuda"), getattr(torch, given.dtype)
    torch.manual_seed(0)
    model = case[0]().to(device=device, dtype=dtype)
    inputs = tuple(x.to(device=device, dtype=dtype if x.is_floating_point() else None) for x in case[1]())
    exact = step(copy.deepcopy(model).double(), tuple(x.double() if x.is_floating_point() else x for x in inputs), given.train)
    want = [t.clone() for t in step(model, inputs, given.train)]
    reports: list[GraphReport] = []
    listeners[:] = [reports.append]
    options = {**json.loads(given.options), **({"run": "reference"} if given.host else {}), "strict": True}
    torch._dynamo.reset()
    start = time.perf_counter()

    def ours_at(gm: Any, example: Any) -> Any:
        return backend(gm, example, mode=given.mode or None, options=options)

    ours = torch.compile(model, backend=ours_at)
    got = [t.clone() for t in step(ours, inputs, given.train)]
    seconds = time.perf_counter() - start
    from torch._dynamo.utils import same

    right = all(same(a, b, c, tol=1e-2 if given.train else 1e-3) for a, b, c in zip(got, want, exact, strict=True))
    r = Report(tuple(reports))
    row = f"{name:9} {'right' if right else 'WRONG'} coverage {r.coverage:4.0%} of {r.could:4.0%} "
    row += f"fusions {r.fusions:3} kernels {r.kernels:3} compile {seconds:5.1f} s"
    if given.explain:
        print(r)
        for g in reports:
            print(g.program.source)
    if given.host:
        print(row, flush=True)
        return None
    runs: dict[str, Callable[[], Any]] = {"eager": lambda: step(model, inputs, given.train), "taskfuse": lambda: step(ours, inputs, given.train)}
    if not given.alone:
        start = time.perf_counter()
        theirs = torch.compile(model, mode=given.mode or None)
        step(theirs, inputs, given.train)
        row += f" (Inductor {time.perf_counter() - start:5.1f} s)"
        runs["Inductor"] = lambda: step(theirs, inputs, given.train)
    times: dict[str, list[float]] = {k: [] for k in runs}
    for turn in range(23):
        for k, run in runs.items():
            t = timed(run)()
            if turn >= 3:
                times[k].append(t)
    hosts = ", ".join(f"{k} {host_time(run):.0f}" for k, run in runs.items())
    if given.profile:
        for k, run in runs.items():
            profile(k, run)
    medians = {k: statistics.median(v) for k, v in times.items()}
    print(row, *(f"{k} {v:.0f} us" for k, v in medians.items()), f"eager/taskfuse {medians['eager'] / medians['taskfuse']:.2f}", end=" ")
    ratio = medians["Inductor"] / medians["taskfuse"] if "Inductor" in medians else None
    print(f"Inductor/taskfuse {ratio:.2f}" if ratio else "", f"host us: {hosts}", flush=True)
    return ratio


def main() -> int:
    """Run what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--train", action="store_true")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--host", action="store_true")
    parser.add_argument("--alone", action="store_true", help="without Inductor")
    parser.add_argument("--explain", action="store_true")
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--options", default="{}")
    parser.add_argument("--mode", default="")
    given = parser.parse_args()
    ratios: list[float] = []
    for name, case in cases(given.small).items():
        if not given.names or name in given.names:
            try:
                ratio = measure(name, case, given)
            except Exception as error:
                print(f"{name:9} FAILED {type(error).__name__}: {str(error)[:300]}", flush=True)
                continue
            ratios += [] if ratio is None else [ratio]
    if ratios:
        print(f"geometric mean of Inductor/taskfuse {math.exp(sum(map(math.log, ratios)) / len(ratios)):.2f}, worst {min(ratios):.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
