"""What an order of the products is worth to attention: kernels of ``tf.schedulers.attention`` with and without products ahead, and turns.

``python benchmarks/attention_turns.py [--write] [--only CASE ...] [--forms FORM ...]``. Without, all warpgroups of a block wait for the same keys, so they
may multiply at the same time, and then compute exponentials at the same time, while the tensor cores wait. FlashAttention-3 (arXiv:2407.08608, sections 3.1
and 3.2) has warpgroups take turns, and each of them compute exponentials while its next products run. Forms:

    plain           as before
    in turn         ``take_turns``: warpgroups issue their products one after another
    ahead           ``pipeline_stage``: the product of queries and the next keys is issued before that with the values
    ahead, in turn  both

All are proved. Their results are compared with those of the plain kernels: sums have the same terms in the same order.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from attention import CASES, Case, theirs
from reporting import in_turn, parser, publish

import taskfuse as tf
from taskfuse.errors import TaskfuseError
from taskfuse.kir import Kernel
from taskfuse.schedulers import AttentionConfig

FORMS = {
    "plain": (False, False),
    "in turn": (False, True),
    "ahead": (True, False),
    "ahead, in turn": (True, True),
}
"""Whether products run ahead, and whether they are issued in turn."""
CONFIGS = {
    "4096": ((2, 128, 2, 1, 132, 2), (2, 128, 2, 1, 132, 2, 2)),
    "4096_causal": ((2, 128, 2, 1, 132), (2, 128, 2, 1, 132, 1, 2)),
    "16k": ((2, 128, 2, 1, 132, 2, 2),),
    "16k_causal": ((2, 128, 2, 1, 132),),
    "d64": ((3, 144, 2, 1, 132, 2, 2), (2, 128, 2, 1, 132, 2, 2)),
    "d64_causal": ((2, 128, 2, 1, 132),),
    "d256": ((2, 80, 2, 2, 132), (2, 64, 2, 2, 132, 1, 2)),
    "512": ((2, 128, 2, 1, 132, 2, 2),),
    "1024": ((2, 128, 2, 1, 132, 2, 2),),
    "ragged": ((2, 128, 2, 1, 132, 2, 2),),
    "bytes": ((2, 128, 2, 1, 132, 2, 2),),
}
"""Fields of the parameters: warpgroups, keys of a chunk, stages, cluster, blocks, stages of queries, staged pieces."""


def kernels(case: Case, forms: Sequence[str]) -> dict[str, Kernel]:
    """By words; those whose registers do not suffice by the scheduler's estimate are made by its calls, and named."""
    found: dict[str, Kernel] = {}
    for fields in CONFIGS[case.name]:
        for form in forms:
            is_pipelined, has_turns = FORMS[form]
            config = replace(AttentionConfig(*fields), is_pipelined=is_pipelined, in_turn=has_turns)
            try:
                fusion = _scheduled(case, config)
                found[f"{AttentionConfig(*fields).words}; {form}"] = tf.lower(fusion)
            except TaskfuseError as error:
                print(f"{case.name}: {config.words}: {str(error).splitlines()[0]}", flush=True)
    return found


def _scheduled(case: Case, config: AttentionConfig) -> tf.Fusion:
    """The schedule of some parameters: where the scheduler takes only the plain ones, the calls are added to its schedule."""
    fusion = case.fusion()
    try:
        tf.schedulers.attention(fusion, config)
    except TaskfuseError:
        fusion = case.fusion()
        tf.schedulers.attention(fusion, replace(config, is_pipelined=False, in_turn=False))
        products = [tv for tv in fusion.tensors() if tv.schedule.atom is not None and tv.schedule.atom.name.startswith("wgmma")]
        for tv in products if config.in_turn else ():
            tv.take_turns(tf.ParallelType.TIDy)
        products[-1].pipeline_stage(int(config.is_pipelined))
    return fusion


def measure(case: Case, forms: Sequence[str]) -> list[str]:
    """The lines of a case."""
    args = case.arguments()
    others = theirs(case, args, has_flex=False)
    calls: list[Callable[[], object]] = list(others.values())
    given = case.given(args)
    words: list[str] = []
    wanted: torch.Tensor | None = None
    for name, kernel in kernels(case, forms).items():
        try:
            spilled = kernel.resources(fast_math=True).compiled.spill_stores
            kernel.verify().require()
            run = tf.compile(kernel, backend="cuda", fast_math=True, unsafe=spilled > 0)  # one that spills is timed, too
            out = torch.full_like(args[0], torch.nan).view(case.results)
            run(*given, out=out)
        except TaskfuseError as error:
            print(f"{case.name}: {name}: {str(error).splitlines()[0]}", flush=True)
            continue
        if name.endswith(f"; {forms[0]}"):
            wanted = out.clone()
        elif wanted is None or not torch.allclose(out, wanted, rtol=2**-6, atol=2**-10):
            sys.exit(f"{case.name}: {name}: results differ")
        elif not torch.equal(out, wanted):
            print(f"{case.name}: {name}: some results are rounded otherwise", flush=True)
        calls.append(lambda run=run, out=out: run(*given, out=out))
        words.append(f"taskfuse: {name}{f', {spilled} bytes spilled' if spilled else ''}")
    times = in_turn(calls)
    best = min(times[: len(others)])
    lines = [f"{case.name} {case.batch}x{case.heads}x{case.queries}x{case.keys}x{case.depth}"]
    for name, us in zip((*others, *words), times, strict=True):
        lines.append(f"  {us:8.1f} us  {best / us:5.2f}x  {case.flop / us / 1e6:5.0f} TFLOP/s  {name}")
    return lines


def main() -> None:
    """Measure, print and, if asked, store."""
    found = parser(__doc__)
    found.add_argument("--only", nargs="*", default=list(CONFIGS))
    found.add_argument("--forms", nargs="*", default=list(FORMS), choices=list(FORMS), help="the first is what the others are compared with")
    options = found.parse_args()
    lines: list[str] = []
    for case in CASES:
        if case.name in options.only and case.name in CONFIGS:
            made = measure(case, options.forms)
            print("\n".join(made), flush=True)
            lines += made
    publish("attention_turns", lines, options)


if __name__ == "__main__":
    main()
