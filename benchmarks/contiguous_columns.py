"""a @ b in bfloat16 with n contiguous in b, beside the same tile with k contiguous: 132 tiles, one for each multiprocessor of an H200.

``python benchmarks/contiguous_columns.py [--write] [--check]``. Slots of the first hold multiples of 64 columns, and rows of 128 bytes that may lie in two
lines of the cache. A time is that of one of 10 calls in a CUDA graph, the median of 20 replays, in turn; inputs are random, outputs poisoned before and
compared with torch. ``--check``: schedule, prove and compile all kernels; no GPU.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from ahead import Ahead, Job
from reporting import in_turn, parser, publish

import taskfuse as tf
from taskfuse.schedulers import MatmulConfig
from taskfuse.target import DEFAULT

WIDTHS = {
    (128, 2): (80, 96, 112, 128, 144, 160, 176, 192, 208, 224, 240, 256),
    (256, 2): (80, 112, 128, 144, 160, 176),
    (192, 3): (96, 112, 144, 160, 176, 192),
    (64, 1): (48, 80, 96, 128, 160, 192),
}
"""Columns of a tile, by its rows and the warpgroups that share it."""
TERMS = (512, 2048)
ROWS, COLUMNS = 11, 12
"""Tiles of the result."""
Case = tuple[int, int, int, int]
"""Rows and columns of a tile, warpgroups, terms."""
CASES: tuple[Case, ...] = tuple((rows, columns, groups, k) for (rows, groups), widths in WIDTHS.items() for columns in widths for k in TERMS)


def scheduled(case: Case, contiguous: bool) -> tf.Fusion:
    """The product with as many stages as fit."""
    rows, columns, groups, k = case
    m, n = ROWS * rows, COLUMNS * columns
    with tf.Fusion("columns") as fusion:
        a = tf.define_tensor([m, k], tf.bfloat16, name="a")
        b = tf.define_tensor([k, n] if contiguous else [n, k], tf.bfloat16, name="b")
        fusion.add_output(a @ (b if contiguous else b.T))
    least = MatmulConfig(rows, columns, warpgroups=groups, stages=2)
    stages = min(8, least.stages_in(DEFAULT.limits.block_shared, 2, 1, columns_contiguous=contiguous))
    tf.schedulers.matmul(fusion, MatmulConfig(rows, columns, warpgroups=groups, stages=stages, group=8, blocks=ROWS * COLUMNS))
    return fusion


def call_of(case: Case, contiguous: bool) -> Callable[[], object]:
    """A call whose result is right."""
    rows, columns, _, k = case
    m, n = ROWS * rows, COLUMNS * columns
    a, b = (torch.randn(shape, device="cuda").bfloat16() for shape in ((m, k), (k, n) if contiguous else (n, k)))
    out, wanted = torch.full((m, n), float("nan"), device="cuda", dtype=torch.bfloat16), (a @ (b if contiguous else b.T)).float()
    run = tf.compile(scheduled(case, contiguous), backend="cuda")
    run(a, b, out=(out,))
    assert bool(((out.float() - wanted).abs() <= wanted.abs() * 2**-7 + 1e-3 * wanted.abs().max()).all()), f"{case}: wrong"
    return partial(run, a, b, out=(out,))


def main() -> None:
    """Measure, print and, if asked, store."""
    options = parser(__doc__)
    options.add_argument("--check", action="store_true", help="only compile")
    given = options.parse_args()
    jobs = [Job(f"{case} {c}", scheduled, (case, c)) for case in CASES for c in (True, False)]
    made = Ahead(jobs).wait()
    if given.check:
        print("\n".join(made))
        return
    lines = ["rows x columns of a tile, warpgroups, terms: us with n contiguous, with k contiguous, ratio"]
    for case in CASES:
        ours, other = in_turn([call_of(case, contiguous) for contiguous in (True, False)])
        rows, columns, groups, k = case
        lines.append(f"  {rows:3} x {columns:3} {groups} {k:5}  {ours:7.2f} {other:7.2f} {ours / other:6.3f}")
    publish("contiguous_columns", lines, given)


if __name__ == "__main__":
    main()
