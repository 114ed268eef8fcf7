"""The experiments of "Automatic Kernel Generation for Volta Tensor Cores" (Bhaskaracharya et al., 2020), section VIII, with the schedules of its text.

``python benchmarks/volta.py [--write] [--count N] [--seed N] [--instruction m16n8k16|m8n8k4] [--check]``. Programs: a @ b, relu(a) @ b, relu(a @ b + bias) and
a @ b + c @ d in float16, in all four layouts, of sizes that are multiples of 128 up to 4096 from a seed; the kernels are those of
``examples/gemm_quad_pairs.py``, one of each tile for all sizes, and the fastest of them counts, as in the text. Beside them runs eager torch: cuBLAS for the
products, a kernel for each other op. A time is that of one of 10 calls in a CUDA graph, the median of 20 replays, in turn. Outputs are poisoned with NaN
and compared with float32. Stored are the figures and a picture of the speed-up curves, each sorted, with what the text says of its own on a Quadro GV100.

The text's instruction, m8n8k4, has no tensor core behind it on newer GPUs: ptxas for sm_90a calls a subroutine of 32 FFMA and 12 SHFL. The default is
therefore m16n8k16 in the same schedules, and the first line is the ratio of both for one size.

``--check`` needs no GPU: every program in every layout is lowered with small tiles, proved and simulated with small integers, and the kernels that would be
measured are compiled by NVRTC; the figures are their registers and spills.
"""

from __future__ import annotations

import argparse
import datetime
import random
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

import taskfuse as tf
from examples.gemm_quad_pairs import SMALL, Program, Tiles, build, expected
from taskfuse.svg import Drawing

LAYOUTS = tuple(product(("row", "col"), repeat=2))
INSTRUCTIONS = "m16n8k16", "m8n8k4"
TILES = {
    "m8n8k4": (
        Tiles((128, 128, 32), (64, 32, 32), 16),
        Tiles((128, 64, 32), (64, 32, 32), 32),
        Tiles((64, 64, 32), (32, 32, 32), 16),
        Tiles((64, 64, 64), (32, 32, 32), 32),
        Tiles((32, 64, 64), (32, 32, 16), 16),
    ),
    "m16n8k16": (
        Tiles((128, 128, 32), (64, 32, 32)),
        Tiles((128, 64, 32), (64, 32, 32)),
        Tiles((64, 64, 32), (32, 32, 32)),
        Tiles((64, 64, 64), (32, 32, 32)),
        Tiles((32, 64, 64), (32, 32, 16)),
    ),
}
"""The tiles that are tried: of one warp's terms, and of several (split-K inside the block)."""


@dataclass(frozen=True)
class Published:
    """What the text says of 100 sizes: the least, the mean and the greatest speed-up, and how many sizes are at least as fast as the libraries."""

    least: float
    mean: float | None
    most: float
    wins: int


PUBLISHED = {
    Program.PLAIN: Published(0.78, 0.985, 1.75, 32),
    Program.PROLOGUE: Published(0.80, 1.113, 2.36, 61),
    Program.EPILOGUE: Published(0.89, 1.29, 2.55, 94),
    Program.ADD: Published(0.73, None, 2.13, 33),
}


def kernels(program: Program, a: str, b: str, instruction: str) -> list[tf.Fusion]:
    """The program with every tile."""
    atom = None if instruction == "m8n8k4" else tf.atoms.mma(16, 8, 16)
    return [build(program, a, b, tiles, atom) for tiles in TILES[instruction]]


def shapes(program: Program, a: str, b: str, m: int, n: int, k: int) -> list[tuple[int, ...]]:
    """Of the arguments."""
    given: list[tuple[int, ...]] = [(m, k) if a == "row" else (k, m), (k, n) if b == "row" else (n, k)]
    return {Program.EPILOGUE: [*given, (n,)], Program.ADD: given * 2}.get(program, given)


def check(instruction: str) -> None:
    """What needs no GPU. Exits if a result is wrong, or a kernel is not proved."""
    rng = np.random.default_rng(0)
    m, n, k = SMALL.block[0], 2 * SMALL.block[1], 3 * SMALL.block[2]
    for program, (a, b) in product(Program, LAYOUTS):
        kernel = tf.lower(build(program, a, b, SMALL, None if instruction == "m8n8k4" else tf.atoms.mma(16, 8, 16)))
        kernel.verify().require()
        x, y = (rng.integers(-4, 5, shape).astype(np.float16) for shape in ((m, k), (k, n)))
        bias = rng.integers(-4, 5, n).astype(np.float16)
        given = [x if a == "row" else np.ascontiguousarray(x.T), y if b == "row" else np.ascontiguousarray(y.T)]
        (out,) = kernel.simulate(*given, *{Program.EPILOGUE: [bias], Program.ADD: given}.get(program, []), seed=1)
        if not np.array_equal(out.astype(np.float64), expected(program, x.astype(np.float64), y.astype(np.float64), bias)):
            sys.exit(f"{program.value}, {a}, {b}: wrong")
    print(f"{instruction}: {len(Program)} programs in {len(LAYOUTS)} layouts are proved, and exact in the simulator")
    for program in Program:
        for tiles, fusion in zip(TILES[instruction], kernels(program, "row", "col", instruction), strict=True):
            kernel = tf.lower(fusion)
            kernel.verify().require()
            found = kernel.resources().compiled
            size = " ".join(map(str, (*tiles.block, *tiles.warp)))
            print(f"  {program.value:20} {size:22} {found.registers:4} registers, {found.spill_stores + found.spill_loads:4} bytes of spills", flush=True)


@dataclass(frozen=True)
class Measured:
    """Microseconds for one size."""

    label: str
    ours: float
    theirs: float

    @property
    def ratio(self) -> float:
        """The speed-up."""
        return self.theirs / self.ours


def drawn(curves: dict[Program, Sequence[float]]) -> Drawing:
    """A panel of each program: the sorted speed-ups, and the text's least, mean and greatest as dashed lines."""
    width, height, gap, top = 300.0, 190.0, 46.0, 3.0
    picture = Drawing(gap + len(curves) * (width + gap), height + 2 * gap)
    for at, (program, found) in enumerate(curves.items()):
        left = gap + at * (width + gap)

        def place(rank: float, ratio: float, left: float = left, last: int = max(len(found) - 1, 1)) -> tuple[float, float]:
            return left + width * rank / last, gap + height * (1 - min(ratio, top) / top)

        picture.box(left, gap, width, height, "#ffffff", round=0)
        picture.text(left, gap - 10, program.value, bold=True)
        said, end = PUBLISHED[program], max(len(found) - 1, 1)
        for name, value in (("least", said.least), ("mean", said.mean), ("most", said.most)):
            if value is not None:
                picture.line([place(0, value), place(end, value)], dashed=True)
                picture.text(left + 4, place(0, value)[1] - 3, f"{name} of the text {value:g}")
        picture.line([place(0, 1), place(end, 1)])
        picture.line([place(rank, ratio) for rank, ratio in enumerate(sorted(found))], line="#1f77b4", weight=2)
        for ratio in range(int(top) + 1):
            picture.text(left - 6, place(0, ratio)[1] + 4, str(ratio), anchor="end")
    return picture


def summary(program: Program, found: Sequence[Measured]) -> str:
    """One line, with the text's figures behind ours."""
    ratios, said = [x.ratio for x in found], PUBLISHED[program]
    mean = "" if said.mean is None else f" ({said.mean:g})"
    wins = sum(r >= 1 for r in ratios)
    return (
        f"{program.value:20} geometric mean {statistics.geometric_mean(ratios):5.3f}{mean}, "
        f"least {min(ratios):5.2f} ({said.least:g}), most {max(ratios):5.2f} ({said.most:g}), at least as fast {wins} of {len(ratios)} ({said.wins} of 100)"
    )


def measure(options: Any) -> None:
    """Measure, print and, if asked, store."""
    import torch
    from reporting import RESULTS, in_turn, publish

    def arrays(program: Program, a: str, b: str, size: tuple[int, int, int]) -> list[Any]:
        return [torch.randn(shape, device="cuda", dtype=torch.float16) for shape in shapes(program, a, b, *size)]

    def eager(program: Program, a: str, b: str, args: Sequence[Any]) -> Any:
        def turned(x: Any, layout: str) -> Any:
            return x if layout == "row" else x.T

        x, y = turned(args[0], a), turned(args[1], b)
        match program:
            case Program.PLAIN:
                return x @ y
            case Program.PROLOGUE:
                return torch.relu(x) @ y
            case Program.EPILOGUE:
                return torch.relu(x @ y + args[2])
            case Program.ADD:
                return x @ y + turned(args[2], a) @ turned(args[3], b)

    runs: dict[tuple[Program, str, str], list[Callable[..., object]]] = {}

    def best(program: Program, a: str, b: str, size: tuple[int, int, int], instruction: str) -> Measured:
        key = program, a, b
        if key not in runs:
            runs[key] = [tf.compile(fusion, backend="cuda") for fusion in kernels(program, a, b, instruction)]
        args = arrays(program, a, b, size)
        wide = [x.float() for x in args]
        wanted, scale = eager(program, a, b, wide), eager(Program.PLAIN, a, b, [x.abs() for x in wide]) + 1
        calls: list[Callable[[], object]] = []
        for run in runs[key]:
            out = torch.full(size[:2], float("nan"), device="cuda", dtype=torch.float16)
            run(*args, out=out)
            if not bool(((out.float() - wanted).abs() <= wanted.abs() * 2**-9 + scale * 2**-8).all()):
                sys.exit(f"{program.value} {a} {b} {size}: differs")
            calls.append(lambda run=run, out=out: run(*args, out=out))
        *ours, theirs = in_turn([*calls, lambda: eager(program, a, b, args)])
        return Measured(f"{' '.join(map(str, size)):16} {a} {b}, tile {min(range(len(ours)), key=ours.__getitem__)}", min(ours), theirs)

    one = 1024, 1024, 1024
    pair = [best(Program.PLAIN, "row", "col", one, instruction).ours for instruction in INSTRUCTIONS if not runs.clear()]
    lines = [f"1024^3: m16n8k16 {pair[0]:.1f} us, m8n8k4 {pair[1]:.1f} us: {pair[1] / pair[0]:.1f} times"]
    runs.clear()
    rng = random.Random(options.seed)
    sizes = [(128 * rng.randint(1, 32), 128 * rng.randint(1, 32), 128 * rng.randint(1, 32)) for _ in range(options.count)]
    found: dict[Program, list[Measured]] = {}
    for program in Program:
        layouts = [LAYOUTS[at % len(LAYOUTS)] for at in range(len(sizes))]
        found[program] = [best(program, a, b, size, options.instruction) for (a, b), size in zip(layouts, sizes, strict=True)]
        lines.append(summary(program, found[program]))
    for program, each in found.items():
        lines += ["", program.value, *(f"  {x.label:40} {x.ours:9.2f} us, theirs {x.theirs:9.2f}, {x.ratio:5.3f}" for x in each)]
    publish("volta", lines, options)
    if options.write:
        Path(RESULTS / "volta.svg").write_text(str(drawn({program: [x.ratio for x in each] for program, each in found.items()})), encoding="utf-8")


def main() -> None:
    """Check, or measure."""
    options_parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options_parser.add_argument("--write", action="store_true", help="store the figures and the picture in benchmarks/results")
    options_parser.add_argument("--date", default=str(datetime.date.today()), help="date that is stored with them (default: today)")
    options_parser.add_argument("--count", type=int, default=100)
    options_parser.add_argument("--seed", type=int, default=1)
    options_parser.add_argument("--instruction", choices=INSTRUCTIONS, default=INSTRUCTIONS[0])
    options_parser.add_argument("--check", action="store_true", help="prove, simulate and compile; no GPU")
    options = options_parser.parse_args()
    if options.check:
        check(options.instruction)
    else:
        measure(options)


if __name__ == "__main__":
    main()
