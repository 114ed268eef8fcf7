"""Attention (``tf.scaled_dot_product_attention`` by ``tf.schedulers.attention``) beside torch's: cuDNN, flash, and FlexAttention compiled.

``python benchmarks/attention.py [--write] [--only NAME ...] [--sweep N] [--configs PARAMETERS ...] [--flex]``. Random bfloat16 inputs, poisoned outputs,
which are compared with float64: the error may be twice that of torch's fastest. Medians of 20 replays of CUDA graphs, all runners of a case replayed in turn.
A causal product counts half the operations. Kernels are built with ``fast_math``, as the others are. ``--sweep N`` measures N further candidates of the cost
model, ``--configs`` those with these parameters, the fields of an ``AttentionConfig`` in order: ``2,128,2,1,132,2``. A candidate that does not fit, or
spills registers, is left out.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from reporting import in_turn, parser, publish
from torch.nn.attention import SDPBackend, sdpa_kernel

import taskfuse as tf
from taskfuse.errors import TaskfuseError

F = torch.nn.functional
SCALE = 256
"""What exponentials of 8 bits are multiplied by: so they are normal numbers down to 2**-14."""
ROWS = 128
"""Rows of the first head that are compared with float64."""


@dataclass(frozen=True)
class Case:
    """Attention at one size.

    Attributes:
        keys: how many of them.
        groups: heads of the query for each head of keys.
        has_bytes: queries and keys are 8-bit floats, with a scale for each head, of which torch multiplies copies in bfloat16.
        columns: elements of a value; 0: as many as of a key.
        has_byte_values: all are 8-bit floats, and so are exponentials, times 256; ``tf.compile`` packs the values. Beside it stands the case in bfloat16, and
            the error may be twice that of exponentials in 8 bits.
    """

    name: str
    batch: int
    heads: int
    queries: int
    keys: int
    depth: int
    is_causal: bool = False
    groups: int = 1
    has_bytes: bool = False
    columns: int = 0
    has_byte_values: bool = False

    @property
    def width(self) -> int:
        """Elements of a value, and of a result."""
        return self.columns or self.depth

    @property
    def flop(self) -> float:
        """Operations of both products."""
        return 2.0 * self.batch * self.heads * self.queries * self.keys * (self.depth + self.width) / (2 if self.is_causal else 1)

    def fusion(self) -> tf.Fusion:
        """Its math; the heads that have keys together are the rows of one product if each has one query."""
        with tf.Fusion(f"attention_{self.name}") as found:
            if self.has_bytes or self.has_byte_values:
                found.add_output(self._of_bytes() if self.has_bytes else self._of_byte_values())
                return found
            q = tf.define_tensor([self.batch, self.heads, self.queries, self.depth], dtype=tf.bfloat16, name="q")
            shape = self.batch, self.heads // self.groups, self.keys
            k, v = (tf.define_tensor([*shape, n], dtype=tf.bfloat16, name=x) for x, n in (("k", self.depth), ("v", self.width)))
            if self.groups > 1 and self.queries == 1:
                q = tf.reshape(q, (*self.results[:-1], self.depth))
            found.add_output(tf.scaled_dot_product_attention(q, k, v, is_causal=self.is_causal, enable_gqa=self.groups > 1))
        return found

    def _of_bytes(self) -> tf.TensorView:
        q, k = (tf.define_tensor([self.batch, self.heads, n, self.depth], dtype=tf.float8_e4m3, name=x) for x, n in (("q", self.queries), ("k", self.keys)))
        v = tf.define_tensor([self.batch, self.heads, self.keys, self.depth], dtype=tf.bfloat16, name="v")
        scale = tf.define_tensor([self.batch, self.heads, 1, 1], name="scale")
        s = tf.matmul(q, tf.permute(k, (0, 1, 3, 2)), dtype=tf.float32) * scale
        p = tf.exp(s - tf.max(s, axis=-1, keepdims=True))
        total = tf.sum(p, axis=-1, keepdims=True)
        return tf.cast(tf.matmul(tf.cast(p, tf.bfloat16), v, dtype=tf.float32) / total, tf.bfloat16)

    def _of_byte_values(self) -> tf.TensorView:
        shape = self.batch, self.heads
        q, k, v = (tf.define_tensor([*shape, n, self.depth], dtype=tf.float8_e4m3) for n in (self.queries, self.keys, self.keys))
        s = tf.matmul(q, tf.permute(k, (0, 1, 3, 2)), dtype=tf.float32) * self.depth**-0.5
        if self.is_causal:
            s = tf.where(tf.iota([self.queries, self.keys], 1) <= tf.iota([self.queries, self.keys], 0), s, -float("inf"))
        p = tf.exp(s - (tf.max(s, axis=-1, keepdims=True) - math.log(SCALE)))
        total = tf.sum(p, axis=-1, keepdims=True)
        return tf.cast(tf.matmul(tf.cast(tf.minimum(p, 448.0), tf.float8_e4m3), v, dtype=tf.float32) / total, tf.bfloat16)

    def given(self, args: list[torch.Tensor]) -> list[torch.Tensor]:
        """What the fusion takes for those of torch."""
        if self.has_byte_values:
            return [x.to(torch.float8_e4m3fn) for x in args]
        if not self.has_bytes:
            return args
        scale = torch.full((self.batch, self.heads, 1, 1), self.depth**-0.5, device="cuda")
        return [*(x.to(torch.float8_e4m3fn) for x in args[:2]), args[2], scale]

    @property
    def results(self) -> tuple[int, int, int, int]:
        """The shape of the result."""
        if self.groups > 1 and self.queries == 1:
            return self.batch, self.heads // self.groups, self.groups, self.width
        return self.batch, self.heads, self.queries, self.width

    def arguments(self) -> list[torch.Tensor]:
        """Random ones."""
        heads = (self.heads, self.heads // self.groups, self.heads // self.groups)
        rows, elements = (self.queries, self.keys, self.keys), (self.depth, self.depth, self.width)
        made = [torch.randn(self.batch, *shape, device="cuda", dtype=torch.bfloat16) for shape in zip(heads, rows, elements, strict=True)]
        rounded = 3 if self.has_byte_values else 2 if self.has_bytes else 0
        return [*(x.to(torch.float8_e4m3fn).to(x.dtype) for x in made[:rounded]), *made[rounded:]]


CASES = (
    Case("4096", 4, 16, 4096, 4096, 128),
    Case("4096_causal", 4, 16, 4096, 4096, 128, is_causal=True),
    Case("16k", 1, 16, 16384, 16384, 128),
    Case("16k_causal", 1, 16, 16384, 16384, 128, is_causal=True),
    Case("d64", 4, 16, 4096, 4096, 64),
    Case("d64_causal", 4, 16, 4096, 4096, 64, is_causal=True),
    Case("d256", 4, 8, 4096, 4096, 256),
    *(Case(f"d{d}", 4, 16, 4096, 4096, d) for d in (40, 72, 80, 88, 96, 104, 112, 160)),
    Case("d192_128", 4, 16, 4096, 4096, 192, columns=128),
    Case("512", 8, 16, 512, 512, 128),
    Case("1024", 8, 16, 1024, 1024, 128),
    Case("ragged", 4, 16, 4000, 4001, 128),
    Case("gqa", 4, 32, 4096, 4096, 128, groups=8),
    Case("bytes", 4, 16, 4096, 4096, 128, has_bytes=True),
    Case("bytes_16k", 1, 16, 16384, 16384, 128, has_bytes=True),
    Case("bytes_d256", 4, 8, 4096, 4096, 256, has_bytes=True),
    Case("byte_values", 4, 16, 4096, 4096, 128, has_byte_values=True),
    Case("byte_values_causal", 4, 16, 4096, 4096, 128, is_causal=True, has_byte_values=True),
    Case("byte_values_16k", 1, 16, 16384, 16384, 128, has_byte_values=True),
    Case("byte_values_d64", 4, 16, 4096, 4096, 64, has_byte_values=True),
    Case("byte_values_d256", 4, 8, 4096, 4096, 256, has_byte_values=True),
    Case("decode", 8, 32, 1, 32768, 128, groups=8),
)


def wanted(case: Case, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, rounds: bool = False) -> torch.Tensor:
    """The first head of the last batch in float64: its last rows. ``rounds``: with exponentials in 8 bits."""
    rows = slice(max(case.queries - ROWS, 0), case.queries)
    scores = q[-1, 0, rows].double() @ k[-1, 0].double().T * case.depth**-0.5
    if case.is_causal:
        place = torch.arange(case.queries, device="cuda")[rows, None]
        scores = scores.masked_fill(torch.arange(case.keys, device="cuda")[None] > place, -torch.inf)
    if rounds:
        p = torch.exp(scores - scores.amax(1, keepdim=True)) * SCALE
        return p.float().to(torch.float8_e4m3fn).double() @ v[-1, 0].double() / p.sum(1, keepdim=True)
    return torch.softmax(scores, 1) @ v[-1, 0].double()


def causal(b: Any, h: Any, i: Any, j: Any) -> Any:
    """Which keys count for a query, as FlexAttention asks."""
    return i >= j


def theirs(case: Case, args: list[torch.Tensor], has_flex: bool) -> dict[str, Callable[[], torch.Tensor]]:
    """torch's, by name: those that take the case."""

    def sdpa(backend: Any) -> Callable[[], torch.Tensor]:
        def call() -> torch.Tensor:
            with sdpa_kernel(backend):
                return F.scaled_dot_product_attention(*args, is_causal=case.is_causal, enable_gqa=case.groups > 1)

        return call

    found = {"cudnn": sdpa(SDPBackend.CUDNN_ATTENTION), "flash": sdpa(SDPBackend.FLASH_ATTENTION)}
    if has_flex:
        from torch.nn.attention import flex_attention

        flex: Any = flex_attention
        mask = flex.create_block_mask(causal, None, None, case.queries, case.keys) if case.is_causal else None
        compiled: Any = torch.compile(flex.flex_attention, dynamic=False)
        found["flex"] = lambda: compiled(*args, block_mask=mask, enable_gqa=case.groups > 1)
    taken: dict[str, Callable[[], torch.Tensor]] = {}
    for name, call in found.items():
        try:
            call()
        except RuntimeError as error:
            print(f"{case.name}: {name}: {str(error).splitlines()[0]}", flush=True)
        else:
            taken[name] = call
    return taken


def of_bytes(case: Case, args: list[torch.Tensor], given: list[torch.Tensor]) -> dict[str, Any]:
    """What ``tf.compile`` makes of a case with values of 8 bits, and of the same in bfloat16."""
    found: dict[str, Any] = {}
    for name, made, own in (("8 bits", case, given), ("bfloat16", replace(case, has_byte_values=False), args)):
        run = tf.compile(made.fusion(), backend="cuda", fast_math=True)
        assert run.schedule is not None
        found[f"{name}, {len(run.kernels)} kernels, expected {run.schedule.us:.0f} us"] = partial(run, *own)
    return found


def candidates(case: Case, args: list[torch.Tensor], sweep: int, given: Sequence[tuple[int, ...]]) -> dict[str, Any]:
    """Kernels to call, by words: the choice of the cost model, those after it, and those that are given."""
    chosen = tf.schedulers.attention(case.fusion())
    every = [(o.config, f"expected {o.us:.0f} us, ") for o in chosen.alternatives[: 1 + sweep]]
    every += [(tf.schedulers.AttentionConfig(*fields), "") for fields in given]
    found: dict[str, Any] = {}
    for config, expected in every:
        fusion = case.fusion()
        try:
            tf.schedulers.attention(fusion, config)
            kernel = tf.lower(fusion)
            resources = kernel.resources(fast_math=True)
            run = tf.compile(kernel, backend="cuda", fast_math=True)
            run(*args)
        except TaskfuseError as error:
            print(f"{case.name}: {config.words}: {str(error).splitlines()[0]}", flush=True)
        else:
            found[f"{expected}{resources.compiled.registers} regs, {config.words}"] = partial(run, *args)
    return found


def measure(case: Case, sweep: int, given: Sequence[tuple[int, ...]], has_flex: bool) -> list[str]:
    """The lines of a case."""
    args = case.arguments()
    exact = wanted(case, *args)
    others = theirs(case, args, has_flex)

    def error(out: torch.Tensor) -> float:
        return float((out[-1, 0, -exact.shape[0] :].double() - exact).abs().max())

    limit = 2 * min(error(call()) for call in others.values())
    if case.has_byte_values:
        limit = 2 * float((wanted(case, *args, rounds=True) - exact).abs().max())
    calls: list[Callable[[], object]] = list(others.values())
    words: list[str] = []
    own = case.given(args)
    made = of_bytes(case, args, own) if case.has_byte_values else candidates(case, own, sweep, given)
    for name, run in made.items():
        out = torch.full(case.results, torch.nan, device="cuda", dtype=torch.bfloat16)
        run(out=out)
        if not error(out.view(case.batch, case.heads, case.queries, case.width)) <= limit:
            sys.exit(f"{case.name}: {name}: off by {error(out)}, and torch by {limit / 2}")
        calls.append(lambda run=run, out=out: run(out=out))
        words.append(name)
    times = in_turn(calls)
    best = min(times[: len(others)])
    lines = [f"{case.name} {case.batch}x{case.heads}x{case.queries}x{case.keys}x{case.depth}{' causal' if case.is_causal else ''}, heads by {case.groups}"]
    for name, us in zip((*others, *(f"taskfuse: {w}" for w in words)), times, strict=True):
        lines.append(f"  {us:8.1f} us  {best / us:5.2f}x  {case.flop / us / 1e6:5.0f} TFLOP/s  {name}")
    return lines


def main() -> None:
    """Measure, print and, if asked, store."""
    found: Any = parser(__doc__)
    found.add_argument("--only", nargs="*", default=[case.name for case in CASES])
    found.add_argument("--sweep", type=int, default=0, help="further candidates of the cost model")
    found.add_argument("--configs", nargs="*", default=[], help="candidates with these parameters: numbers with commas between them")
    found.add_argument("--flex", action="store_true", help="FlexAttention, too, which takes a minute to compile for each case")
    options = found.parse_args()
    given = [tuple(map(int, fields.split(","))) for fields in options.configs]
    lines: list[str] = []
    for case in CASES:
        if case.name in options.only:
            made = measure(case, options.sweep, given, options.flex)
            print("\n".join(made), flush=True)
            lines += made
    publish("attention", lines, options)


if __name__ == "__main__":
    main()
