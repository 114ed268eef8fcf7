"""relu(a) @ b in bfloat16: tiles and steps with 0, 1 and 3 batches in flight, beside the plain product in the same tile, two kernels, and torch.

``python benchmarks/computed_factor.py [--write] [--nk] [--small]``. ``--nk``: b has k contiguous. ``--small``: two sizes of few tiles, with small tiles.
A time is that of one of several calls in a CUDA graph, the median of replays in turn; inputs are random, results compared with torch after the
outputs were poisoned. A size's first line is what ``tf.compile`` chooses.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import torch
from reporting import in_turn, parser, publish

import taskfuse as tf
from taskfuse.errors import TaskfuseError
from taskfuse.schedulers import MatmulConfig, MatmulKind

SIZES = ((2560, 3968, 2944), (2688, 1792, 3968), (768, 2688, 4096), (1536, 384, 2176), (3200, 2688, 2048), (4096, 4096, 4096), (16384, 4096, 8192))
TILES = (
    MatmulConfig(128, 256),
    MatmulConfig(256, 128),
    MatmulConfig(192, 128, warpgroups=3),
    MatmulConfig(128, 128, stages=6),
    MatmulConfig(192, 64, warpgroups=3, stages=5),
    MatmulConfig(128, 128, stages=6, kind=MatmulKind.PINGPONG),
)
FLIGHTS = (0, 1, 3)
SMALL_SIZES = ((128, 4096, 2816), (1536, 384, 2176))
SMALL_TILES = (
    MatmulConfig(64, 64, warpgroups=1, stages=8),
    MatmulConfig(64, 64, 128, warpgroups=1, stages=6),
    MatmulConfig(64, 128, warpgroups=1, stages=8),
    MatmulConfig(64, 128, 128, warpgroups=1),
    MatmulConfig(128, 64, 128),
)


def fusion_of(m: int, n: int, k: int, *, is_computed: bool, is_nk: bool) -> tf.Fusion:
    """The product, of relu(a) or of a."""
    with tf.Fusion("computed" if is_computed else "plain") as made:
        a = tf.define_tensor([m, k], tf.bfloat16, name="a")
        b = tf.define_tensor([n, k] if is_nk else [k, n], tf.bfloat16, name="b")
        made.add_output((tf.relu(a) if is_computed else a) @ (b.T if is_nk else b))
    return made


def call_of(made: tf.Fusion, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor, wanted: torch.Tensor) -> Callable[[], object]:
    """A call of a scheduled fusion, whose result is right."""
    run = tf.compile(made)
    out.fill_(float("nan"))
    run(a, b, out=(out,))
    assert bool(((out.float() - wanted).abs() <= wanted.abs() * 2**-7 + 1e-3 * wanted.abs().max()).all()), "wrong"
    return partial(run, a, b, out=(out,))


def main() -> None:
    """Measure, print and, if asked, store."""
    options = parser(__doc__)
    options.add_argument("--nk", action="store_true", help="b has k contiguous")
    options.add_argument("--small", action="store_true", help="few and small tiles")
    given = options.parse_args()
    lines: list[str] = []
    for m, n, k in SMALL_SIZES if given.small else SIZES:
        a, b = (torch.randn(s, device="cuda").bfloat16() for s in ((m, k), (n, k) if given.nk else (k, n)))
        second = b.T if given.nk else b
        out = torch.empty((m, n), device="cuda", dtype=torch.bfloat16)
        wanted = {c: ((torch.relu(a) if c else a) @ second).float() for c in (False, True)}
        chosen = tf.compile(fusion_of(m, n, k, is_computed=True, is_nk=given.nk), cache=False)
        words = getattr(getattr(chosen.schedule, "config", None), "words", "several kernels")
        calls: list[Callable[[], object]] = [
            partial(chosen, a, b, out=(out,)),
            partial(torch.mm, a, second, out=out),
            lambda a=a, second=second: torch.relu(a) @ second,
        ]
        names = [f"chosen: {words}", "torch, plain", "torch, relu and product"]
        for tile in SMALL_TILES if given.small else TILES:
            for computed, flights in ((True, FLIGHTS), (False, (1,))):
                for flight in flights:
                    made = fusion_of(m, n, k, is_computed=computed, is_nk=given.nk)
                    blocks = min(132, -(-m // tile.tile_m) * -(-n // tile.tile_n))
                    config = replace(tile, in_flight=flight, blocks=blocks)
                    try:
                        tf.schedulers.matmul(made, config)
                        calls.append(call_of(made, a, b, out, wanted[computed]))
                    except TaskfuseError as error:
                        lines.append(f"  {config.words}: {str(error).splitlines()[0]}")
                        continue
                    kind = "ping-pong" if tile.is_pingpong else f"{tile.warpgroups} warpgroups"
                    names.append(f"{'relu ' if computed else 'plain'} {tile.tile_m} x {tile.tile_n} x {tile.tile_k}, {kind}, {flight} in flight")
        times = in_turn(calls)
        lines.append(f"{m} x {n} x {k}")
        lines += [f"  {us:9.2f} us  {name}" for us, name in zip(times, names, strict=True)]
    publish("computed_factor", lines, given)


if __name__ == "__main__":
    main()
