"""Models with random weights for benchmarks: blocks of well-known architectures at real widths, written out, so that nothing is downloaded."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F


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

    def __init__(self, vocabulary: int, width: int, heads: int, length: int, blocks: int = 2) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(*(Block(width, heads, True, True, "tanh") for _ in range(blocks)))
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


class T5Block(nn.Module):
    """An encoder block of T5: norms without a mean, positions as a bias of attention, a gated MLP."""

    def __init__(self, width: int, heads: int, hidden: int, length: int) -> None:
        super().__init__()
        self.heads, self.one, self.two = heads, RMSNorm(width), RMSNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.gate, self.up, self.down = nn.Linear(width, hidden, bias=False), nn.Linear(width, hidden, bias=False), nn.Linear(hidden, width, bias=False)
        self.places = nn.Embedding(32, heads)
        far = torch.arange(length)[None] - torch.arange(length)[:, None]
        self.register_buffer("buckets", (far.abs().clamp(max=127).float() + 1).log2().mul(2).long() + 16 * (far > 0))

    def forward(self, x: Any) -> Any:
        b, s, w = x.shape
        q, k, v = (t.view(b, s, self.heads, -1).transpose(1, 2) for t in self.qkv(self.one(x)).chunk(3, -1))
        scores = q @ k.transpose(-1, -2) + self.places(self.buckets).permute(2, 0, 1)
        x = x + self.out((scores.float().softmax(-1).to(x.dtype) @ v).transpose(1, 2).reshape(b, s, w))
        h = self.two(x)
        return x + self.down(F.gelu(self.gate(h), approximate="tanh") * self.up(h))


class Bottleneck(nn.Module):
    """A block of ResNet-50."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.a, self.b = nn.Conv2d(width, inner, 1, bias=False), nn.Conv2d(inner, inner, 3, padding=1, bias=False)
        self.c = nn.Conv2d(inner, width, 1, bias=False)
        self.na, self.nb, self.nc = nn.BatchNorm2d(inner), nn.BatchNorm2d(inner), nn.BatchNorm2d(width)

    def forward(self, x: Any) -> Any:
        h = F.relu(self.nb(self.b(F.relu(self.na(self.a(x))))))
        return F.relu(x + self.nc(self.c(h)))


class Mixtral(nn.Module):
    """A mixture of gated MLPs: each token goes to two of the experts, by a router; all experts see all tokens, weighted, so that shapes are known."""

    def __init__(self, width: int, hidden: int, experts: int) -> None:
        super().__init__()
        self.norm, self.router = RMSNorm(width), nn.Linear(width, experts, bias=False)
        self.gate, self.up = (nn.Parameter(torch.randn(experts, width, hidden) / width**0.5) for _ in range(2))
        self.down = nn.Parameter(torch.randn(experts, hidden, width) / hidden**0.5)

    def forward(self, x: Any) -> Any:
        h = self.norm(x).flatten(0, 1)
        best, where = self.router(h).float().softmax(-1).topk(2, -1)
        best = best / best.sum(-1, keepdim=True)
        weights = torch.zeros(h.shape[0], self.gate.shape[0], device=h.device, dtype=best.dtype).scatter(1, where, best).to(h.dtype)
        each = h.expand(self.gate.shape[0], -1, -1)
        made = torch.bmm(F.silu(torch.bmm(each, self.gate)) * torch.bmm(each, self.up), self.down)
        return x + (made * weights.t()[:, :, None]).sum(0).view(x.shape)


class DiTBlock(nn.Module):
    """A block of a diffusion transformer: shifts, scales and gates come from the condition."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attention = Attention(width, heads, False)
        self.up, self.down, self.condition = nn.Linear(width, 4 * width), nn.Linear(4 * width, width), nn.Linear(width, 6 * width)
        self.one, self.two = (nn.LayerNorm(width, elementwise_affine=False, eps=1e-6) for _ in range(2))

    def forward(self, x: Any, c: Any) -> Any:
        shift, scale, gate, shift2, scale2, gate2 = self.condition(F.silu(c))[:, None].chunk(6, -1)
        x = x + gate * self.attention(self.one(x) * (1 + scale) + shift)
        return x + gate2 * self.down(F.gelu(self.up(self.two(x) * (1 + scale2) + shift2), approximate="tanh"))


class DiT(nn.Module):
    """Such blocks."""

    def __init__(self, width: int, heads: int, blocks: int = 2) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(DiTBlock(width, heads) for _ in range(blocks))

    def forward(self, x: Any, c: Any) -> Any:
        for block in self.blocks:
            x = block(x, c)
        return x


def encoder(width: int, heads: int, blocks: int = 2) -> nn.Module:
    """``nn.TransformerEncoderLayer``, without dropout."""
    return repeated(lambda: nn.TransformerEncoderLayer(width, heads, 4 * width, dropout=0.0, activation="gelu", batch_first=True), blocks)


def repeated(block: Callable[[], nn.Module], times: int) -> nn.Module:
    """Blocks one after another."""
    return nn.Sequential(*(block() for _ in range(times)))


Case = tuple[Callable[[], nn.Module], Callable[[], tuple[Any, ...]]]


def step(model: Any, inputs: tuple[Any, ...], train: bool) -> list[Any]:
    """One call: the result; in training the gradients of its mean square, too."""
    if not train:
        with torch.no_grad():
            return [model(*inputs)]
    model.zero_grad(set_to_none=True)
    y = model(*inputs)
    (y if y.dim() == 0 else y.float().square().mean()).backward()
    return [y.detach(), *(p.grad for p in model.parameters() if p.grad is not None)]


def parser(description: str | None) -> argparse.ArgumentParser:
    """Of a script that looks at models by name, in a dtype, forward or in training steps."""
    found = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    found.add_argument("names", nargs="*")
    found.add_argument("--train", action="store_true")
    found.add_argument("--dtype", default="bfloat16")
    found.add_argument("--small", action="store_true")
    found.add_argument("--layers", type=int, default=2, help="blocks of each model")
    found.add_argument("--options", default="{}", help="of the backend, as JSON")
    return found


def named(given: argparse.Namespace) -> dict[str, Case]:
    """The models that are named; all, if none are."""
    return {name: case for name, case in cases(given.small, given.layers).items() if not given.names or name in given.names}


def cases(small: bool, layers: int = 2) -> dict[str, Case]:
    """The models by name: how each is made, and its inputs.

    Args:
        small: of sizes for tests on the host.
        layers: the blocks of those at real widths, but for Mixtral, which is one block.
    """
    s = 8 if small else 1

    def x(*shape: int) -> Callable[[], tuple[Any, ...]]:
        return lambda: (torch.randn(shape),)

    def tokens(vocabulary: int, *shape: int) -> Callable[[], tuple[Any, ...]]:
        return lambda: (torch.randint(vocabulary, shape),)

    w, length = 64, 16
    if not small:
        return {
            "llama": (lambda: Llama(4096, 32, 8, 14336, 1024, layers), x(2, 1024, 4096)),
            "gpt2": (lambda: GPT2(50257, 768, 12, 1024, layers), tokens(50257, 8, 1024)),
            "bert": (lambda: repeated(lambda: Block(1024, 16, False, False, "none"), layers), x(16, 512, 1024)),
            "vit": (lambda: repeated(lambda: Block(1024, 16, False, True, "none"), layers), x(32, 197, 1024)),
            "convnext": (lambda: repeated(lambda: ConvNeXtBlock(384), layers), x(32, 384, 28, 28)),
            "mixer": (lambda: repeated(lambda: MixerBlock(196, 768), layers), x(64, 196, 768)),
            "t5": (lambda: repeated(lambda: T5Block(1024, 16, 2816, 512), layers), x(8, 512, 1024)),
            "resnet": (lambda: repeated(lambda: Bottleneck(512, 128), layers), x(64, 512, 28, 28)),
            "mixtral": (lambda: Mixtral(1024, 3584, 8), x(2, 1024, 1024)),
            "dit": (lambda: DiT(1152, 16, layers), lambda: (torch.randn(16, 256, 1152), torch.randn(16, 1152))),
            "encoder": (lambda: encoder(768, 12, layers), x(16, 512, 768)),
        }
    return {
        "llama": (lambda: Llama(w, 4, 2, 96, length), x(2, length, w)),
        "gpt2": (lambda: GPT2(97, w, 4, length), tokens(97, 2, length)),
        "bert": (lambda: nn.Sequential(Block(w, 4, False, False, "none")), x(2, length, w)),
        "vit": (lambda: nn.Sequential(Block(w, 4, False, True, "none")), x(2, length + 1, w)),
        "convnext": (lambda: ConvNeXtBlock(s * 2), x(2, s * 2, 9, 9)),
        "mixer": (lambda: MixerBlock(12, 24), x(2, 12, 24)),
        "t5": (lambda: T5Block(w, 4, 96, length), x(2, length, w)),
        "resnet": (lambda: Bottleneck(16, 8), x(2, 16, 5, 5)),
        "mixtral": (lambda: Mixtral(w, 96, 4), x(2, length, w)),
        "dit": (lambda: DiT(w, 4), lambda: (torch.randn(2, length, w), torch.randn(2, w))),
        "encoder": (lambda: encoder(w, 4), x(2, length, w)),
    }
