"""Attention of few queries over many keys (``tf.scaled_dot_product_attention`` by ``tf.compile``) beside torch's: cuDNN, and flash.

``python benchmarks/decode.py [--write] [--only NAME ...] [--chunks N ...] [--configs PARAMETERS ...]``. Random bfloat16 inputs, several sets of them in
turn, which together are larger than the L2 cache; poisoned outputs, compared with float64: the error may be twice that of torch's best. Medians of
20 replays of CUDA graphs of 10 calls, all runners of a case replayed in turn. Bandwidth is that of queries, keys, values and results, each moved once. The
heads that have keys together are rows of one product. Heads of 576 elements with values of 512 are those of latent attention (DeepSeek-V2, arXiv:2405.04434):
all heads have keys together, and a value is a part of its key, which is moved once; beside them are FlexAttention, compiled, and two products with a softmax
between them, which torch computes faster than what it compiles of them. Kernels are built with ``fast_math``, as the others are. Runners are one walk over
the keys (``tf.schedulers.attention``), the choice of ``tf.compile``, and with ``--chunks`` two kernels of these numbers of chunks
(:func:`taskfuse.chunk_cascade`), with the parameters of ``--configs`` for the walks, the fields of an ``AttentionConfig`` in order.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle, product
from typing import Any

import torch
from reporting import L2_BYTES, in_turn, parser, publish
from torch.nn.attention import SDPBackend, flex_attention, sdpa_kernel

import taskfuse as tf
from taskfuse.errors import TaskfuseError
from taskfuse.ir.storage import needed
from taskfuse.schedulers import AttentionConfig
from taskfuse.schedulers.attention_math import find
from taskfuse.schedulers.walks import walks

F = torch.nn.functional
flex: Any = flex_attention
MOST_SETS = 8
"""Sets of inputs that are called in turn, at most."""
CONFIGS = (AttentionConfig(1, 128, 2), AttentionConfig(1, 64, 3))
LATENT_CONFIGS = (AttentionConfig(2, 64, 2, parts=2), AttentionConfig(2, 64, 2, parts=2, apart=True))
"""Parameters of the walks over chunks, and of those of latent attention."""


@dataclass(frozen=True)
class Case:
    """Attention of a few queries.

    Attributes:
        groups: heads of the query for each head of keys.
        columns: elements of a value, which are the first ones of its key; 0: values are a tensor of their own, of ``depth`` elements.
    """

    batch: int
    heads: int
    groups: int
    queries: int
    keys: int
    depth: int
    columns: int = 0

    @property
    def name(self) -> str:
        """``b1_h32_kv8_q1_32768_d128``."""
        name = f"b{self.batch}_h{self.heads}_kv{self.heads // self.groups}_q{self.queries}_{self.keys}_d{self.depth}"
        return f"{name}_{self.columns}" if self.columns else name

    @property
    def bytes(self) -> int:
        """Of queries, keys, values and results."""
        rows = self.heads * self.queries * (self.depth + self.width)
        return 2 * self.batch * (rows + self.heads // self.groups * self.keys * self.depth * (1 if self.columns else 2))

    @property
    def flops(self) -> int:
        """Of both products."""
        return 2 * self.batch * self.heads * self.queries * self.keys * (self.depth + self.width)

    @property
    def width(self) -> int:
        """Elements of a value, and of a result."""
        return self.columns or self.depth

    def rows(self, width: int) -> tuple[int, int, int, int]:
        """The shape of the queries, or of the result, as one product for the heads that have keys together."""
        return self.batch, self.heads // self.groups, self.groups * self.queries, width

    def fusion(self) -> tf.Fusion:
        """Its math."""
        with tf.Fusion("decode") as found:
            q = tf.define_tensor([*self.rows(self.depth)], dtype=tf.bfloat16, name="q")
            k = tf.define_tensor([self.batch, self.heads // self.groups, self.keys, self.depth], dtype=tf.bfloat16, name="k")
            v = k[..., : self.columns] if self.columns else tf.define_tensor([*k.shape], dtype=tf.bfloat16, name="v")
            found.add_output(tf.scaled_dot_product_attention(q, k, v))
        return found

    def sets(self) -> list[list[torch.Tensor]]:
        """Random inputs, as many sets as are larger than the cache."""
        heads, rows = (self.heads, *(self.heads // self.groups,) * 2), (self.queries, self.keys, self.keys)

        def one() -> list[torch.Tensor]:
            made = [torch.randn(self.batch, h, n, self.depth, device="cuda", dtype=torch.bfloat16) for h, n in zip(heads, rows, strict=True)]
            return [*made[:2], made[1][..., : self.columns]] if self.columns else made

        return [one() for _ in range(min(MOST_SETS, 1 + 2 * L2_BYTES // self.bytes))]


LATENT = ((1, 16, 4096), (1, 128, 4096), (1, 128, 32768), (16, 16, 8192), (16, 128, 4096), (64, 128, 4096), (128, 16, 4096), (132, 64, 4096))
"""Batches, heads and keys of latent attention."""
CASES = tuple(
    Case(batch, 32, groups, queries, keys, depth)
    for batch, groups, queries, keys, depth in product((1, 16), (1, 4), (1, 4, 16), (4096, 32768), (64, 128))
    if batch * 32 // groups * keys * depth <= 1 << 30  # keys of at most 2 GiB
) + tuple(Case(batch, heads, heads, 1, keys, 576, 512) for batch, heads, keys in LATENT)


def wanted(case: Case, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """The results of the last batch in float64, ``[heads of keys, rows, depth]``."""
    rows = q.view(case.rows(case.depth))[-1].double()
    found = [torch.softmax(r @ a.double().T * case.depth**-0.5, 1) @ b.double() for r, a, b in zip(rows, k[-1], v[-1], strict=True)]
    return torch.stack(found)


Runner = Callable[[list[torch.Tensor], torch.Tensor], torch.Tensor]
"""From inputs and an array that it may fill to the result."""


def theirs(case: Case, args: list[torch.Tensor]) -> dict[str, Runner]:
    """torch's, by name: those that take the case."""

    def sdpa(backend: Any) -> Runner:
        def call(args: list[torch.Tensor], out: torch.Tensor) -> torch.Tensor:
            with sdpa_kernel(backend):
                return F.scaled_dot_product_attention(*args, enable_gqa=case.groups > 1)

        return call

    def products(args: list[torch.Tensor], out: torch.Tensor) -> torch.Tensor:
        q, k, v = args
        p = torch.softmax(q.view(case.rows(case.depth)) @ k.transpose(-1, -2) * case.depth**-0.5, -1)
        return (p @ v).view(out.shape)

    def flexible(args: list[torch.Tensor], out: torch.Tensor) -> torch.Tensor:
        return flex.flex_attention(*args, enable_gqa=True)

    taken: dict[str, Runner] = {}
    offered: dict[str, Runner] = {"cudnn": sdpa(SDPBackend.CUDNN_ATTENTION), "flash": sdpa(SDPBackend.FLASH_ATTENTION)}
    if case.columns:
        offered |= {"efficient": sdpa(SDPBackend.EFFICIENT_ATTENTION), "products": products, "flex": torch.compile(flexible, dynamic=False)}
    for name, call in offered.items():
        try:
            call(args, args[0].new_empty(*args[0].shape[:-1], case.width))
        except Exception as error:  # also those of torch.compile
            print(f"{case.name}: {name}: {str(error).splitlines()[0]}", flush=True)
        else:
            taken[name] = call
    return taken


def in_chunks(case: Case, n: int, config: AttentionConfig) -> tf.SegmentedFusion:
    """Two kernels: of ``n`` chunks of keys side by side, and of what joins them."""
    fusion = case.fusion()
    tf.chunk_cascade(find(fusion).reductions, n, config.chunk)
    (walk,) = walks(fusion)
    names = {tv.name for tv in walk}
    segmented = tf.segment(fusion, [sorted(names), [e.output.name for e in needed(fusion) if e.output.name not in names]])
    first, second = segmented.segments
    tf.schedulers.attention(first, config)
    tf.schedulers.normalization(second)
    return segmented


def ours(case: Case, chunks: Sequence[int], configs: Sequence[AttentionConfig]) -> Iterator[tuple[str, Callable[[], Any]]]:
    """What compiles each runner, by words."""

    def whole() -> Any:
        fusion = case.fusion()
        tf.schedulers.attention(fusion)
        return tf.compile(tf.lower(fusion), backend="cuda", fast_math=True)

    yield "one walk", whole
    yield "tf.compile", lambda: tf.compile(case.fusion(), backend="cuda", fast_math=True)
    for n, config in product(chunks, configs or (LATENT_CONFIGS if case.columns else CONFIGS)):
        yield f"{n} chunks, {config.words}", lambda n=n, config=config: tf.compile(in_chunks(case, n, config), backend="cuda", fast_math=True)


def runners(case: Case, args: list[torch.Tensor], chunks: Sequence[int], configs: Sequence[AttentionConfig]) -> dict[str, Runner]:
    """taskfuse's, by words: those that are compiled and take the case."""
    found: dict[str, Runner] = {}
    for words, make in ours(case, chunks, configs):
        try:
            run = make()

            def call(args: list[torch.Tensor], out: torch.Tensor, run: Any = run) -> torch.Tensor:
                q, k, v = args
                run(q.view(case.rows(case.depth)), k, *([] if case.columns else [v]), out=out.view(case.rows(case.width)))
                return out

            call(args, args[0].new_empty(*args[0].shape[:-1], case.width))
        except TaskfuseError as error:
            print(f"{case.name}: {words}: {str(error).splitlines()[0]}", flush=True)
        else:
            kernels = getattr(run, "kernels", (run,))
            found[f"taskfuse: {words}, {len(kernels)} kernel{'s' * (len(kernels) > 1)}"] = call
    return found


def measure(case: Case, chunks: Sequence[int], configs: Sequence[AttentionConfig]) -> list[str]:
    """The lines of a case."""
    sets = case.sets()
    exact = wanted(case, *sets[0])
    others, made = theirs(case, sets[0]), runners(case, sets[0], chunks, configs)
    errors: dict[str, float] = {}

    def poisoned(args: list[torch.Tensor]) -> torch.Tensor:
        return args[0].new_full((*args[0].shape[:-1], case.width), torch.nan)

    for name, call in (others | made).items():
        errors[name] = float((call(sets[0], poisoned(sets[0])).reshape(case.rows(case.width))[-1].double() - exact).abs().max())
    limit = 2 * min((errors[name] for name in others), default=5e-3)
    wrong = next((name for name in made if not errors[name] <= limit), None)
    if wrong is not None:
        sys.exit(f"{case.name}: {wrong}: off by {errors[wrong]}, and torch by {limit / 2}")

    def in_sets(call: Runner) -> Callable[[], object]:
        turn = cycle([(args, poisoned(args)) for args in sets])
        return lambda: call(*next(turn))

    names = [*others, *made]
    times = in_turn([in_sets(call) for call in (others | made).values()])
    best = min(times[: len(others)], default=min(times))
    lines = [f"{case.name}, {case.bytes / 1e6:.1f} MB, {len(sets)} sets of inputs"]
    for name, us in zip(names, times, strict=True):
        lines.append(
            f"  {us:8.1f} us  {best / us:5.2f}x  {case.bytes / us / 1e6:5.2f} TB/s  {case.flops / us / 1e6:4.0f} TFLOP/s  error {errors[name]:.1e}  {name}"
        )
    return lines


def main() -> None:
    """Measure, print and, if asked, store."""
    found: Any = parser(__doc__)
    found.add_argument("--only", nargs="*", default=[case.name for case in CASES])
    found.add_argument("--chunks", nargs="*", type=int, default=[], help="two kernels with these numbers of chunks")
    found.add_argument("--configs", nargs="*", default=[], help="parameters of their walks: numbers with commas between them")
    options = found.parse_args()
    configs = [AttentionConfig(*map(int, fields.split(","))) for fields in options.configs]
    lines: list[str] = []
    for case in CASES:
        if case.name in options.only:
            made = measure(case, options.chunks, configs)
            print("\n".join(made), flush=True)
            lines += made
            torch.cuda.empty_cache()
    publish("decode", lines, options)


if __name__ == "__main__":
    main()
