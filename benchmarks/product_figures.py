"""Every figure of matrix products in one run of a few minutes: few rows, sizes, what stands before and behind them, precisions, 4-bit weights, programs.

``python benchmarks/product_figures.py [PART ...] [--write] [--count N] [--seed N] [--seconds S] [--check]``. All is what ``tf.compile`` chooses. Kernels are
scheduled, proved and compiled first, in parallel; ``--check`` does no more and needs no GPU. Parts, in the order in which they run until the time is over:

- ``few``: 1 to 64 rows by matrices that take turns, so that none is in the second-level cache, with the share of a copy's bandwidth; ``sizes``: three squares;
- ``relu``: relu(a) @ b, ``add``: a @ b + c @ d, ``bias`` and ``gelu``: relu or gelu of a @ b + bias, each at COUNT random multiples of 128 up to 4096, beside
  eager torch, and ``bias`` and ``gelu`` beside cublasLt's fused form, too; ``plain``: a @ b beside cuBLAS;
- ``bits``: one row by weights of 4 bits with scales of 128, by the bytes that they take; ``eight``: 8-bit floats beside cublasLt;
- ``float``: tf32 and float32; ``alignment``, ``bytes``, ``double``: the cases of ``precisions.py``;
- ``programs``: five programs of ``programs.py`` beside ``torch.compile``.

A time is that of one of 10 calls in a CUDA graph, the median of 20 replays, in turn. Results are compared after outputs were poisoned.
"""

from __future__ import annotations

import itertools
import random
import statistics
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import fp8
import precisions
import programs
import torch
from ahead import Job, part_parser, publish_parts, words_of
from reporting import L2_BYTES, in_turn

import taskfuse as tf
from benchmarks.matmul import ACTIVATIONS

ROWS = (1, 8, 16, 64)
WEIGHTS = tuple(itertools.product((4096, 14336), repeat=2))
"""Columns, and terms of a sum."""
SQUARES = ((8192, 8192, 8192), (4096, 4096, 4096), (4096, 7168, 2048))
EIGHT = (("rows", (4096, 7168, 2048)), ("rows", (8192, 8192, 8192)), ("rows", (4096, 4096, 4096)), ("1d2d", (4096, 7168, 2048)), ("1d2d", (4096, 4096, 7168)))
GROUP = 128
"""Weights of 4 bits that share a scale."""
PROGRAMS = ("gated_mlp", "flat_linear", "conv1d", "gram", "squared")
RANDOM = ("plain", "relu", "add", "bias", "gelu")
Size = tuple[int, int, int]


# -- fusions --------------------------------------------------------------------------------------------------------------------------


def shapes(program: str, m: int, n: int, k: int) -> list[tuple[int, ...]]:
    """Of the inputs: rows, columns as torch's linear layers have them for what ends with a bias."""
    by_program: dict[str, list[tuple[int, ...]]] = {"plain": [(m, k), (n, k)], "relu": [(m, k), (k, n)], "add": [(m, k), (k, n)] * 2}
    return by_program.get(program, [(m, k), (n, k), (n,)])


def fusion_of(program: str, m: int, n: int, k: int) -> tf.Fusion:
    """The math in bfloat16."""
    with tf.Fusion(program) as fusion:
        given = [tf.define_tensor(list(s), tf.bfloat16, name=f"x{i}") for i, s in enumerate(shapes(program, m, n, k))]
        match program:
            case "plain":
                fusion.add_output(given[0] @ given[1].T)
            case "relu":
                fusion.add_output(tf.relu(given[0]) @ given[1])
            case "add":
                fusion.add_output(given[0] @ given[1] + given[2] @ given[3])
            case _:
                act = ACTIVATIONS["relu" if program == "bias" else "gelu"][0]
                fusion.add_output(tf.cast(act(tf.matmul(given[0], given[1].T, dtype=tf.float32) + given[2]), tf.bfloat16))
    return fusion


def theirs(program: str, args: Sequence[torch.Tensor], out: torch.Tensor) -> list[Callable[[], object]]:
    """torch's ways, the eager one first."""
    if program == "plain":
        return [partial(torch.mm, args[0], args[1].T, out=out)]
    if program == "relu":
        return [lambda: torch.relu(args[0]) @ args[1]]
    if program == "add":
        return [lambda: args[0] @ args[1] + args[2] @ args[3]]
    act = ACTIVATIONS["relu" if program == "bias" else "gelu"][1]
    fused = partial(torch._addmm_activation, args[2], args[0], args[1].T, use_gelu=program == "gelu")
    return [lambda: act(torch.nn.functional.linear(args[0], args[1], args[2])), fused]


def check(program: str, args: Sequence[torch.Tensor], out: torch.Tensor) -> None:
    """Exits if an element is wrong."""
    wide = [x.float() for x in args]
    of = [x.abs() for x in wide]
    if program in ("relu", "add"):
        size = of[0] @ of[1] + (of[2] @ of[3] if program == "add" else 0)
        wanted = wide[0] @ wide[1] + wide[2] @ wide[3] if program == "add" else torch.relu(wide[0]) @ wide[1]
    else:
        size, wanted = of[0] @ of[1].T, wide[0] @ wide[1].T
        wanted = wanted if program == "plain" else ACTIVATIONS["relu" if program == "bias" else "gelu"][1](wanted + wide[2])
    error = (out.float() - wanted).abs()
    bound = wanted.abs() * 2**-6 + size * 2**-7 if program == "add" else wanted.abs() * 2**-8 + size * 2**-20 + 1e-3 * (program == "gelu")
    if not bool((error <= bound).all()):
        sys.exit(f"{program} {[tuple(x.shape) for x in args]}: off by {float(torch.nan_to_num(error, nan=float('inf')).max()):g}")


def bits(n: int, k: int) -> tf.Fusion:
    """A vector by weights of 4 bits from -8 to 7, two in a byte, the first one in its low bits, with a scale of each 128."""
    with tf.Fusion("bits") as fusion:
        x = tf.define_tensor((k,), tf.bfloat16, name="x")
        w, scales = tf.define_tensor((n, k // 2), tf.uint8, name="w"), tf.define_tensor((n, k // GROUP), tf.bfloat16, name="scales")
        both, given = tf.reshape(w, [n, k // GROUP, GROUP // 2]), tf.reshape(tf.cast(x, tf.float32), [k // GROUP, GROUP // 2, 2])
        low, high = (tf.cast(half, tf.float32) - 8.0 for half in (tf.bitwise_and(both, 15), tf.right_shift(both, 4)))
        sums = tf.sum(low * given[:, :, 0] + high * given[:, :, 1], 2) * tf.cast(scales, tf.float32)
        fusion.add_output(tf.cast(tf.sum(sums, 1), tf.bfloat16))
    return fusion


def as_tf32(m: int, n: int, k: int) -> tf.Fusion:
    """A product of float32 in tf32."""
    fusion = precisions.Case(m, n, k, tf.float32, b="nk").fusion()
    tf.schedulers.matmul(fusion, tf32=True)
    return fusion


# -- parts ----------------------------------------------------------------------------------------------------------------------------


class Figures:
    """The parts, with the sizes that they draw."""

    def __init__(self, count: int, seed: int) -> None:
        rng = random.Random(seed)
        self.drawn: list[Size] = [(128 * rng.randint(1, 32), 128 * rng.randint(1, 32), 128 * rng.randint(1, 32)) for _ in range(count)]
        self.bandwidth = 0.0
        self.parts: dict[str, Callable[[], list[str]]] = {
            "few": self.few,
            "sizes": partial(self.random, "plain", SQUARES),
            **{program: partial(self.random, program) for program in ("relu", "add", "bias", "gelu", "plain")},
            "bits": self.bits,
            "eight": lambda: [_shown(fp8.line(form, *shape)) for form, shape in EIGHT],
            "float": self.floats,
            "alignment": lambda: [_shown(precisions.measured(case)) for case in precisions.alignment()],
            "bytes": lambda: [_shown(precisions.measured(case)) for case in precisions.of_bytes()],
            "double": lambda: [_shown(precisions.measured(case)) for case in precisions.double()],
            "programs": self.programs,
        }

    def jobs(self, parts: Sequence[str]) -> list[Job]:
        """What the parts compile."""
        found: list[Job] = []
        if "few" in parts:
            found += [Job(f"few {m} {n} {k}", fusion_of, ("plain", m, n, k)) for m in ROWS for n, k in WEIGHTS]
        found += [Job(f"sizes {size}", fusion_of, ("plain", *size)) for size in SQUARES if "sizes" in parts]
        found += [Job(f"{program} {size}", fusion_of, (program, *size)) for program in RANDOM if program in parts for size in self.drawn]
        found += [Job(f"bits {n} {k}", bits, (n, k)) for n, k in WEIGHTS if "bits" in parts]
        found += [Job(f"eight {form} {shape}", scheduled, (fp8.fusion_of, (form, *shape))) for form, shape in EIGHT if "eight" in parts]
        cases = {"alignment": precisions.alignment, "bytes": precisions.of_bytes, "double": precisions.double, "float": precisions.of_floats}
        for part in parts:
            for case in cases[part]() if part in cases else ():
                found.append(Job(f"{part} {case}", case.fusion, (), (("backend", "auto"), ("float32_products", case.products))))
        found += [Job(f"tf32 {size}", as_tf32, size) for size in SQUARES if "float" in parts]
        for program in (*programs.ALIKE, *programs.BIG):
            if "programs" in parts and program.build.__name__ in PROGRAMS:
                found.append(Job(f"programs {program.build.__name__}", program.fusion, (program.large,)))
        return found

    def random(self, program: str, sizes: Sequence[Size] | None = None) -> list[str]:
        """A program at sizes: each a line, then what they say together."""
        columns = "  fused us  x" if program in ("bias", "gelu") else ""
        lines = [f"{program}: m n k{'':10} ours us expected  eager us      x{columns}"]
        ratios: list[list[float]] = []
        for m, n, k in sizes or self.drawn:
            run: Any = tf.compile(fusion_of(program, m, n, k), backend="cuda")
            args = [torch.randn(s, device="cuda", dtype=torch.bfloat16) * s[-1] ** -0.25 for s in shapes(program, m, n, k)]
            out = torch.full((m, n), float("nan"), device="cuda", dtype=torch.bfloat16)
            run(*args, out=(out,))
            check(program, args, out)
            ours, *others = in_turn([partial(run, *args, out=(out,)), *theirs(program, args, torch.empty_like(out))])
            check(program, args, out)
            ratios.append([t / ours for t in others])
            beside = "".join(f" {t:9.2f} {t / ours:6.3f}" for t in others)
            lines.append(_shown(f"  {m:5} {n:5} {k:5} {ours:9.2f} {run.schedule.us:8.1f} {beside}  {len(run.kernels)} {words_of(run.schedule)}"))
        for which, found in zip(("eager", "cublasLt's fused form"), zip(*ratios, strict=True), strict=False):
            mean, wins = statistics.geometric_mean(found), sum(r >= 1 for r in found)
            lines.append(_shown(f"  {program}: {len(found)} sizes beside {which}: geometric mean {mean:.3f}, worst {min(found):.3f}, wins {wins}"))
        return lines

    def copies(self) -> float:
        """Bytes per second that a copy reads and writes."""
        self.bandwidth = self.bandwidth or programs.copy_bandwidth()
        return self.bandwidth

    def few(self) -> list[str]:
        """Few rows, by as many matrices as exceed the cache."""
        lines = [f"few rows; a copy moves {self.copies() / 1e12:.2f} TB/s", "      m     n     k   ours us expected     mm us      x   TB/s  of a copy"]
        ratios: list[float] = []
        for m, (n, k) in itertools.product(ROWS, WEIGHTS):
            run: Any = tf.compile(fusion_of("plain", m, n, k), backend="cuda")
            sets = [[torch.randn(s, device="cuda", dtype=torch.bfloat16) for s in ((m, k), (n, k))] for _ in range(2 * L2_BYTES // (2 * n * k) + 2)]
            out = torch.full((m, n), float("nan"), device="cuda", dtype=torch.bfloat16)
            for args in sets:
                run(*args, out=(out,))
                check("plain", args, out)
            ours, cublas = in_turn([in_order(partial(run, *a, out=(out,)) for a in sets), in_order(partial(torch.mm, a[0], a[1].T, out=out) for a in sets)])
            rate = 2 * (m * k + n * k + m * n) / ours * 1e6
            ratios.append(cublas / ours)
            shares = f"{rate / 1e12:6.2f} {rate / self.copies():9.0%}  {len(run.kernels)} {words_of(run.schedule)}"
            lines.append(_shown(f"  {m:5} {n:5} {k:5} {ours:9.2f} {run.schedule.us:8.1f} {cublas:9.2f} {ratios[-1]:6.3f} {shares}"))
        return [*lines, f"  few: {len(ratios)} sizes: geometric mean {statistics.geometric_mean(ratios):.3f}, worst {min(ratios):.3f}"]

    def bits(self) -> list[str]:
        """Weights of 4 bits."""
        lines = [
            f"weights of 4 bits, one row; a copy moves {self.copies() / 1e12:.2f} TB/s",
            "      n     k   ours us expected   TB/s  of a copy  mm in bf16 / it",
        ]
        for n, k in WEIGHTS:
            run: Any = tf.compile(bits(n, k), backend="cuda")
            size = n * k // 2 + 2 * n * k // GROUP
            x, wide = torch.randn(k, device="cuda", dtype=torch.bfloat16), torch.randn(n, k, device="cuda", dtype=torch.bfloat16)
            sets = [
                (torch.randint(256, (n, k // 2), device="cuda", dtype=torch.uint8), torch.rand(n, k // GROUP, device="cuda").bfloat16())
                for _ in range(2 * L2_BYTES // size + 2)
            ]
            out = torch.full((n,), float("nan"), device="cuda", dtype=torch.bfloat16)
            for w, scales in sets[:2]:
                run(x, w, scales, out=(out,))
                weights = torch.stack([w & 15, w >> 4], 2).view(n, k).double().sub(8) * scales.double().repeat_interleave(GROUP, 1)
                wanted, terms = weights @ x.double(), weights.abs() @ x.double().abs()
                if not bool(((out.double() - wanted).abs() <= wanted.abs() * 2**-8 + terms * 2**-20).all()):
                    sys.exit(f"4 bits {n} {k}: wrong")
            ours, cublas = in_turn([in_order(partial(run, x, w, s, out=(out,)) for w, s in sets), partial(torch.mm, x[None], wide.T)])
            rate = (size + 2 * k + 2 * n) / ours * 1e6
            shares = f"{rate / 1e12:6.2f} {rate / self.copies():9.0%} {cublas / ours:8.2f}"
            lines.append(_shown(f"  {n:5} {k:5} {ours:9.2f} {run.schedule.us:8.1f} {shares}  {words_of(run.schedule)}"))
        return lines

    def floats(self) -> list[str]:
        """tf32 beside torch's, and float32 by all ways."""
        lines: list[str] = []
        for m, n, k in SQUARES:
            run: Any = tf.compile(as_tf32(m, n, k), backend="cuda")
            a, b = (torch.randn(rows, k, device="cuda") for rows in (m, n))
            out, other = (torch.full((m, n), float("nan"), device="cuda") for _ in range(2))
            run(a, b, out=(out,))
            some = torch.arange(0, m, 31, device="cuda")
            error = (out[some].double() - a[some].double() @ b.double().T).abs() / (a[some].double().abs() @ b.double().abs().T)
            if not float(error.max()) <= 2**-10:
                sys.exit(f"tf32 {m} {n} {k}: off by {float(error.max()):.1e} of the sizes of the terms")
            torch.backends.cuda.matmul.allow_tf32 = True
            ours, cublas = in_turn([partial(run, a, b, out=(out,)), partial(torch.mm, a, b.T, out=other)])
            torch.backends.cuda.matmul.allow_tf32 = False
            lines.append(_shown(f"tf32 {m} {n} {k}: {ours:8.1f} us, torch {cublas:8.1f}, ratio {cublas / ours:.3f}, error {float(error.max()):.1e}"))
        return [*lines, *(_shown(precisions.measured(case)) for case in precisions.of_floats())]

    def programs(self) -> list[str]:
        """Five programs."""
        lines = ["program, kernels, MB, time, expected, bound, share, torch, compiled, ratios"]
        for program in (*programs.ALIKE, *programs.BIG):
            if program.build.__name__ in PROGRAMS:
                lines.append(_shown(programs.row(program, self.copies())[0]))
                torch.cuda.empty_cache()
        return lines


def scheduled(build: Callable[..., tf.Fusion], arguments: Sequence[Any]) -> tf.Fusion:
    """A fusion with a product, scheduled as the cost model chooses."""
    fusion = build(*arguments)
    tf.schedulers.matmul(fusion)
    return fusion


def in_order(calls: Any) -> Callable[[], object]:
    """A call that is the next of some."""
    turns = itertools.cycle(list(calls))
    return lambda: next(turns)()


def _shown(line: str) -> str:
    print(line, file=sys.stderr, flush=True)
    return line


def main() -> None:
    """Compile, measure, print and, if asked, store."""
    arguments = part_parser(__doc__)
    arguments.add_argument("--count", type=int, default=24, help="random sizes of each program (default: 24)")
    arguments.add_argument("--seed", type=int, default=0, help="of the random sizes")
    options = arguments.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = False
    figures = Figures(options.count, options.seed)
    publish_parts("product_figures", figures.parts, figures.jobs, arguments, options)


if __name__ == "__main__":
    main()
