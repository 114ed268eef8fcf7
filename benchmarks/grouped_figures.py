"""Every figure of products whose work data decides, in one run of a few minutes: groups, 8-bit floats, masks, unlike products, triangles, experts.

``python benchmarks/grouped_figures.py [PART ...] [--write] [--seconds S] [--check]``. All kernels are scheduled, proved and compiled first, in parallel;
``--check`` does no more and needs no GPU. Parts, in the order in which they run until the time is over:

- ``rows``: groups of rows in bfloat16 at the shapes of DeepGEMM's README, beside ``torch._grouped_mm`` and what is published for them, even and random groups;
- ``masked``: the first rows of each of six groups of 1024, beside a product of all rows and ``torch._grouped_mm`` of the rows that count;
- ``text``, ``depth``: the four problems of CUTLASS's page on grouped kernel schedulers, and four such problems by their k (``grouped.py``);
- ``eight``: groups of rows in float8_e4m3 with scales of blocks or of rows, beside ours in bfloat16 and ``torch._scaled_grouped_mm``;
- ``layer``: a mixture-of-experts layer, also as a CUDA graph that replays with other routing (``moe.py``);
- ``gated``: two products of the same groups and their activation in one kernel; ``search``: who says which group a tile has, by the terms of a sum;
- ``half``: triangles of products (``grouped_matmul.py``); ``unlike``: random lists of unlike products (``grouped.py``);
- ``chaos``: random kernels of this kind, a thousand launches of each while every warp is delayed at random (``python -m tests.gpu.chaos``).

A time is that of one of 10 calls in a CUDA graph, the median of 20 replays, in turn. Results are compared after outputs were poisoned.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import grouped
import grouped_matmul
import torch
from ahead import Job, part_parser, publish_parts
from reporting import in_turn

import taskfuse as tf
from benchmarks import moe
from examples.moe import mixture, routing
from taskfuse.schedulers import MatmulConfig, ProductsConfig
from taskfuse.testing.lists import Shape, list_of

PUBLISHED = (764, 779, 671)
"""TFLOP/s of DeepGEMM at the shapes of ``grouped_matmul.SHAPES`` on an H800 (README, 18 April 2025)."""
ROWS_CONFIGS: tuple[MatmulConfig | None, ...] = (None, grouped_matmul.CONFIGS[0], grouped_matmul.CONFIGS[5])
MASKED = ((6, 1024, 4096, 7168, 200), (6, 1024, 7168, 2048, 200), (6, 1024, 4096, 7168, 1024))
"""Groups, rows of each, columns, terms of a sum, rows that count on average."""
MASKED_PUBLISHED = 689
"""TFLOP/s of DeepGEMM with about 1024 rows in each group of 4096 columns and 7168 terms."""
EIGHT = ((4, 32768, 4096, 7168), (8, 32768, 7168, 2048), (32, 8192, 3072, 4096))
FORMS = ("blocks", "rows")
BLOCK = 128
LISTS = 4
"""Random lists of unlike products."""
ROOT = Path(__file__).parents[1]


# -- 8-bit floats ---------------------------------------------------------------------------------------------------------------------


def eight_bits(form: str, groups: int, rows: int, columns: int, terms: int) -> tf.Fusion:
    """Groups of rows with scales of 1 x 128 by 128 x 128, or of a row and a column. Scales of rows lie side by side."""
    blocks = terms // BLOCK
    with tf.Fusion(f"eight_{form}") as fusion:
        a, b = tf.define_tensor((rows, terms), tf.float8_e4m3, name="a"), tf.define_tensor((groups, columns, terms), tf.float8_e4m3, name="b")
        if form == "blocks":
            scale_a = tf.define_tensor((blocks, rows), tf.float32, name="scale_a").T
            scale_b = tf.permute(tf.define_tensor((groups, columns // BLOCK, blocks), tf.float32, name="scale_b"), [0, 2, 1])
        else:
            scale_a = tf.define_tensor((rows, 1), tf.float32, name="scale_a")
            scale_b = tf.define_tensor((groups, 1, columns), tf.float32, name="scale_b")
        offsets = tf.table("offsets", groups + 1, rows, rising=True)
        fusion.add_output(tf.grouped_matmul(a, tf.permute(b, [0, 2, 1]), offsets, tf.bfloat16, scale_a=scale_a, scale_b=scale_b))
    return fusion


def eight() -> list[str]:
    """8-bit floats beside bfloat16, in even groups."""
    lines = ["groups   rows     n     k  scales       us  TFLOP/s  torch  torch / ours  ours in bf16 / it"]
    for groups, rows, columns, terms in EIGHT:
        found = grouped_matmul.offsets("even", groups, rows)
        table = torch.tensor(found, device="cuda", dtype=torch.int32)
        a, b = (torch.randn(s, device="cuda").to(torch.float8_e4m3fn) for s in ((rows, terms), (groups, columns, terms)))
        half = tf.compile(grouped_matmul.ragged((groups, rows, columns, terms)), backend="cuda")
        wide = a.to(torch.bfloat16), b.to(torch.bfloat16).mT.contiguous()
        out = torch.empty(rows, columns, device="cuda", dtype=torch.bfloat16)
        calls: list[Callable[[], object]] = [partial(half, *wide, table, out=(out,))]
        names: list[str] = []
        for form in FORMS:
            shapes = ((terms // BLOCK, rows), (groups, columns // BLOCK, terms // BLOCK)) if form == "blocks" else ((rows, 1), (groups, 1, columns))
            scale_a, scale_b = (torch.rand(s, device="cuda") + 0.5 for s in shapes)
            fusion = eight_bits(form, groups, rows, columns, terms)
            run = tf.compile(fusion, backend="cuda")
            by_name = {"a": a, "b": b, "scale_a": scale_a, "scale_b": scale_b, "offsets": table}
            ours = partial(run, *(by_name[tv.name] for tv in fusion.inputs), out=(out,))
            check_eight(form, ours, out, a, b, scale_a, scale_b, found)
            calls.append(ours)
            names.append(form)
            if form == "rows":
                theirs = partial(
                    torch._scaled_grouped_mm,
                    a,
                    b.mT,
                    scale_a.flatten(),
                    scale_b[:, 0],
                    offs=table[1:].contiguous(),
                    out_dtype=torch.bfloat16,
                    use_fast_accum=True,
                )
                try:
                    theirs()
                except RuntimeError as refused:
                    print(f"torch._scaled_grouped_mm: {str(refused).splitlines()[0][:200]}", flush=True)
                else:
                    calls.append(theirs)
        times = in_turn(calls)
        torchs = times[3] if len(times) > 3 else float("nan")
        for form, us in zip(names, times[1:], strict=False):
            other = torchs if form == "rows" else float("nan")
            rate = 2 * rows * columns * terms / us / 1e6
            lines.append(f"{groups:6} {rows:6} {columns:5} {terms:5}  {form:6} {us:8.0f}  {rate:7.0f}  {other:5.0f}  {other / us:12.2f}  {times[0] / us:17.2f}")
            print(lines[-1], flush=True)
    return lines


def check_eight(form: str, call: Callable[[], object], out: torch.Tensor, a: torch.Tensor, b: torch.Tensor, *more: Any) -> None:
    """Exits if an element of some rows is further off than 8-bit products on Hopper are."""
    scale_a, scale_b, found = more
    out.fill_(float("nan"))
    call()
    for group, (start, end) in enumerate(pairwise(found)):
        rows = slice(start, end, 61)
        x, y = a[rows].float(), b[group].float()
        if form == "blocks":
            x = x * scale_a.T[rows].repeat_interleave(BLOCK, 1)
            y = y * scale_b[group].repeat_interleave(BLOCK, 0).repeat_interleave(BLOCK, 1)
        else:
            x, y = x * scale_a[rows], y * scale_b[group].T
        wanted, size = x @ y.T, x.abs() @ y.abs().T
        error = (out[rows].float() - wanted).abs()
        if not bool((error <= wanted.abs() * 2**-8 + size * 2**-9).all()):
            sys.exit(f"8 bits, {form}, group {group}: off by {float(torch.nan_to_num(error / size, nan=float('inf')).max()):.1e} of the sizes of the terms")


# -- rows, masks ----------------------------------------------------------------------------------------------------------------------


def rows() -> list[str]:
    """The three shapes, with what is published for them."""
    lines = [f"{'groups':>6} {'rows':>6} {'n':>5} {'k':>5}  {'offsets':7} {'':46} {'us':>7}  expected  TFLOP/s  torch / ours"]
    for shape, rate in zip(grouped_matmul.SHAPES, PUBLISHED, strict=True):
        measured = grouped_matmul.Measured(shape, ROWS_CONFIGS)
        for kind in ("even", "random"):
            made = measured.rows(kind)
            lines += made
            print("\n".join(made), flush=True)
        lines.append(f"  DeepGEMM publishes {rate} TFLOP/s for even groups")
    return lines


def masked_product(groups: int, rows: int, columns: int, terms: int) -> tf.Fusion:
    """The first rows of each group."""
    with tf.Fusion("masked") as fusion:
        a, b = tf.define_tensor((groups, rows, terms), tf.bfloat16, name="a"), tf.define_tensor((groups, terms, columns), tf.bfloat16, name="b")
        fusion.add_output(tf.grouped_matmul_masked(a, b, tf.table("counts", groups, rows)))
    return fusion


def masked() -> list[str]:
    """Few rows of many, as in decoding."""
    lines = ["groups  rows     n     k  count   ours  TFLOP/s   TB/s  of all rows, torch  of those that count, torch  ratios"]
    rng = torch.Generator().manual_seed(0)
    for groups, rows, columns, terms, mean in MASKED:
        a = torch.randn(groups, rows, terms, device="cuda", dtype=torch.bfloat16)
        b = torch.randn(groups, terms, columns, device="cuda", dtype=torch.bfloat16)
        counts = [min(rows, int(c)) for c in (torch.rand(groups, generator=rng) * 0.6 + 0.7) * mean]
        table = torch.tensor(counts, device="cuda", dtype=torch.int32)
        out = torch.full((groups, rows, columns), float("nan"), device="cuda", dtype=torch.bfloat16)
        run = tf.compile(masked_product(groups, rows, columns, terms), backend="cuda")
        packed = torch.cat([x[:c] for x, c in zip(a, counts, strict=True)])
        ends = table.cumsum(0).to(torch.int32)
        run(a, b, table, out=(out,))
        for x, matrix, found, count in zip(a, b, out, counts, strict=True):
            wanted = x[:count].float() @ matrix.float()
            error = (found[:count].float() - wanted).abs()
            if not bool((error <= wanted.abs() * 2**-8 + 2**-10 * terms**0.5).all()) or bool(found[count:].any()):
                sys.exit(f"masked {groups} {rows} {columns} {terms}: wrong")
        every = torch.empty_like(out)
        calls: list[Callable[[], object]] = [
            partial(run, a, b, table, out=(out,)),
            partial(torch.bmm, a, b, out=every),
            partial(torch._grouped_mm, packed, b, offs=ends),
        ]
        ours, whole, some = in_turn(calls)
        flops, moved = 2 * sum(counts) * columns * terms, 2 * (sum(counts) * terms + groups * columns * terms + groups * rows * columns)
        rates = f"{flops / ours / 1e6:7.0f}  {moved / ours / 1e6:5.2f}"
        beside = f"{whole:18.0f}  {some:26.0f}  {whole / ours:.2f} {some / ours:.2f}"
        lines.append(f"{groups:6} {rows:5} {columns:5} {terms:5}  {sum(counts):5}  {ours:5.0f}  {rates}  {beside}")
        print(lines[-1], flush=True)
    return [*lines, f"  DeepGEMM publishes {MASKED_PUBLISHED} TFLOP/s for about 1024 rows of {MASKED[2][2:4]}"]


# -- experts, chaos -------------------------------------------------------------------------------------------------------------------


def layer() -> list[str]:
    """The layer of ``moe.py``."""
    return moe.measured()


def chaos() -> list[str]:
    """Launches with delays."""
    command = [sys.executable, "-m", "tests.gpu.chaos", "--mix", "work", "--kernels", "48", "--launches", "1000"]
    try:
        run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    except subprocess.TimeoutExpired:
        return ["chaos: stopped after 120 s"]
    return ["chaos: " + line for line in run.stdout.strip().splitlines()[-5:]]


PARTS: dict[str, Callable[[], list[str]]] = {
    "rows": rows,
    "masked": masked,
    "text": grouped.text,
    "depth": grouped.depth,
    "eight": eight,
    "layer": layer,
    "gated": grouped_matmul.by_gates,
    "search": grouped_matmul.by_depth,
    "half": grouped_matmul.by_halves,
    "unlike": lambda: grouped.draws(LISTS, 0),
    "chaos": chaos,
}


# -- compiled ahead -------------------------------------------------------------------------------------------------------------------


def scheduled(build: Callable[..., tf.Fusion], arguments: Sequence[Any], config: MatmulConfig | None) -> tf.Fusion:
    """A fusion with a product, scheduled as given or chosen."""
    fusion = build(*arguments)
    tf.schedulers.matmul(fusion, config)
    return fusion


def of_list(shapes: tuple[Shape, ...], config: ProductsConfig | None) -> tf.Fusion:
    """Unlike products, scheduled."""
    fusion = list_of(shapes)
    tf.schedulers.products(fusion, config)
    return fusion


def product(name: str, build: Callable[..., tf.Fusion], *arguments: Any, config: MatmulConfig | None = None) -> Job:
    """A job for one product."""
    return Job(name, scheduled, (build, arguments, config))


def jobs(parts: Sequence[str]) -> list[Job]:
    """What the parts compile."""
    found: list[Job] = []
    if "rows" in parts:
        for shape in grouped_matmul.SHAPES:
            for config in ROWS_CONFIGS:
                tile = config.tile_m if config else None
                found.append(product(f"rows {shape} {'chosen' if config is None else config.words[:20]}", grouped_matmul.ragged, shape, tile, config=config))
            found.append(product(f"rows {shape}, table of tiles", grouped_matmul.by_tiles, shape, config=grouped_matmul.USUAL))
            found += [product(f"rows {shape}, one product", grouped_matmul.one, shape, config=c) for c in (None, grouped_matmul.USUAL)]
    if "masked" in parts:
        found += [Job(f"masked {case}", masked_product, case[:4]) for case in dict.fromkeys(c[:4] for c in MASKED)]
    if "text" in parts:
        given = [ProductsConfig(128, 128, stages=6, blocks=grouped.BLOCKS, is_sorted=s) for s in (False, True)]
        found += [Job(f"text {'chosen' if c is None else 'sorted' if c.is_sorted else 'in order'}", of_list, (grouped.TEXT, c)) for c in (*given, None)]
    if "depth" in parts:
        found += [Job(f"depth {k}", of_list, (tuple((m, n, k) for m, n, _ in grouped.TEXT), None)) for k in grouped.DEPTHS]
    if "eight" in parts:
        found += [Job(f"eight {form} {shape}", eight_bits, (form, *shape)) for shape in EIGHT for form in FORMS]
        found += [Job(f"eight, beside {shape}", grouped_matmul.ragged, (shape,)) for shape in EIGHT]
    if "layer" in parts:
        options = (("specialize", False), ("budget", 10))
        for tokens, width, inside, experts in moe.SHAPES:
            found.append(Job(f"routing {tokens} {width} {experts}", routing, (tokens, width, experts), options))
            found.append(Job(f"mixture {tokens} {width} {inside} {experts}", mixture, (tokens, width, inside, experts), options))
    if "gated" in parts:
        found += [product(f"gated {shape}", grouped_matmul.gated, shape) for shape in grouped_matmul.GATED]
    if "search" in parts:
        for terms in grouped_matmul.DEPTHS:
            shape = (*grouped_matmul.DEPTH_SHAPE, terms)
            found.append(product(f"search {terms}", grouped_matmul.ragged, shape, grouped_matmul.USUAL.tile_m, config=grouped_matmul.USUAL))
            found.append(product(f"table {terms}", grouped_matmul.by_tiles, shape, config=grouped_matmul.USUAL))
    if "half" in parts:
        for side, terms in grouped_matmul.HALVES:
            for count in (1, 2):
                found += [product(f"half {side} {terms} {count} {whole}", half, side, terms, count, whole) for whole in (True, False)]
                found += [Job(f"half {side} {terms} {count} {order}", in_order, (side, terms, count, order)) for order in (tf.tiles.Half.LOWER, None)]
    if "unlike" in parts:
        found += [Job(f"unlike {at}", of_list, (shapes, None)) for at, shapes in enumerate(grouped.drawn(LISTS, 0))]
    return found


def half(side: int, terms: int, count: int, whole: bool) -> tf.Fusion:
    """A triangle, or all of it."""
    return grouped_matmul.triangle(side, terms, count, whole=whole)


def in_order(side: int, terms: int, count: int, order: tf.tiles.Half | None) -> tf.Fusion:
    """A triangle with the tiles that the cost model chooses, in another order."""
    chosen = tf.schedulers.matmul(half(side, terms, count, False)).config
    return scheduled(half, (side, terms, count, False), replace(chosen, half=order))


def main() -> None:
    """Compile, measure, print and, if asked, store."""
    arguments = part_parser(__doc__)
    publish_parts("grouped_figures", PARTS, jobs, arguments, arguments.parse_args())


if __name__ == "__main__":
    main()
