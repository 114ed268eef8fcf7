"""A mixture-of-experts layer (examples/moe.py) beside eager torch and torch.compile of the same math, with ``torch._grouped_mm`` for the experts: bfloat16.

``python benchmarks/moe.py [--write]``. A time is that of one of 10 calls in a CUDA graph, the median of 20 replays, ours and theirs in turn, so that throttling
hits all; a second column has the kernels of each. Results are compared for the tokens that all send to the same experts: chances that are nearly equal may be
ordered otherwise, since torch rounds the gate's products to bfloat16. Then one graph of ours, recorded once, replays with other tokens, and so other routing.
"""

from __future__ import annotations

from functools import partial

import torch
from reporting import in_turn, parser, publish

from examples.moe import CHOICES, Layer

SHAPES = ((8192, 2048, 1024, 64), (4096, 4096, 2048, 8), (512, 2048, 1024, 64))
"""Tokens, width, width inside an expert, experts."""
Tensors = tuple[torch.Tensor, ...]


def eager(x: torch.Tensor, gate: torch.Tensor, w_gate: torch.Tensor, w_up: torch.Tensor, w_down: torch.Tensor) -> torch.Tensor:
    """The layer in torch, without a wait for the GPU."""
    tokens, experts = x.shape[0], gate.shape[1]
    weights, chosen = torch.topk(torch.softmax((x @ gate).float(), 1), CHOICES)
    weights = weights / weights.sum(1, keepdim=True)
    choices = chosen.flatten()
    order = torch.argsort(choices, stable=True)
    ends = (choices[:, None] == torch.arange(experts, device=x.device)).sum(0).cumsum(0).int()
    rows = torch.empty_like(order).scatter_(0, order, torch.arange(tokens * CHOICES, device=x.device))
    ordered = x[order // CHOICES]
    inner = torch.nn.functional.silu(torch._grouped_mm(ordered, w_gate, offs=ends)) * torch._grouped_mm(ordered, w_up, offs=ends)
    made = torch._grouped_mm(inner, w_down, offs=ends)[rows].view(tokens, CHOICES, -1)
    return (made.float() * weights[:, :, None]).sum(1).to(x.dtype)


def agreement(found: torch.Tensor, wanted: torch.Tensor) -> float:
    """The share of tokens whose results are equal up to the rounding of bfloat16."""
    difference = (found.float() - wanted.float()).abs().amax(1)
    return float((difference <= 3e-2 * wanted.float().abs().amax(1) + 1e-3).float().mean())


def measured() -> list[str]:
    """All shapes, a line each."""
    head = f"{'tokens':>6} {'width':>5} {'inside':>6} {'experts':>7}  {'ours':>8} {'eager':>8} {'compile':>8}"
    lines = [head + "  us; theirs / ours; kernels; tokens that agree; replayed"]
    for tokens, width, inside, experts in SHAPES:
        shapes = (tokens, width), (width, experts), (experts, width, inside), (experts, width, inside), (experts, inside, width)
        args: Tensors = tuple(torch.randn(s, device="cuda", dtype=torch.bfloat16) * s[-2] ** -0.5 for s in shapes)
        args[0].mul_(tokens**0.5)
        layer = Layer(tokens, width, inside, experts, backend="cuda")
        compiled = torch.compile(eager)
        found, wanted = layer(*args), eager(*args)
        agreed = agreement(found, wanted)
        times = in_turn([partial(layer, *args), partial(eager, *args), partial(compiled, *args)])
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            replayed = layer(*args)
        args[0].copy_(torch.randn_like(args[0]) * 1.1)
        replayed.fill_(float("nan"))
        graph.replay()
        again = agreement(replayed, eager(*args))
        ours, *theirs = times
        kernels = f"{len(layer.route.kernels)} + {len(layer.mix.kernels)}"
        ratios = " ".join(f"{t / ours:.2f}" for t in theirs)
        lines.append(
            f"{tokens:6} {width:5} {inside:6} {experts:7}  {ours:8.0f} {theirs[0]:8.0f} {theirs[1]:8.0f}  {ratios}; {kernels}; {agreed:.4f}; {again:.4f}"
        )
        print(lines[-1], flush=True)
    return lines


def main() -> None:
    """Measure, print and, if asked, store."""
    options = parser(__doc__).parse_args()
    publish("moe", measured(), options)


if __name__ == "__main__":
    main()
