"""Attention of sequences of unequal length (``tf.varlen_attention``, ``tf.paged_attention``) beside torch's flash attention.

``python benchmarks/ragged_attention.py [--write] [--only NAME ...] [--configs PARAMETERS ...]``. Random bfloat16 inputs, poisoned outputs, compared with
float64 for one head of the longest sequence: the error may be twice that of torch. Medians of 20 replays of CUDA graphs of 10 calls, all runners of a case
replayed in turn. Kernels are built with ``fast_math``, as the others are. Runners are the choice of ``tf.compile`` and, with ``--configs``, one walk with
these parameters, the fields of an ``AttentionConfig`` in order, such as ``2,128,2,1,132``.

Sequences: ``flash`` is ``torch.ops.aten._flash_attention_forward`` with offsets. Operations are those of the pairs of a query and a key that count. Pages:
``gathered`` copies the pages of all sequences side by side and calls ``scaled_dot_product_attention`` of cuDNN, with a mask where lengths differ; ``side by
side`` is that call alone, on keys that lie so. Bandwidth is that of the keys and values of all sequences.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from reporting import in_turn, parser, publish
from torch.nn.attention import SDPBackend, sdpa_kernel

import taskfuse as tf
from taskfuse.errors import TaskfuseError

F = torch.nn.functional
Call = Callable[[], torch.Tensor]


def drawn(count: int, least: int, most: int) -> tuple[int, ...]:
    """Lengths that are spread evenly, in random order."""
    found = torch.linspace(least, most, count).long()
    return tuple(found[torch.randperm(count, generator=torch.Generator().manual_seed(0))].tolist())


def int32(values: Sequence[int]) -> torch.Tensor:
    """A table."""
    return torch.tensor(values, dtype=torch.int32, device="cuda")


def cuts(lengths: Sequence[int]) -> torch.Tensor:
    """Offsets of sequences."""
    return F.pad(int32(lengths).cumsum(0), (1, 0)).int()


def random(*shape: int) -> torch.Tensor:
    """Elements of a normal distribution."""
    return torch.randn(*shape, device="cuda", dtype=torch.bfloat16)


def exact(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, is_causal: bool, window: int | None = None) -> torch.Tensor:
    """One head of one sequence in float64; the last query is at the last key."""
    scores = q.double() @ k.double().T * q.shape[1] ** -0.5
    if is_causal:
        rows, columns = (torch.arange(n, device="cuda") for n in scores.shape)
        last = rows[:, None] + len(columns) - len(rows)
        scores = scores.masked_fill((columns > last) | (columns <= last - (window or len(columns))), -torch.inf)
    return torch.softmax(scores, 1) @ v.double()


@dataclass(frozen=True)
class Varlen:
    """Sequences one after another.

    Attributes:
        keys: of each sequence; those of queries unless given.
        window: keys of a query, with ``is_causal``; all unless given.
    """

    name: str
    lengths: tuple[int, ...]
    keys: tuple[int, ...] = ()
    heads: int = 16
    groups: int = 1
    depth: int = 128
    is_causal: bool = False
    window: int | None = None

    @property
    def of_k(self) -> tuple[int, ...]:
        """Keys of each sequence."""
        return self.keys or self.lengths

    @property
    def work(self) -> float:
        """Operations of both products."""
        pairs = sum(q * k - (q * (q - 1) // 2 if self.is_causal else 0) for q, k in zip(self.lengths, self.of_k, strict=True))
        if self.window is not None:  # of those, the queries with more keys than a window have as many as that
            pairs = sum(sum(min(i, self.window) for i in range(k - q + 1, k + 1)) for q, k in zip(self.lengths, self.of_k, strict=True))
        return 4.0 * self.heads * self.depth * pairs

    def fusion(self) -> tf.Fusion:
        """Its math."""
        with tf.Fusion(f"varlen_{self.name}") as found:
            q = tf.define_tensor([sum(self.lengths), self.heads, self.depth], tf.bfloat16, name="q")
            k, v = (tf.define_tensor([sum(self.of_k), self.heads // self.groups, self.depth], tf.bfloat16, name=name) for name in "kv")
            tables = [tf.table(name, len(self.lengths) + 1, high=tv.shape[0], rising=True) for name, tv in (("of_q", q), ("of_k", k))]
            found.add_output(tf.varlen_attention(q, k, v, *tables, is_causal=self.is_causal, window=self.window))
        return found

    def arguments(self) -> list[torch.Tensor]:
        """Random ones, and tables."""
        q = random(sum(self.lengths), self.heads, self.depth)
        k, v = (random(sum(self.of_k), self.heads // self.groups, self.depth) for _ in "kv")
        return [q, k, v, cuts(self.lengths), cuts(self.of_k)]

    def theirs(self, args: list[torch.Tensor]) -> dict[str, Call]:
        """torch's."""
        q, k, v, of_q, of_k = args
        flash: Any = torch.ops.aten._flash_attention_forward
        most = max(self.lengths), max(self.of_k)
        window = {} if self.window is None else {"window_size_left": self.window - 1, "window_size_right": 0}
        return {"flash": lambda: flash(q, k, v, of_q, of_k, *most, 0.0, self.is_causal, False, **window)[0]}

    def error(self, args: list[torch.Tensor], out: torch.Tensor) -> float:
        """The greatest of the first head of the longest sequence; infinite if anything is not a number."""
        q, k, v, of_q, of_k = args
        b = max(range(len(self.lengths)), key=lambda b: self.lengths[b])
        rows, keys = slice(int(of_q[b]), int(of_q[b + 1])), slice(int(of_k[b]), int(of_k[b + 1]))
        found = (out[rows, 0].double() - exact(q[rows, 0], k[keys, 0], v[keys, 0], self.is_causal, self.window)).abs().max()
        return float(found) if bool(out.isfinite().all()) else torch.inf

    def line(self, us: float) -> str:
        """A rate."""
        return f"{self.work / us / 1e6:5.0f} TFLOP/s"


@dataclass(frozen=True)
class Paged:
    """Few queries over keys in pages.

    Attributes:
        size: keys of a page.
    """

    name: str
    lengths: tuple[int, ...]
    size: int
    queries: int = 1
    heads: int = 32
    groups: int = 4
    depth: int = 128

    @property
    def each(self) -> int:
        """Pages of a sequence, at most."""
        return -(-max(self.lengths) // self.size)

    @property
    def is_causal(self) -> bool:
        """Several queries are the last keys."""
        return self.queries > 1

    @property
    def work(self) -> float:
        """Bytes of keys and values."""
        return 4.0 * sum(self.lengths) * self.heads // self.groups * self.depth

    def fusion(self) -> tf.Fusion:
        """Its math."""
        batch = len(self.lengths)
        with tf.Fusion(f"paged_{self.name}") as found:
            q = tf.define_tensor([batch, self.heads, self.queries, self.depth], tf.bfloat16, name="q")
            k, v = (tf.define_tensor([batch * self.each, self.size, self.heads // self.groups, self.depth], tf.bfloat16, name=name) for name in "kv")
            tables = tf.table("pages", batch * self.each, high=batch * self.each - 1), tf.table("lengths", batch, high=self.each * self.size)
            found.add_output(tf.paged_attention(q, k, v, *tables, is_causal=self.is_causal))
        return found

    def arguments(self) -> list[torch.Tensor]:
        """Random ones; the pages of all sequences in random order."""
        batch = len(self.lengths)
        k, v = (random(batch * self.each, self.size, self.heads // self.groups, self.depth) for _ in "kv")
        pages = torch.randperm(batch * self.each, device="cuda", dtype=torch.int32)
        return [random(batch, self.heads, self.queries, self.depth), k, v, pages, int32(self.lengths)]

    def theirs(self, args: list[torch.Tensor]) -> dict[str, Call]:
        """torch's."""
        q, k, v, pages, lengths = args
        batch, long = len(self.lengths), pages.long()
        places = torch.arange(self.each * self.size, device="cuda")
        last = lengths[:, None, None] - self.queries + torch.arange(self.queries, device="cuda")[:, None]
        mask = None if self.queries == 1 and len(set(self.lengths)) == 1 else (places <= last)[:, None]

        def side_by_side(pages: torch.Tensor) -> torch.Tensor:
            return pages.view(batch, self.each * self.size, -1, self.depth).transpose(1, 2)

        def attend(k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            with sdpa_kernel([SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH], set_priority=True):
                return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=self.groups > 1)

        own_k, own_v = (side_by_side(x[long]) for x in (k, v))
        return {"gathered": lambda: attend(side_by_side(k[long]), side_by_side(v[long])), "side by side": lambda: attend(own_k, own_v)}

    def error(self, args: list[torch.Tensor], out: torch.Tensor) -> float:
        """The greatest of the first head of the longest sequence; infinite if anything is not a number."""
        q, k, v, pages, lengths = args
        b = max(range(len(self.lengths)), key=lambda b: self.lengths[b])
        own = pages.view(len(self.lengths), -1)[b].long()
        keys, values = (x[own].flatten(0, 1)[: int(lengths[b]), 0] for x in (k, v))
        found = (out[b, 0].double() - exact(q[b, 0], keys, values, self.is_causal)).abs().max()
        return float(found) if bool(out.isfinite().all()) else torch.inf

    def line(self, us: float) -> str:
        """A rate."""
        return f"{self.work / us / 1e6:5.2f} TB/s"


MIXED = drawn(16, 128, 3968)
CASES: tuple[Varlen | Paged, ...] = (
    Varlen("equal", (4096,) * 8),
    Varlen("equal_causal", (4096,) * 8, is_causal=True),
    Varlen("mixed", MIXED),
    Varlen("mixed_causal", MIXED, is_causal=True),
    Varlen("mixed_window", MIXED, is_causal=True, window=512),
    Varlen("equal_window", (4096,) * 8, is_causal=True, window=1024),
    Varlen("mixed_d64", MIXED, depth=64),
    Varlen("mixed_gqa_causal", MIXED, heads=32, groups=4, is_causal=True),
    Varlen("short", (512,) * 64),
    Varlen("short_causal", drawn(128, 1, 511), is_causal=True),
    Varlen("prefill_causal", (512,) * 16, drawn(16, 512, 8192), is_causal=True),
    Paged("4096_page16", (4096,) * 16, 16),
    Paged("4096_page64", (4096,) * 16, 64),
    Paged("4096_page256", (4096,) * 16, 256),
    Paged("32768_page16", (32768,) * 8, 16),
    Paged("32768_page64", (32768,) * 8, 64),
    Paged("one_32768_page64", (32768,), 64),
    Paged("4_queries_page64", (8192,) * 16, 64, queries=4),
    Paged("16_queries_page64", (8192,) * 16, 64, queries=16),
    Paged("mixed_page16", drawn(64, 1, 8192), 16),
    Paged("mixed_page64", drawn(64, 1, 8192), 64),
)


def ours(case: Varlen | Paged, args: list[torch.Tensor], given: Sequence[tuple[int, ...]]) -> dict[str, Any]:
    """Executables, by words: the choice of ``tf.compile``, and walks with given parameters."""

    def walk(fields: tuple[int, ...]) -> Any:
        fusion = case.fusion()
        tf.schedulers.attention(fusion, tf.schedulers.AttentionConfig(*fields))
        return tf.compile(tf.lower(fusion), backend="cuda", fast_math=True)

    makes: dict[str, Callable[[], Any]] = {"tf.compile": lambda: tf.compile(case.fusion(), backend="cuda", fast_math=True)}
    makes |= {tf.schedulers.AttentionConfig(*fields).words: lambda fields=fields: walk(fields) for fields in given}
    found: dict[str, Any] = {}
    for words, make in makes.items():
        try:
            run = make()
            run(*args)
        except TaskfuseError as error:
            print(f"{case.name}: {words}: {str(error).splitlines()[0]}", flush=True)
        else:
            kernels = getattr(run, "kernels", (run,))
            parameters = str(run.schedule.config.words) if words == "tf.compile" and len(kernels) == 1 else ""
            found[f"taskfuse: {words}, {len(kernels)} kernel{'s' * (len(kernels) > 1)} {parameters}"] = run
    return found


def measure(case: Varlen | Paged, given: Sequence[tuple[int, ...]]) -> list[str]:
    """The lines of a case."""
    args = case.arguments()
    others: dict[str, Call] = {}
    for name, call in case.theirs(args).items():
        try:
            call()
        except RuntimeError as error:
            print(f"{case.name}: {name}: {str(error).splitlines()[0]}", flush=True)
        else:
            others[name] = call
    errors = {name: case.error(args, call()) for name, call in others.items()}
    limit = 2 * min(errors.values(), default=5e-3)
    calls: dict[str, Callable[[], object]] = {**others}
    for name, run in ours(case, args, given).items():
        out = torch.full((*args[0].shape[:-1], args[2].shape[-1]), torch.nan, device="cuda", dtype=torch.bfloat16)
        run(*args, out=out)
        errors[name] = case.error(args, out)
        if not errors[name] <= limit:
            sys.exit(f"{case.name}: {name}: off by {errors[name]}, and torch by {limit / 2}")
        calls[name] = lambda run=run, out=out: run(*args, out=out)
    times = in_turn(list(calls.values()))
    best = min(times[: len(others)], default=min(times))
    kind = "sequences" if isinstance(case, Varlen) else "paged"
    lines = [f"{kind} {case.name}: {len(case.lengths)} of {min(case.lengths)} to {max(case.lengths)}, heads of {case.depth}{', causal' * case.is_causal}"]
    for name, us in zip(calls, times, strict=True):
        lines.append(f"  {us:8.1f} us  {best / us:5.2f}x  {case.line(us)}  error {errors[name]:.1e}  {name}")
    return lines


def main() -> None:
    """Measure, print and, if asked, store."""
    found: Any = parser(__doc__)
    found.add_argument("--only", nargs="*", default=[case.name for case in CASES])
    found.add_argument("--configs", nargs="*", default=[], help="walks with these parameters: numbers with commas between them")
    options = found.parse_args()
    given = [tuple(map(int, fields.split(","))) for fields in options.configs]
    lines: list[str] = []
    for case in CASES:
        if case.name in options.only:
            made = measure(case, given)
            print("\n".join(made), flush=True)
            lines += made
            torch.cuda.empty_cache()
    publish("ragged_attention", lines, options)


if __name__ == "__main__":
    main()
