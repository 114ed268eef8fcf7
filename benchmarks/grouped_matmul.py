"""Products of ragged groups of rows, ``tf.grouped_matmul``, beside ``torch._grouped_mm``: bfloat16, sums in float32.

``python benchmarks/grouped_matmul.py [KIND ...] [--shapes N ...] [--write]``. The three shapes are those of DeepGEMM's README for grouped products of
rows. Kinds of offsets: ``even``; ``tiles``, random multiples of 128 rows; ``random``, with groups that have no rows. Each with the configuration that the cost
model chooses and with others; beside them ``tiles`` has a product that a table of the expert of each 128 rows decides, and all have one product of all rows by
one matrix, ours and theirs. A time is that of one of 10 calls in a CUDA graph, the median of 20 replays; all are replayed in turn, so that throttling hits them
alike. ``depth`` compares a search of the offsets with a table of tiles by the terms of a sum. ``lengths`` compares offsets that the caller made with lengths
that each block adds up, and with a kernel of torch that adds them up before ours, by the number of groups. ``half`` compares triangles of products (one, and
two: rank 2k) with the whole product: in the order that the cost model chooses, with the tiles of the triangle first and in groups. ``gated`` compares two
products of the same groups and a gated activation in one kernel with torch's three. Inputs are random, outputs are poisoned with NaN, then compared with a
float32 product.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from reporting import in_turn, parser, publish

import taskfuse as tf
from taskfuse.errors import TaskfuseError
from taskfuse.ir.scalar import const
from taskfuse.ops.views import view
from taskfuse.schedulers import MatmulConfig, MatmulKind

SHAPES = ((4, 32768, 4096, 7168), (8, 32768, 7168, 2048), (32, 8192, 3072, 4096))
"""Groups, rows, columns, terms of a sum."""
KINDS = ("even", "tiles", "random")
DEPTH_SHAPE = (16, 16384, 2048)
"""Groups, rows, columns of the products whose sums have one of these numbers of terms."""
DEPTHS = (64, 128, 256, 512, 1024, 2048, 4096)
LENGTHS = ((8, 32768, 7168, 2048), (64, 8192, 2048, 1024), (512, 16384, 1024, 512))
"""Shapes whose offsets are made of lengths."""
HALVES = ((4096, 4096), (8192, 2048), (2048, 8192))
"""Extent of a square result, terms of a sum."""
GATED = ((64, 8192, 1024, 2048), (8, 4096, 2048, 4096))
"""Groups, rows, columns, terms of a sum."""
TILE = 128
TURNS = MatmulKind.PINGPONG
CONFIGS = (
    MatmulConfig(128, 256, stages=4, group=2),
    MatmulConfig(128, 256, stages=4, group=4),
    MatmulConfig(128, 256, stages=4, group=8),
    MatmulConfig(128, 256, stages=4, group=16),
    MatmulConfig(128, 192, stages=4, group=8),
    MatmulConfig(256, 128, stages=4, group=1),
    MatmulConfig(128, 128, stages=6, group=8, kind=TURNS),
    MatmulConfig(64, 256, stages=4, group=8, kind=TURNS),
)
USUAL = CONFIGS[2]
Shape = tuple[int, int, int, int]


def offsets(kind: str, groups: int, rows: int) -> list[int]:
    """Where each group begins, and where the last one ends."""
    if kind == "even":
        return [rows * g // groups for g in range(groups + 1)]
    rng, step = np.random.default_rng(groups), TILE if kind == "tiles" else 1
    inner = sorted(int(k) * step for k in rng.integers(0, rows // step + 1, groups - 1))
    if kind == "random":
        inner[1] = inner[0]  # a group without rows
    return [0, *inner, rows]


def ragged(shape: Shape, tile: int | None = None) -> tf.Fusion:
    """The product of groups of any number of rows, in tiles of so many."""
    groups, rows, columns, terms = shape
    with tf.Fusion("grouped") as fusion:
        a = tf.define_tensor((rows, terms), tf.bfloat16, name="a")
        b = tf.define_tensor((groups, terms, columns), tf.bfloat16, name="b")
        fusion.add_output(tf.grouped_matmul(a, b, tf.table("offsets", groups + 1, rows, rising=True), tile=tile))
    return fusion


def by_tiles(shape: Shape) -> tf.Fusion:
    """The product in which a table says which matrix each tile of rows takes."""
    groups, rows, columns, terms = shape
    count = rows // TILE
    with tf.Fusion("tiles") as fusion:
        a = tf.define_tensor((count, TILE, terms), tf.bfloat16, name="a")
        b = tf.define_tensor((groups, terms, columns), tf.bfloat16, name="b")
        table = tf.table("experts", count, groups - 1)
        i, j, k = (tf.scalar.sym(f"i{n}") for n in range(3))
        expert = tf.scalar.element(tf.scalar.sym(table.name), i, count, 0, groups - 1)
        fusion.add_output(tf.matmul(a, view(b, "of_tiles", tuple(map(const, (count, terms, columns))), (expert, j, k))))
    return fusion


def one(shape: Shape) -> tf.Fusion:
    """All rows by one matrix."""
    _, rows, columns, terms = shape
    with tf.Fusion("one") as fusion:
        a, b = tf.define_tensor((rows, terms), tf.bfloat16, name="a"), tf.define_tensor((terms, columns), tf.bfloat16, name="b")
        fusion.add_output(tf.matmul(a, b))
    return fusion


def compiled(fusion: tf.Fusion, config: MatmulConfig | None) -> tuple[Any, MatmulConfig, float]:
    """The kernel, its configuration, and what the model expects."""
    chosen = tf.schedulers.matmul(fusion, config)
    return tf.compile(fusion, backend="cuda"), chosen.config, chosen.us


class Measured:
    """One shape, with all its kernels."""

    def __init__(self, shape: Shape, configs: Sequence[MatmulConfig | None]) -> None:
        self.shape = shape
        groups, rows, columns, terms = shape
        self.a = torch.randn(rows, terms, device="cuda", dtype=torch.bfloat16)
        self.b = torch.randn(groups, terms, columns, device="cuda", dtype=torch.bfloat16)
        self.out = torch.empty(rows, columns, device="cuda", dtype=torch.bfloat16)
        self.kernels = [("chosen" if c is None else "given", *compiled(ragged(shape, c and c.tile_m), c)) for c in configs]
        self.experts = compiled(by_tiles(shape), USUAL)

    def rows(self, kind: str) -> list[str]:
        """A line for each kernel."""
        groups, rows, columns, terms = self.shape
        found = offsets(kind, groups, rows)
        table = torch.tensor(found, device="cuda", dtype=torch.int32)
        ends = table[1:].contiguous()
        wanted = self.product(found)
        calls: list[tuple[str, Callable[[], object], float | None]] = [("torch._grouped_mm", partial(torch._grouped_mm, self.a, self.b, offs=ends), None)]
        for label, run, config, us in self.kernels:
            call = partial(run, self.a, self.b, table, out=(self.out,))
            self.check(call, wanted, f"{label} {config.words}")
            calls.append((f"{label}: {_words(config)}", call, us))
        if all(f % TILE == 0 for f in found):
            calls.append((f"table of tiles: {_words(self.experts[1])}", self.of_experts(found, wanted), self.experts[2]))
        if kind == "even":
            wanted = self.product([0, rows])
            for run, config, us in (compiled(one(self.shape), c) for c in (None, USUAL)):
                whole = partial(run, self.a, self.b[0], out=(self.out,))
                self.check(whole, wanted, "one product")
                calls.append((f"one product: {_words(config)}", whole, us))
            calls.append(("one product: torch.matmul", partial(torch.matmul, self.a, self.b[0]), None))
        times = in_turn([call for _, call, _ in calls])
        lines: list[str] = []
        for (label, _, us), time in zip(calls, times, strict=True):
            rate = 2 * rows * columns * terms / time / 1e6
            expected = f"{us:9.0f}" if us is not None else " " * 9
            lines.append(f"{groups:6} {rows:6} {columns:5} {terms:5}  {kind:7} {label:46} {time:7.0f} {expected}  {rate:7.0f}  {times[0] / time:5.2f}")
        return lines

    def of_experts(self, found: Sequence[int], wanted: torch.Tensor) -> Callable[[], object]:
        """A call with the matrix of each tile."""
        groups, rows, columns, terms = self.shape
        owners = torch.repeat_interleave(torch.arange(groups), torch.tensor([(e - s) // TILE for s, e in pairwise(found)])).to("cuda", torch.int32)
        pieces = rows // TILE, TILE
        call = partial(self.experts[0], self.a.view(*pieces, terms), self.b, owners, out=(self.out.view(*pieces, columns),))
        self.check(call, wanted, "table of tiles")
        return call

    def by_tables(self, found: list[int]) -> list[Callable[[], object]]:
        """Calls with offsets, with the matrix of each tile, and of torch."""
        table = torch.tensor(found, device="cuda", dtype=torch.int32)
        wanted = self.product(found)
        ((_, run, _, _),) = self.kernels
        searched = partial(run, self.a, self.b, table, out=(self.out,))
        self.check(searched, wanted, "search of offsets")
        return [searched, self.of_experts(found, wanted), partial(torch._grouped_mm, self.a, self.b, offs=table[1:].contiguous())]

    def product(self, found: Sequence[int]) -> torch.Tensor:
        """What a call should make, in float32."""
        return torch.cat([self.a[start:end].float() @ matrix.float() for matrix, (start, end) in zip(self.b, pairwise(found), strict=False)])

    def check(self, call: Callable[[], object], wanted: torch.Tensor, what: str) -> None:
        """Exits if an element is further from ``wanted`` than rounding, and sums of bfloat16 products in another order, explain."""
        self.out.fill_(float("nan"))
        call()
        error = (self.out.float() - wanted).abs()
        if not bool((error <= wanted.abs() * 2**-8 + 2**-10 * self.shape[3] ** 0.5).all()):
            sys.exit(f"{self.shape} {what}: off by {float(torch.nan_to_num(error, nan=float('inf')).max())}")


def by_depth() -> list[str]:
    """Who says which group a tile belongs to, by the terms of a sum: a search of the offsets in each block, or a table that was computed before."""
    groups, rows, columns = DEPTH_SHAPE
    lines = [f"{groups} groups, {rows} rows, n {columns}, random multiples of {TILE} rows, tiles of {_words(USUAL)}; microseconds"]
    lines.append("    k  flop/byte  search of offsets  table of tiles  torch._grouped_mm  search / table")
    found = offsets("tiles", groups, rows)
    for terms in DEPTHS:
        measured = Measured((groups, rows, columns, terms), (USUAL,))
        searched, tabled, theirs = in_turn(measured.by_tables(found))
        moved = 2 * (rows * terms + groups * terms * columns + rows * columns)
        intensity = 2 * rows * columns * terms / moved
        lines.append(f"{terms:5}  {intensity:9.0f}  {searched:17.1f}  {tabled:14.1f}  {theirs:17.1f}  {searched / tabled:14.2f}")
        print(lines[-1], flush=True)
    return lines


def by_lengths() -> list[str]:
    """Lengths that each block adds up, beside offsets that the caller made and those that a kernel before ours makes."""
    lines = ["groups   rows     n     k   offsets   lengths  cumsum + offsets  torch._grouped_mm  offsets / lengths; microseconds"]
    for shape in LENGTHS:
        groups, rows, columns, terms = shape
        measured = Measured(shape, ())
        found = offsets("random", groups, rows)
        table = torch.tensor(found, device="cuda", dtype=torch.int32)
        sizes, begins = table.diff().contiguous(), torch.zeros_like(table)
        with tf.Fusion("lengths") as fusion:
            a, b = tf.define_tensor((rows, terms), tf.bfloat16, name="a"), tf.define_tensor((groups, terms, columns), tf.bfloat16, name="b")
            fusion.add_output(tf.grouped_matmul(a, b, lengths=tf.table("lengths", groups, rows, lengths=True)))
        of_offsets, of_lengths = compiled(ragged(shape), None)[0], compiled(fusion, None)[0]
        given = partial(of_offsets, measured.a, measured.b, table, out=(measured.out,))
        summed = partial(of_lengths, measured.a, measured.b, sizes, out=(measured.out,))

        def before(sizes: torch.Tensor = sizes, begins: torch.Tensor = begins, run: Any = of_offsets, measured: Measured = measured) -> None:
            torch.cumsum(sizes, 0, dtype=torch.int32, out=begins[1:])
            run(measured.a, measured.b, begins, out=(measured.out,))

        wanted = measured.product(found)
        for what, call in (("offsets", given), ("lengths", summed), ("cumsum", before)):
            measured.check(call, wanted, what)
        theirs = partial(torch._grouped_mm, measured.a, measured.b, offs=table[1:].contiguous())
        times = in_turn([given, summed, before, theirs])
        lines.append(
            f"{groups:6} {rows:6} {columns:5} {terms:5}  {times[0]:8.1f}  {times[1]:8.1f}  {times[2]:16.1f}  {times[3]:17.1f}  {times[0] / times[1]:17.2f}"
        )
        print(lines[-1], flush=True)
    return lines


def triangle(side: int, terms: int, count: int, *, whole: bool) -> tf.Fusion:
    """``a @ b.T``, or that and ``b @ a.T``: its lower triangle, or all of it."""
    with tf.Fusion("triangle") as fusion:
        a, b = (tf.define_tensor((side, terms), tf.bfloat16, name=name) for name in "ab")
        y = tf.matmul(a, b.T, dtype=tf.float32)
        if count == 2:
            y = y + tf.matmul(b, a.T, dtype=tf.float32)
        fusion.add_output(tf.cast(y if whole else tf.tril(y), tf.bfloat16))
    return fusion


def by_halves() -> list[str]:
    """Triangles of products beside the whole product."""
    lines = ["products   side     k  order                            us  expected  whole / it"]
    for side, terms in HALVES:
        a, b = (torch.randn(side, terms, device="cuda", dtype=torch.bfloat16) for _ in "ab")
        out = torch.empty(side, side, device="cuda", dtype=torch.bfloat16)
        for count in (1, 2):
            wanted = a.float() @ b.float().T
            wanted = wanted + wanted.T if count == 2 else wanted
            chosen = tf.schedulers.matmul(triangle(side, terms, count, whole=False)).config
            made = {"whole": compiled(triangle(side, terms, count, whole=True), None), "chosen": compiled(triangle(side, terms, count, whole=False), None)}
            for half in (tf.tiles.Half.LOWER, None):
                name = "triangle first" if half else f"groups of {chosen.group}"
                try:
                    made[name] = compiled(triangle(side, terms, count, whole=False), replace(chosen, half=half))
                except TaskfuseError as error:
                    print(f"{side} {terms} {name}: {error}", file=sys.stderr)
            calls: list[Callable[[], object]] = []
            for name, (run, _, _) in made.items():
                call = partial(run, a, b, out=(out,))
                out.fill_(float("nan"))
                call()
                error, right = (out.float() - (wanted if name == "whole" else wanted.tril())).abs(), wanted.abs() * 2**-8 + 2**-9 * terms**0.5
                if not bool((error <= right).all()):
                    sys.exit(f"{side} x {side} x {terms}, {count}, {name}: off by {float(torch.nan_to_num(error, nan=float('inf')).max())}")
                calls.append(call)
            if count == 1:
                calls.append(partial(torch.mm, a, b.T, out=out))
            times = in_turn(calls)
            for k, time in enumerate(times):
                name = [*made, "torch.mm, whole"][k]
                us = f"{list(made.values())[k][2]:8.1f}" if k < len(made) else " " * 8
                lines.append(f"{count:8} {side:6} {terms:5}  {name:26}  {time:7.1f}  {us}  {times[0] / time:10.2f}")
                print(lines[-1], flush=True)
    return lines


def gated(shape: Shape) -> tf.Fusion:
    """Two products of the same groups and a gated activation."""
    groups, rows, columns, terms = shape
    with tf.Fusion("gated") as fusion:
        x = tf.define_tensor((rows, terms), tf.bfloat16, name="x")
        gate, up = (tf.define_tensor((groups, terms, columns), tf.bfloat16, name=name) for name in ("gate", "up"))
        cuts = tf.table("offsets", groups + 1, rows, rising=True)
        both = (tf.grouped_matmul(x, w, cuts, tf.float32) for w in (gate, up))
        fusion.add_output(tf.cast(tf.silu(next(both)) * next(both), tf.bfloat16))
    return fusion


def by_gates() -> list[str]:
    """Two products of the same groups and a gated activation: one kernel, beside torch's products and its activation."""
    lines = ["groups   rows     n     k  one kernel  expected  torch  torch / ours; microseconds"]
    for groups, rows, columns, terms in GATED:
        a, (b, c) = (
            torch.randn(rows, terms, device="cuda", dtype=torch.bfloat16) / 8,
            torch.randn(2, groups, terms, columns, device="cuda", dtype=torch.bfloat16) / 8,
        )
        table = torch.tensor(offsets("random", groups, rows), device="cuda", dtype=torch.int32)
        ends, out = table[1:].contiguous(), torch.empty(rows, columns, device="cuda", dtype=torch.bfloat16)
        fusion = gated((groups, rows, columns, terms))
        run, _, us = compiled(fusion, None)
        by_name = {"x": a, "gate": b, "up": c, "offsets": table}
        given = [by_name[tv.name] for tv in fusion.inputs]

        def theirs(a: torch.Tensor = a, b: torch.Tensor = b, c: torch.Tensor = c, ends: torch.Tensor = ends) -> torch.Tensor:
            return torch.nn.functional.silu(torch._grouped_mm(a, b, offs=ends)) * torch._grouped_mm(a, c, offs=ends)

        out.fill_(float("nan"))
        run(*given, out=(out,))
        wanted = theirs().float()
        if not bool(((out.float() - wanted).abs() <= 2**-5 * wanted.abs() + 2**-6 * wanted.std()).all()):
            sys.exit(f"gated {groups} {rows} {columns} {terms}: off by {float((out.float() - wanted).abs().max())}")
        ours, torchs = in_turn([partial(run, *given, out=(out,)), theirs])
        lines.append(f"{groups:6} {rows:6} {columns:5} {terms:5}  {ours:10.1f}  {us:8.1f}  {torchs:5.1f}  {torchs / ours:.2f}")
        print(lines[-1], flush=True)
    return lines


def _words(config: MatmulConfig) -> str:
    kind = "in turns" if config.is_pingpong else "shared"
    return f"{config.tile_m} x {config.tile_n} {kind}, {config.stages} stages, groups of {config.group}"


SECTIONS = {"depth": by_depth, "lengths": by_lengths, "half": by_halves, "gated": by_gates}


def main() -> None:
    """All shapes with all kinds of offsets."""
    arguments = parser(__doc__)
    arguments.add_argument("kinds", nargs="*", choices=[*KINDS, *SECTIONS, []], help="kinds of offsets, and sections (default: all)")
    arguments.add_argument("--shapes", nargs="*", type=int, default=list(range(len(SHAPES))), help="which of the three shapes (default: all)")
    options = arguments.parse_args()
    lines = [f"{'groups':>6} {'rows':>6} {'n':>5} {'k':>5}  {'offsets':7} {'':46} {'us':>7}  expected  TFLOP/s  torch / ours"]
    kinds = options.kinds or [*KINDS, *SECTIONS]
    shapes: list[int] = options.shapes
    for k in shapes if set(kinds) & set(KINDS) else ():
        measured = Measured(SHAPES[k], (None, *CONFIGS))
        for kind in (kind for kind in kinds if kind in KINDS):
            made = measured.rows(kind)
            print("\n".join(made), flush=True)
            lines += made
    for name, section in SECTIONS.items():
        if name in kinds:
            lines += ["", *section()]
    publish("grouped_matmul", lines, options)


if __name__ == "__main__":
    main()
